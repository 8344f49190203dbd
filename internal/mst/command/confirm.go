package command

import (
	"bufio"
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// maxAnswer bounds what is read of an answer to a question.
const maxAnswer = 4096

// destruction are the flags of a command that removes something.
type destruction struct {
	yes     bool
	timeout seconds
}

func (d *destruction) add(flags *pflag.FlagSet) {
	d.timeout = seconds{control.DefaultTimeout}
	flags.BoolVar(&d.yes, "yes", false, "do not ask; scripts and --json need this")
	flags.Var(&d.timeout, "timeout", "time for all of it, such as 10, 500ms or 1m; the host's own limit is not exceeded")
}

// asks says whether an operator is asked before something is removed.
func (f *Factory) asks(d *destruction, how format) bool {
	return !d.yes && !how.isJSON() && f.Streams.InTTY
}

// confirm asks the operator a question, whose text is safe to show. Only a person
// at a terminal can be asked; kept is what is said when they decline. The end of input is no agreement.
func (f *Factory) confirm(ctx context.Context, d *destruction, how format, question, kept string) error {
	if d.yes {
		return nil
	}
	if !f.asks(d, how) {
		return errUnconfirmed
	}
	if err := f.Streams.WriteOut([]byte(question + " [y/N] ")); err != nil {
		return err
	}
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	// A read from a terminal cannot be ended; when a signal comes, the process
	// ends and the read with it.
	go func() {
		line, err := bufio.NewReader(io.LimitReader(f.Streams.In, maxAnswer)).ReadString('\n')
		replies <- reply{line, err}
	}()
	var answer reply
	select {
	case answer = <-replies:
	case <-ctx.Done():
		_ = f.Streams.WriteOut([]byte("\n")) // who comes next begins a line; the end is said by the status
		return ctx.Err()
	}
	switch strings.ToLower(strings.TrimSpace(answer.line)) {
	case "y", "yes":
		if answer.err == nil {
			return nil
		}
	}
	if answer.err != nil {
		kept = "\n" + kept // the terminal is still on the question's line
	}
	if err := f.Streams.WriteOut([]byte(kept + "\n")); err != nil {
		return err
	}
	return statusError(ExitDeclined)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments; got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s needs one INSTANCE_ID; got %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}
