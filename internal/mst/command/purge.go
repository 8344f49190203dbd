package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

type purgeOptions struct {
	*Factory
	connection    *connection
	destruction   destruction
	scope, thread string
}

func newPurgeCmd(f *Factory, c *connection) *cobra.Command {
	o := &purgeOptions{Factory: f, connection: c}
	cmd := &cobra.Command{
		Use:   "purge-thread --scope SCOPE --thread ID",
		Short: "Dispose of all sandboxes of a conversation, on every host",
		Long: `Dispose of all sandboxes of a conversation, on every host of this machine.

The conversation counts as purged only when every host that is known says so;
anything else is partial, and the exit status is 1.`,
		Example: "  mst purge-thread --scope tenant-labs --thread incident-184\n  mst purge-thread --scope tenant-labs --thread incident-184 --yes --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"scope", "thread"} {
				if !cmd.Flags().Changed(name) {
					return usagef("the flag --%s is required", name)
				}
			}
			how := formatTable
			if c.json {
				how = formatJSON
			}
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, how) })
		},
	}
	c.add(cmd.Flags())
	o.destruction.add(cmd.Flags())
	cmd.Flags().StringVar(&o.scope, "scope", "", "the conversation's `scope`")
	cmd.Flags().StringVar(&o.thread, "thread", "", "the conversation's `id`")
	complete(cmd, "scope", f.completeProperty(c, "scope"))
	complete(cmd, "thread", f.completeProperty(c, "thread"))
	return cmd
}

func (o *purgeOptions) run(ctx context.Context, hosts *fleet.Fleet, how format) error {
	question := fmt.Sprintf("Purge every sandbox for %s across all hosts?", view.Name(o.scope+"/"+o.thread))
	if err := o.confirm(ctx, &o.destruction, how, question, "Conversation kept."); err != nil {
		return err
	}
	var failures []*control.HostError
	result, err := waiting(o.Factory, "waiting for the purge", func() (control.PurgeResult, error) {
		result, failed, err := hosts.Purge(ctx, o.scope, o.thread, o.destruction.timeout.value)
		failures = failed
		return result, err
	})
	if err != nil {
		return err
	}
	o.warn(failures)
	if how.isJSON() {
		encoded, encodeErr := result.MarshalJSON()
		if encodeErr != nil {
			return encodeErr
		}
		err = o.writeJSON(how, encoded)
	} else {
		line := fmt.Sprintf("%s: %s Disposed: %d.", result.Status, view.Sentence(result.Message), result.Disposed)
		err = o.Streams.WriteOut([]byte(line + "\n"))
	}
	if err != nil {
		return err
	}
	if result.Status != control.Purged {
		return statusError(ExitFailed)
	}
	return nil
}
