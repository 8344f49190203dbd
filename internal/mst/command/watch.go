package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

type watchOptions struct {
	*Factory
	connection *connection
	selection  selection
	layout     layout
	jsonLines  bool
	interval   seconds
	count      count
}

func newWatchCmd(f *Factory, c *connection) *cobra.Command {
	o := &watchOptions{Factory: f, connection: c, interval: seconds{2 * time.Second}}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "List the sandboxes of all hosts again and again",
		Long: `List the sandboxes of all hosts again and again, until Ctrl-C or for --count times.

JSON comes as one line for each look: when it was, whether all hosts answered,
what the others said, and the sandboxes. The exit status is 1 when a look was
incomplete.`,
		Example: `  mst watch
  mst watch --interval 0.5 --state running
  mst watch --jsonl --count 10 | jq -r '.sandboxes | length'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			how, err := o.layout.check(c.json || o.jsonLines)
			if err != nil {
				return err
			}
			selection := o.selection.selection(cmd.Flags())
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, selection, how) })
		},
	}
	c.add(cmd.Flags())
	cmd.Flags().BoolVar(&o.jsonLines, "jsonl", false, "print one compact JSON object for each look; --json means the same here")
	cmd.Flags().Var(&o.interval, "interval", "time between two looks, such as 2 or 500ms")
	cmd.Flags().Var(&o.count, "count", "end after this many looks; 0 never ends")
	o.selection.add(cmd, f, c)
	o.layout.add(cmd)
	return cmd
}

func (o *watchOptions) run(ctx context.Context, hosts *fleet.Fleet, selection view.Selection, how format) error {
	if o.Unread && o.count == 0 {
		// No write would fail, and nothing else ends it.
		return streams.ErrPipe
	}
	var end error
	for n := 1; ; n++ {
		inventory, err := waiting(o.Factory, sayAsking, func() (fleet.Inventory, error) { return hosts.Inventory(ctx) })
		if err != nil {
			return err
		}
		now := o.Now()
		records := o.layout.choose(inventory.Records, selection, now)
		if how.isJSON() {
			err = o.writeLook(inventory.Failures, records, now)
		} else {
			err = o.writeTable(n, inventory.Failures, records, now)
		}
		if err != nil {
			return err
		}
		if !inventory.Complete() {
			end = statusError(ExitFailed)
		}
		if n == int(o.count) {
			return end
		}
		wait := time.NewTimer(o.interval.value)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
}

func (o *watchOptions) writeTable(n int, failures []*control.HostError, records []control.Record, now time.Time) error {
	o.warn(failures)
	text := fmt.Sprintf("Snapshot %d at %s\n", n, now.Format(time.DateTime)) + o.layout.table(records, now, o.styleStates)
	if n > 1 {
		text = "\n" + text
	}
	return o.Streams.WriteOut([]byte(text))
}

func (o *watchOptions) writeLook(failures []*control.HostError, records []control.Record, now time.Time) error {
	sandboxes, err := encodeRecords(records)
	if err != nil {
		return err
	}
	said := make([][]byte, len(failures))
	for i, failure := range failures {
		said[i] = pyjson.AppendString(nil, describe(failure))
	}
	var j pyjson.Object
	j.Float("observed_at", float64(control.At(now)))
	j.Bool("complete", len(failures) == 0)
	j.Raw("errors", array(said))
	j.Raw("sandboxes", array(sandboxes))
	return o.writeJSON(formatJSONLines, j.Bytes())
}
