package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// Names under which the program is distributed.
const (
	distribution = "maf-sandbox-mst"
	module       = "github.com/maf-sandbox/maf-sandbox-go"
)

func itself() selfupdate.Program {
	return selfupdate.Program{Name: Program, Distribution: distribution, Module: module, Package: module + "/cmd/mst", Version: Version()}
}

type updateOptions struct {
	*Factory
	check      bool
	to         string
	prerelease bool
	timeout    seconds
}

func newUpdateCmd(f *Factory, c *connection) *cobra.Command {
	o := &updateOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Update mst through the tool that installed it",
		Long: `Update mst through the tool that installed it: uv, pipx or go install.

Nothing is ever looked up unless you ask. Every other installation is refused
with the command that updates it.`,
		Example: "  mst update --check\n  mst update\n  mst update --to 1.2.3\n  mst update --prerelease --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.check && cmd.Flags().Changed("to") {
				return usagef("--to: not allowed with argument --check")
			}
			if cmd.Flags().Changed("to") && o.to == "" {
				return usagef("--to needs a version")
			}
			return withSignals(cmd.Context(), func(ctx context.Context) error { return o.run(ctx, c.json) })
		},
	}
	c.output(cmd.Flags())
	cmd.Flags().BoolVar(&o.check, "check", false, "say which release is the newest, and change nothing")
	cmd.Flags().StringVar(&o.to, "to", "", "upgrade or roll back to this `version`")
	cmd.Flags().BoolVar(&o.prerelease, "prerelease", false, "the newest release may be a pre-release")
	cmd.Flags().Var(&o.timeout, "timeout", "time for each step, such as 90 or 5m; without it each step has its own")
	return cmd
}

func (o *updateOptions) run(ctx context.Context, asJSON bool) error {
	progress := o.Streams.Progress()
	report, err := o.SelfUpdate(ctx, selfupdate.Options{
		Program: itself(), Check: o.check, To: o.to, Prerelease: o.prerelease, Timeout: o.timeout.value,
		Progress: func(_ selfupdate.Step, command string) { progress.Say(command) },
	})
	progress.Done()
	if err != nil {
		return err
	}
	if !asJSON {
		return o.Streams.WriteOut([]byte(view.Sentence(report.Text("MST")) + "\n"))
	}
	var j pyjson.Object
	j.String("status", report.Status)
	for _, version := range []struct{ key, value string }{
		{"current_version", report.Current}, {"latest_version", report.Latest}, {"channel", report.Channel},
		{"previous_version", report.Previous}, {"installed_version", report.Installed},
	} {
		if version.value != "" {
			j.String(version.key, version.value)
		}
	}
	j.Raw("installation", encodeInstallation(report.Installation))
	return o.writeJSON(formatJSON, j.Bytes())
}

func encodeInstallation(i selfupdate.Installation) []byte {
	var j pyjson.Object
	j.String("manager", string(i.Manager))
	j.Bool("self_updatable", i.SelfUpdatable)
	j.String("prefix", i.Prefix)
	return j.Bytes()
}
