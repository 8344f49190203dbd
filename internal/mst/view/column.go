package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// Column is one property of a sandbox as people see it.
type Column struct {
	// Name is what an operator types.
	Name string
	// Title is the word above the column.
	Title string
	// About is what help says of it.
	About string
	// raw is the value as the host sent it.
	raw func(r *control.Record, now time.Time) string
	// order compares two records by this property; nil for the order of the
	// text.
	order func(a, b *control.Record) int
}

// Cell is the property of r on one safe line.
func (c Column) Cell(r *control.Record, now time.Time) string {
	return Name(c.raw(r, now))
}

// Exact is the property as the host sent it, and whether that is what Cell
// shows.
func (c Column) Exact(r *control.Record, now time.Time) (value string, shown bool) {
	value = c.raw(r, now)
	return value, value == Name(value)
}

// columns are all columns, in the order in which help lists them.
var columns = []Column{
	{"source", "SOURCE", "the host that reports it", text(func(r *control.Record) string { return r.SourceID }), nil},
	{"backend", "BACKEND", "the backend that made it", text(func(r *control.Record) string { return r.Backend }), nil},
	{"state", "STATE", "what it is doing", text(func(r *control.Record) string { return string(r.State) }), byState},
	{"key", "KEY", "scope/thread/agent, and /call when it has one", text(func(r *control.Record) string { return r.LogicalName() }), nil},
	{"scope", "SCOPE", "the scope of its key", text(func(r *control.Record) string { return r.Scope }), nil},
	{"thread", "THREAD", "the conversation", text(func(r *control.Record) string { return r.ThreadID }), nil},
	{"agent", "AGENT", "the agent of its key", text(func(r *control.Record) string { return r.AgentID }), nil},
	{"call", "CALL", "the call it belongs to", text(func(r *control.Record) string { return r.CallID }), nil},
	{"kind", "KIND", "the sort of sandbox", text(func(r *control.Record) string { return r.Kind }), nil},
	{"signal", "SIGNAL AGE", "time since the last lifecycle signal", func(r *control.Record, now time.Time) string {
		return Age(r.LastActivityAt.Age(now))
	}, func(a, b *control.Record) int { return cmp.Compare(b.LastActivityAt, a.LastActivityAt) }},
	{"age", "AGE", "time since this generation was first seen", func(r *control.Record, now time.Time) string {
		return Age(r.CreatedAt.Age(now))
	}, func(a, b *control.Record) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) }},
	{"process", "PROCESS", "its worker's process", text(func(r *control.Record) string { return Process(r.ProcessID) }), func(a, b *control.Record) int {
		return cmp.Compare(a.ProcessID, b.ProcessID)
	}},
	{"contract", "CONTRACT", "the execution contract", text(func(r *control.Record) string { return cmp.Or(r.ExecutionContract, "-") }), nil},
	{"egress", "EGRESS", "the hosts it may reach", text(Egress), nil},
	{"instance", "INSTANCE", "its generation's id", text(func(r *control.Record) string { return r.InstanceID }), nil},
}

func text(of func(*control.Record) string) func(*control.Record, time.Time) string {
	return func(r *control.Record, _ time.Time) string { return of(r) }
}

func byState(a, b *control.Record) int {
	states := control.States()
	return cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State))
}

// Process is a process id, and a dash for none.
func Process(id int) string {
	if id == 0 {
		return "-"
	}
	return strconv.Itoa(id)
}

// Egress are the hosts that a sandbox may reach; "closed" when there are none.
func Egress(r *control.Record) string {
	if len(r.EgressTargets) == 0 {
		return "closed"
	}
	return strings.Join(r.EgressTargets, ", ")
}

// The columns of the tables that name none.
var (
	defaultColumns = []string{"source", "backend", "state", "key", "kind", "signal", "instance"}
	wideColumns    = []string{"source", "backend", "state", "key", "kind", "signal", "age", "process", "contract", "egress", "instance"}
)

// DefaultColumns are those of a table; wide has more.
func DefaultColumns(wide bool) []Column {
	names := defaultColumns
	if wide {
		names = wideColumns
	}
	return mustColumns(names)
}

func mustColumns(names []string) []Column {
	list := make([]Column, len(names))
	for i, name := range names {
		list[i], _ = ColumnNamed(name)
	}
	return list
}

// Columns are all columns there are.
func Columns() []Column { return slices.Clone(columns) }

// ColumnNames are the names of all columns.
func ColumnNames() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return names
}

// otherNames are those under which flags and people know some columns.
var otherNames = map[string]string{"host": "source", "id": "instance", "pid": "process"}

// ColumnNamed finds a column by its name, or by another one that it is known
// by.
func ColumnNamed(name string) (Column, error) {
	if known, ok := otherNames[name]; ok {
		name = known
	}
	for _, c := range columns {
		if c.Name == name {
			return c, nil
		}
	}
	return Column{}, fmt.Errorf("%q is no column; there are %s", name, strings.Join(ColumnNames(), ", "))
}

// ParseColumns reads a list of names separated by commas. None may be there
// twice.
func ParseColumns(list string) ([]Column, error) {
	var chosen []Column
	for name := range strings.SplitSeq(list, ",") {
		c, err := ColumnNamed(strings.ToLower(strings.TrimSpace(name)))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(chosen, func(other Column) bool { return other.Name == c.Name }) {
			return nil, fmt.Errorf("column %q is there twice", c.Name)
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// Order is an order of sandboxes: by a column, upwards or downwards.
type Order struct {
	Column  Column
	Descend bool
}

// ParseOrder reads a column's name; a dash before it turns the order round.
func ParseOrder(text string) (Order, error) {
	name, descend := strings.CutPrefix(strings.ToLower(strings.TrimSpace(text)), "-")
	c, err := ColumnNamed(name)
	return Order{c, descend}, err
}

// Compare compares two records by the column alone.
func (o Order) Compare(a, b *control.Record) int {
	compare := o.Column.order
	if compare == nil {
		compare = func(a, b *control.Record) int {
			return strings.Compare(o.Column.raw(a, time.Time{}), o.Column.raw(b, time.Time{}))
		}
	}
	if o.Descend {
		return compare(b, a)
	}
	return compare(a, b)
}

// Sort sorts records. Equal ones have the protocol's order, so that a table does
// not jump between two looks.
func (o Order) Sort(records []control.Record) {
	slices.SortFunc(records, func(a, b control.Record) int { return cmp.Or(o.Compare(&a, &b), a.Compare(b)) })
}
