package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// layout are the flags for how a table of sandboxes looks.
type layout struct {
	output    output
	columns   string
	sort      string
	noHeaders bool

	chosen []view.Column
	order  *view.Order
}

func (l *layout) add(cmd *cobra.Command) {
	l.output.add(cmd, "table", "wide", "json", "jsonl")
	cmd.Flags().StringVar(&l.columns, "columns", "", "the `names` of the table's columns, separated by commas: "+strings.Join(view.ColumnNames(), ", "))
	cmd.Flags().StringVar(&l.sort, "sort", "", "sort by this `column`; -column turns the order round")
	cmd.Flags().BoolVar(&l.noHeaders, "no-headers", false, sayNoHeaders)
	complete(cmd, "columns", completeColumns)
	complete(cmd, "sort", completeOrder)
}

// sayNoHeaders is the help of --no-headers. What scripts read has no sentences.
const sayNoHeaders = "leave the titles of the table out, and print nothing when it is empty"

// completeColumns has shells complete a list of columns, each of them once.
func completeColumns(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	there := strings.Split(before, ",")
	var lists []cobra.Completion
	for _, name := range view.ColumnNames() {
		if !slices.Contains(there, name) {
			lists = append(lists, before+name)
		}
	}
	// A comma and one more may follow.
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeOrder has shells complete a column that may have a dash before it.
func completeOrder(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var orders []cobra.Completion
	for _, name := range view.ColumnNames() {
		if strings.HasPrefix(typed, "-") {
			name = "-" + name
		}
		orders = append(orders, name)
	}
	return orders, cobra.ShellCompDirectiveNoFileComp
}

// check reads the flags; the format decides which columns a table has that
// names none.
func (l *layout) check(json bool) (format, error) {
	how, err := l.output.format(json)
	if err != nil {
		return 0, err
	}
	l.chosen = view.DefaultColumns(how == formatWide)
	if l.columns != "" {
		if how.isJSON() {
			return 0, usagef("--columns is for tables: JSON has all properties")
		}
		if l.chosen, err = view.ParseColumns(l.columns); err != nil {
			return 0, usagef("--columns: %w", err)
		}
	}
	if l.sort != "" {
		order, err := view.ParseOrder(l.sort)
		if err != nil {
			return 0, usagef("--sort: %w", err)
		}
		l.order = &order
	}
	return how, nil
}

// choose gives the records that are selected, in the wanted order.
func (l *layout) choose(records []control.Record, selection view.Selection, now time.Time) []control.Record {
	chosen := make([]control.Record, 0, len(records))
	for i := range records {
		if selection.Keeps(&records[i], now) {
			chosen = append(chosen, records[i])
		}
	}
	if l.order != nil {
		l.order.Sort(chosen)
	}
	return chosen
}

func (l *layout) table(records []control.Record, now time.Time, style func(column int) func(int, string) string) string {
	switch {
	case len(records) == 0 && l.noHeaders:
		return ""
	case len(records) == 0:
		return "No sandboxes.\n"
	}
	titles := make([]string, len(l.chosen))
	state := -1
	for i, c := range l.chosen {
		titles[i] = c.Title
		if c.Name == "state" {
			state = i
		}
	}
	rows := make([][]string, len(records))
	for i := range records {
		rows[i] = make([]string, len(l.chosen))
		for j, c := range l.chosen {
			rows[i][j] = c.Cell(&records[i], now)
		}
	}
	return view.Table(titles, rows, !l.noHeaders, style(state))
}

type listOptions struct {
	*Factory
	connection *connection
	selection  selection
	layout     layout
}

func newListCmd(f *Factory, c *connection) *cobra.Command {
	o := &listOptions{Factory: f, connection: c}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes of all hosts",
		Long: `List the sandboxes of all hosts on this machine.

Hosts that do not answer are warned about on standard error. The sandboxes of
the others are listed all the same, and the exit status is 1.`,
		Example: `  mst list
  mst list --state failed -o wide
  mst list --older-than 10m --sort signal
  mst list --columns instance --no-headers --thread incident-184
  mst list --json | jq '.[].instance_id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			how, err := o.layout.check(c.json)
			if err != nil {
				return err
			}
			selection := o.selection.selection(cmd.Flags())
			return f.withHosts(cmd, c, func(ctx context.Context, hosts *fleet.Fleet) error { return o.run(ctx, hosts, selection, how) })
		},
	}
	c.add(cmd.Flags())
	o.selection.add(cmd, f, c)
	o.layout.add(cmd)
	return cmd
}

func (o *listOptions) run(ctx context.Context, hosts *fleet.Fleet, selection view.Selection, how format) error {
	inventory, err := waiting(o.Factory, sayAsking, func() (fleet.Inventory, error) { return hosts.Inventory(ctx) })
	if err != nil {
		return err
	}
	o.warn(inventory.Failures)
	now := o.Now()
	records := o.layout.choose(inventory.Records, selection, now)
	if how.isJSON() {
		err = o.writeRecords(how, records)
	} else {
		err = o.Streams.WriteOut([]byte(o.layout.table(records, now, o.styleStates)))
	}
	if err != nil {
		return err
	}
	return incomplete(inventory.Failures)
}

// writeRecords writes records as one array, or as one line each.
func (f *Factory) writeRecords(how format, records []control.Record) error {
	all, err := encodeRecords(records)
	if err != nil {
		return err
	}
	return f.writeEach(how, all)
}

// writeEach writes values as one array, or as one line each.
func (f *Factory) writeEach(how format, values [][]byte) error {
	if how == formatJSON {
		return f.writeJSON(how, array(values))
	}
	for _, value := range values {
		if err := f.writeJSON(how, value); err != nil {
			return err
		}
	}
	return nil
}
