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
// A host that reports an id twice has two rows.
type identity struct {
	host       control.Manifest
	instance   string
	occurrence int
}

// place is where a sandbox is, whatever its generation.
type place struct {
	host      control.Manifest
	key, kind string
}

// row is a sandbox in the table.
type row struct {
	id     identity
	record control.Record
	key    string // its logical name
	// ambiguous: more than one row has the instance id, so it names none.
	ambiguous bool
}

func (r *row) place() place {
	return place{r.id.host, r.key, r.record.Kind}
}

// makeRows gives every record of the hosts its identity. The rows are in the
// protocol's order.
func makeRows(hosts []*hostState) []row {
	var rows []row
	count := make(map[string]int)
	for _, host := range hosts {
		for _, record := range host.records {
			rows = append(rows, row{id: identity{host.manifest, record.InstanceID, 0}, record: record, key: record.LogicalName()})
			count[record.InstanceID]++
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			strings.Compare(a.record.SourceID, b.record.SourceID), strings.Compare(a.key, b.key),
			strings.Compare(a.record.Kind, b.record.Kind), strings.Compare(a.record.InstanceID, b.record.InstanceID),
		)
	})
	seen := make(map[identity]int)
	for i := range rows {
		r := &rows[i]
		if r.ambiguous = count[r.record.InstanceID] > 1; r.ambiguous {
			seen[r.id]++
			r.id.occurrence = seen[r.id]
		}
	}
	return rows
}

// arrange gives the rows that the query keeps, in the order; those that are
// equal in it stay in the protocol's order.
func arrange(all []row, query view.Query, order view.Order, now time.Time) []row {
	rows := make([]row, 0, len(all))
	for i := range all {
		if query.Keeps(&all[i].record, now) {
			rows = append(rows, all[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return order.Compare(&a.record, &b.record) })
	return rows
}

// follow finds where a selection is now: the same generation, else the one that
// took its place, else what stands where it stood. Without rows it is -1.
func follow(rows []row, selected identity, was place, index int) int {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id == selected }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(rows, func(r row) bool { return r.place() == was }); i >= 0 {
		return i
	}
	return min(max(index, 0), len(rows)-1)
}
