package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// identity tells one reported sandbox from every other: a generation at a host.
// A host that reports an id several times has as many rows, of which the first
// is number 0.
type identity struct {
	host       control.Manifest
	instance   string
	occurrence int
}

// place is where a sandbox is, whatever its generation.
type place struct {
	host control.Manifest
	spot spot
}

// spot is a place at one host. Its parts are kept apart: two keys of different
// tenants can read the same when they are joined.
type spot struct{ scope, thread, agent, call, kind string }

// row is a sandbox in the table.
type row struct {
	id     identity
	record control.Record
	key    string // its logical name
	widths widths
	// ambiguous: more than one row has the instance id, so it names none.
	ambiguous bool
	past      *past // of its place
}

func (r *row) spot() spot {
	return spot{r.record.Scope, r.record.ThreadID, r.record.AgentID, r.record.CallID, r.record.Kind}
}

func (r *row) place() place { return place{r.id.host, r.spot()} }

// widths are how wide the cells are that do not change while the row lasts, in
// terminal columns.
type widths struct {
	state, source, backend, key, kind, process, short, instance int
}

// compare is the protocol's order; rows that are equal in it are told apart by
// their ids.
func (r *row) compare(other *row) int {
	return cmp.Or(
		strings.Compare(r.record.SourceID, other.record.SourceID), strings.Compare(r.key, other.key),
		strings.Compare(r.record.Kind, other.record.Kind), strings.Compare(r.record.InstanceID, other.record.InstanceID),
	)
}

// hostRows makes the rows of a host's answer, in the protocol's order. Ten
// thousand take longer than a frame may, so this is done where the answer is
// waited for, and not where the screen is drawn.
func hostRows(host control.Manifest, records []control.Record) []*row {
	made := make([]row, len(records))
	rows := make([]*row, len(records))
	for i, record := range records {
		r := &made[i]
		*r = row{id: identity{host, record.InstanceID, 0}, record: record, key: record.LogicalName()}
		r.measure()
		rows[i] = r
	}
	order(rows, (*row).compare)
	seen := make(map[string]int, len(rows))
	for _, r := range rows {
		r.id.occurrence = seen[r.record.InstanceID]
		seen[r.record.InstanceID]++
	}
	return rows
}

func (r *row) measure() {
	width := func(text string) int { return view.Width(view.Name(text)) }
	r.widths = widths{
		state: view.Width("● " + stateWord(r)), source: width(r.record.SourceID), backend: width(r.record.Backend),
		key: width(r.key), kind: width(r.record.Kind), process: width(view.Process(r.record.ProcessID)),
		short: view.Width(short(r.record.InstanceID)), instance: width(r.record.InstanceID),
	}
}

// order sorts rows, which most often are in order already.
func order(rows []*row, compare func(a, b *row) int) {
	if !slices.IsSortedFunc(rows, compare) {
		slices.SortStableFunc(rows, compare)
	}
}

// joinRows gives the rows of all hosts in the protocol's order, and marks ids
// that are there more than once.
func joinRows(hosts []*hostState) []*row {
	n := 0
	for _, host := range hosts {
		n += len(host.rows)
	}
	rows := make([]*row, 0, n)
	first := make(map[string]*row, n)
	for _, host := range hosts {
		for _, r := range host.rows {
			rows = append(rows, r)
			other, twice := first[r.record.InstanceID]
			if r.ambiguous = twice; twice {
				other.ambiguous = true
			} else {
				first[r.record.InstanceID] = r
			}
		}
	}
	order(rows, (*row).compare)
	return rows
}

// arrange gives the rows that the query keeps, in the order; those that are
// equal in it stay in the protocol's order.
func arrange(all []*row, query view.Query, by view.Order, now time.Time) []*row {
	rows := make([]*row, 0, len(all))
	for _, r := range all {
		if len(query) == 0 || query.Keeps(&r.record, now) {
			rows = append(rows, r)
		}
	}
	compare := func(a, b *row) int { return by.Compare(&a.record, &b.record) }
	if by.Column.Name == "key" { // it is made of several properties, and known already
		compare = func(a, b *row) int { return strings.Compare(a.key, b.key) }
		if by.Descend {
			compare = func(a, b *row) int { return strings.Compare(b.key, a.key) }
		}
	}
	order(rows, compare)
	return rows
}

// follow finds where a selection is now: the same generation, else the one that
// took its place, else what stands where it stood. Without rows it is -1.
func follow(rows []*row, selected identity, was place, index int) int {
	if i := slices.IndexFunc(rows, func(r *row) bool { return r.id == selected }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(rows, func(r *row) bool { return r.place() == was }); i >= 0 {
		return i
	}
	return min(max(index, 0), len(rows)-1)
}
