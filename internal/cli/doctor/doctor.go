// Package doctor is the command that says what this machine offers, what is
// missing for a sandbox, and what mends it.
package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Status is how a check came out.
type Status string

// The ways a check can come out. Only Fail keeps a sandbox from running.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one thing looked at.
type Check struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Detail says what was found.
	Detail string `json:"detail"`
	// Fix is the one command that mends it, or several, a line each; empty where
	// nothing needs to be mended or no command can.
	Fix string `json:"fix,omitempty"`
}

// Options are all inputs of the command.
type Options struct {
	Factory *cli.Factory
	JSON    bool
	// Host is the machine that is looked at.
	Host Host
}

// NewCmd makes the command; runF, if not nil, takes the place of its work.
func NewCmd(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Host: ThisHost(f.CacheDir, f.Open)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine offers, and what mends what is missing",
		Long: `Say what this machine offers for sandboxes, what is missing, and the command
that mends it. The exit status is 0 when programs can be run and 1 when not.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.JSON, "json", false, "as one JSON object")
	return cmd
}

// report is the object that --json prints.
type report struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

func run(ctx context.Context, o *Options) error {
	ctx, release := o.Factory.Interruptible(ctx)
	defer release()
	r := report{OK: true, Checks: o.Host.Checks(ctx)}
	if cause := cli.StopCause(ctx); cause != nil {
		return cause
	}
	for _, c := range r.Checks {
		r.OK = r.OK && c.Status != Fail
	}
	var err error
	if o.JSON {
		err = cli.WriteJSON(o.Factory.Streams, r)
	} else {
		err = o.Factory.Streams.WriteOut([]byte(r.text(o.Factory.Streams.Color)))
	}
	if err == nil && !r.OK {
		err = &cli.StatusError{Status: 1}
	}
	return err
}

// colors of the marks: green, yellow and red.
var colors = map[Status]string{OK: "32", Warn: "33", Fail: "31"}

func (r report) text(color bool) string {
	var b strings.Builder
	for _, c := range r.Checks {
		mark := fmt.Sprintf("%-4s", c.Status)
		if color {
			mark = "\x1b[" + colors[c.Status] + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s  %-11s %s\n", mark, c.ID, streams.OneLine(c.Detail))
		b.WriteString(remedy(c.Fix))
	}
	verdict := "programs can be run"
	if !r.OK {
		verdict = "programs cannot be run"
	}
	return b.String() + verdict + "\n"
}

// remedy shows the commands of a fix, one a line so that they can be copied.
func remedy(fix string) string {
	const margin = "                  "
	lines := strings.Split(fix, "\n")
	switch {
	case fix == "":
		return ""
	case len(lines) == 1:
		return margin + "mend it: " + streams.OneLine(fix) + "\n"
	}
	var b strings.Builder
	b.WriteString(margin + "mend it:\n")
	for _, l := range lines {
		b.WriteString(margin + "  " + streams.OneLine(l) + "\n")
	}
	return b.String()
}
