package command

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

type showOptions struct {
	*Factory
	connection *connection
	output     output
}

func newShowCmd(f *Factory, c *connection) *cobra.Command {
	o := &showOptions{Factory: f, connection: c}
	cmd := &cobra.Command{
		Use:   "show INSTANCE_ID",
		Short: "Show one sandbox",
		Long: `Show one sandbox, by the id of its generation.

The beginning of an id is enough, from 4 characters on, when it is that of one
sandbox alone. A reset or replacement gives a sandbox a new id. The exit status
is 3 when all hosts were asked and none has it.`,
		Example:           "  mst show 9f15a25d8c0d4ea0ab1af045d9481001\n  mst show 9f15\n  mst show 9f15a25d8c0d4ea0ab1af045d9481001 --json",
		Args:              oneID,
		ValidArgsFunction: f.completeIDs(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			how, err := o.output.format(c.json)
			if err != nil {
				return err
			}
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, args[0], how) })
		},
	}
	c.add(cmd.Flags())
	o.output.add(cmd, "table", "json", "jsonl")
	return cmd
}

func (o *showOptions) run(ctx context.Context, hosts *fleet.Fleet, instanceID string, how format) error {
	found, err := o.locate(ctx, hosts, instanceID, abbreviates, how)
	if err != nil {
		return err
	}
	if how.isJSON() {
		encoded, encodeErr := found.Record.MarshalJSON()
		if encodeErr != nil {
			return encodeErr
		}
		err = o.writeJSON(how, encoded)
	} else {
		err = o.Streams.WriteOut([]byte(details(found.Record, o.Now())))
	}
	if err != nil {
		return err
	}
	return incomplete(found.Failures)
}

// labelWidth is the width of the longest label, "last signal".
const labelWidth = 11

func details(r *control.Record, now time.Time) string {
	var b strings.Builder
	for _, line := range []struct{ label, value string }{
		{"source", r.SourceID},
		{"backend", r.Backend},
		{"key", r.LogicalName()},
		{"kind", r.Kind},
		{"instance", r.InstanceID},
		{"state", string(r.State)},
		{"process", view.Process(r.ProcessID)},
		{"created", view.Moment(r.CreatedAt.Time(), now)},
		{"last signal", view.Moment(r.LastActivityAt.Time(), now)},
		{"contract", cmp.Or(r.ExecutionContract, "-")},
		{"egress", view.Egress(r)},
	} {
		b.WriteString(strings.TrimRight(view.Pad(line.label, labelWidth)+"  "+view.Name(line.value), " ") + "\n")
	}
	return b.String()
}
