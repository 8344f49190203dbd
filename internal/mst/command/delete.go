package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

type deleteOptions struct {
	*Factory
	connection  *connection
	destruction destruction
}

func newDeleteCmd(f *Factory, c *connection) *cobra.Command {
	o := &deleteOptions{Factory: f, connection: c}
	cmd := &cobra.Command{
		Use:   "delete INSTANCE_ID",
		Short: "Dispose of exactly one sandbox",
		Long: `Dispose of exactly one sandbox, by the id of its generation.

A newer sandbox with the same key has another id and is not touched. Unless all
hosts answer and exactly one of them has it, nothing is disposed of. The
beginning of an id is enough, from 4 characters on, where you are asked, with
the whole id, before anything happens; with --yes or --json it has to be whole.`,
		Example:           "  mst delete 9f15a25d8c0d4ea0ab1af045d9481001\n  mst delete 9f15\n  mst delete 9f15a25d8c0d4ea0ab1af045d9481001 --yes --json",
		Args:              oneID,
		ValidArgsFunction: f.completeIDs(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			how := formatTable
			if c.json {
				how = formatJSON
			}
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, args[0], how) })
		},
	}
	c.add(cmd.Flags())
	o.destruction.add(cmd.Flags())
	return cmd
}

func (o *deleteOptions) run(ctx context.Context, hosts *fleet.Fleet, instanceID string, how format) error {
	beginning := agreed
	if !o.asks(&o.destruction, how) {
		beginning = wholeOnly
	}
	found, err := o.locate(ctx, hosts, instanceID, beginning, how)
	if err != nil {
		return err
	}
	if !found.Certain {
		if how.isJSON() {
			return statusError(ExitFailed) // a program reads the status
		}
		return errAbsentHosts
	}
	question := fmt.Sprintf("Dispose %s (%s)?", view.Name(found.Record.LogicalName()), view.Name(found.Record.InstanceID))
	if err := o.confirm(ctx, &o.destruction, how, question, "Sandbox kept."); err != nil {
		return err
	}
	result, err := waiting(o.Factory, "waiting for the disposal", func() (control.DisposalResult, error) {
		return hosts.Dispose(ctx, found.Record.InstanceID, o.destruction.timeout.value)
	})
	if err != nil {
		return err
	}
	if how.isJSON() {
		encoded, encodeErr := result.MarshalJSON()
		if encodeErr != nil {
			return encodeErr
		}
		err = o.writeJSON(how, encoded)
	} else {
		line := fmt.Sprintf("%s: %s (%s)", result.Status, view.Sentence(result.Message), view.Name(result.InstanceID))
		err = o.Streams.WriteOut([]byte(line + "\n"))
	}
	if err != nil {
		return err
	}
	switch result.Status {
	case control.Disposed:
		return nil
	case control.NotFound:
		return statusError(ExitAbsent)
	}
	return statusError(ExitFailed)
}
