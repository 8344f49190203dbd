package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// hint is a key and its word in the footer.
type hint struct {
	key, word string
	// rank says which hints go first when there is no room for all: those with
	// the highest.
	rank int
}

// hints are the keys that work now. Those of the table do not while a filter or
// a dialog takes what is typed.
func (m *model) hints() []hint {
	switch {
	case m.dialog != nil:
		return m.dialog.hints(m)
	case m.filtering:
		return []hint{{"enter", "Keep", 0}, {"esc", "Clear", 1}, {"↑↓", "Move", 2}}
	}
	var all []hint
	if l := m.layout(); m.focus != paneTable && l.table.h == 0 {
		all = append(all, hint{"esc", "Back", 0}) // the table is not to be seen
	}
	for _, b := range bindings() {
		if b.hint == "" {
			continue
		}
		key, _, _ := strings.Cut(b.shown, " ")
		all = append(all, hint{key, b.hint, b.rank})
	}
	return all
}

// footer is the line of key hints, as many as fit.
func (m *model) footer(width int) string {
	hints := m.hints()
	byRank := make([]int, len(hints))
	for i := range hints {
		byRank[i] = i
	}
	slices.SortStableFunc(byRank, func(a, b int) int { return cmp.Compare(hints[a].rank, hints[b].rank) })
	fits := make([]bool, len(hints))
	room := width - 1 + hintGap
	for _, i := range byRank {
		if size := view.Width(hints[i].key) + 1 + view.Width(hints[i].word) + hintGap; size <= room {
			fits[i] = true
			room -= size
		}
	}
	var parts []string
	for i, h := range hints {
		if fits[i] {
			parts = append(parts, m.theme.key.Render(h.key)+" "+m.theme.dim.Render(h.word))
		}
	}
	return " " + strings.Join(parts, strings.Repeat(" ", hintGap))
}

// hintGap stands between two hints.
const hintGap = 2
