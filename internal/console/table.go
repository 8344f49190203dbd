package console

import (
	"errors"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// column is a column of the live table.
type column struct {
	name, title string
	// least is how narrow it may become; zero keeps it as wide as its cells.
	least int
	// firm columns become narrower after all others.
	firm bool
	// spare columns go first when there is no room, those with the highest
	// number first; zero ones stay.
	spare int
	cell  func(m *model, r *row) string
	// size is how wide the column wants to be for all rows that are shown.
	size func(m *model) int

	x, width int // where it stands within the pane
}

// shortID is how much of an id is shown at a glance, in terminal columns.
const shortID = 8

// short is what identifies a generation at a glance.
func short(instanceID string) string { return view.Start(view.Name(instanceID), shortID) }

func property(name string) func(*model, *row) string {
	c, err := view.ColumnNamed(name)
	if err != nil {
		return func(*model, *row) string { return "" }
	}
	return func(m *model, r *row) string { return c.Cell(&r.record, m.now()) }
}

func stateWord(r *row) string { return strings.ToUpper(view.Name(string(r.record.State))) }

func stateCell(m *model, r *row) string {
	sign, _ := m.theme.state(r.record.State)
	return sign + " " + stateWord(r)
}

// historyWidth is the room for a history in the table.
const historyWidth = 12

// widest is the size of a column whose cells are as wide as of says.
func widest(of func(*row) int) func(*model) int {
	return func(m *model) int {
		size := 0
		for _, r := range m.rows {
			size = max(size, of(r))
		}
		return size
	}
}

// oldest is the size of a column of ages: the longest text is that of the
// oldest row, but for those of three signs such as 59m.
func oldest(of func(*row) control.Timestamp) func(*model) int {
	return func(m *model) int {
		if len(m.rows) == 0 {
			return 0
		}
		first := of(m.rows[0])
		for _, r := range m.rows {
			first = min(first, of(r))
		}
		return max(len("59m"), len(view.Age(first.Age(m.now()))))
	}
}

// tableColumns are the columns of the table.
func tableColumns(wide bool) []column {
	columns := []column{
		{name: "state", title: "STATE", cell: stateCell, size: widest(func(r *row) int { return r.widths.state })},
		{name: "source", title: "SOURCE", least: 6, spare: 2, cell: property("source"), size: widest(func(r *row) int { return r.widths.source })},
		{name: "key", title: "MAF KEY", least: 14, cell: property("key"), size: widest(func(r *row) int { return r.widths.key })},
		{name: "kind", title: "KIND", least: 6, spare: 3, cell: property("kind"), size: widest(func(r *row) int { return r.widths.kind })},
		{name: "age", title: "AGE", spare: 1, cell: property("age"), size: oldest(func(r *row) control.Timestamp { return r.record.CreatedAt })},
	}
	if !wide {
		return append(columns, column{
			name: "instance", title: "INSTANCE", cell: func(_ *model, r *row) string { return short(r.record.InstanceID) },
			size: widest(func(r *row) int { return r.widths.short }),
		})
	}
	return append(columns,
		column{name: "signal", title: "SIGNAL", spare: 4, cell: property("signal"), size: oldest(func(r *row) control.Timestamp { return r.record.LastActivityAt })},
		column{name: "backend", title: "BACKEND", least: 6, spare: 6, cell: property("backend"), size: widest(func(r *row) int { return r.widths.backend })},
		column{name: "process", title: "PROCESS", spare: 7, cell: property("process"), size: widest(func(r *row) int { return r.widths.process })},
		column{
			name: "history", title: "HISTORY", spare: 5, cell: func(_ *model, r *row) string { return sparkline(r.past.looks, historyWidth) },
			size: widest(func(r *row) int { return min(historyWidth, r.past.signs()) }),
		},
		column{name: "instance", title: "INSTANCE", least: shortID, firm: true, cell: property("instance"), size: widest(func(r *row) int { return r.widths.instance })},
	)
}

// maxFirm is the room for a whole id, such as a SHA-256 in hexadecimal. A longer
// one would take the place of all other columns.
const maxFirm = 64

// columnGap stands between two columns, and at both ends of a row one space.
const columnGap = 2

// columns are the columns as they stand now.
func (m *model) columns() []column {
	columns := tableColumns(m.wide)
	if len(m.natural) != len(columns) {
		m.natural = make([]int, len(columns))
		for i, c := range columns {
			m.natural[i] = max(view.Width(c.title)+1, c.size(m)) // the sign of the order
			if c.firm {
				m.natural[i] = min(m.natural[i], maxFirm)
			}
		}
	}
	for i := range columns {
		columns[i].width = m.natural[i]
	}
	return fit(columns, m.layout().table.w-frame-2)
}

// fit makes columns narrower, and drops those that can be spared, until they
// fit into the width.
func fit(columns []column, width int) []column {
	for {
		over := (len(columns) - 1) * columnGap
		for _, c := range columns {
			over += c.width
		}
		over -= width
		if over <= 0 {
			break
		}
		room := 0
		for _, c := range columns {
			if c.least > 0 && !c.firm {
				room += max(0, c.width-c.least)
			}
		}
		spare := -1
		for i, c := range columns {
			if c.spare > 0 && (spare < 0 || c.spare > columns[spare].spare) {
				spare = i
			}
		}
		if room >= over || spare < 0 {
			shrink(columns, over)
			break
		}
		columns = append(columns[:spare:spare], columns[spare+1:]...)
	}
	x := 0
	for i := range columns {
		columns[i].x = x
		x += columns[i].width + columnGap
	}
	return columns
}

// shrink takes room from the widest column that may become narrower, one by
// one.
func shrink(columns []column, over int) {
	for _, firm := range []bool{false, true} {
		for over > 0 {
			widest := -1
			for i, c := range columns {
				if c.firm == firm && c.least > 0 && c.width > c.least && (widest < 0 || c.width > columns[widest].width) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			columns[widest].width--
			over--
		}
	}
}

// tableLines is the content of the table's pane.
func (m *model) tableLines(width, height int) []string {
	columns := m.columns()
	var head strings.Builder
	for i, c := range columns {
		if i > 0 {
			head.WriteString(strings.Repeat(" ", columnGap))
		}
		title := c.title
		if c.name == m.order.Column.Name {
			title += map[bool]string{false: "▲", true: "▼"}[m.order.Descend]
		}
		head.WriteString(view.Pad(view.Cut(title, c.width), c.width))
	}
	lines := []string{m.theme.dim.Render(view.Pad(" "+view.Cut(head.String(), width-1), width))}
	if len(m.rows) == 0 {
		return append(lines, m.emptyLines(width)...)
	}
	last := min(len(m.rows), m.offset+height-1)
	for i := m.offset; i < last; i++ {
		lines = append(lines, m.rowLine(columns, i, width))
	}
	return lines
}

func (m *model) rowLine(columns []column, index, width int) string {
	r := m.rows[index]
	selected := index == m.index
	var b strings.Builder
	used := 1
	if selected {
		b.WriteString("▸") // colour is not alone
	} else {
		b.WriteString(" ")
	}
	for i, c := range columns {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", columnGap))
			used += columnGap
		}
		cell := view.Pad(view.Cut(c.cell(m, r), c.width), c.width)
		used += c.width
		// A selected row has one look from end to end.
		if c.name == "state" && !selected {
			_, style := m.theme.state(r.record.State)
			cell = style.Render(cell)
		}
		b.WriteString(cell)
	}
	b.WriteString(strings.Repeat(" ", max(0, width-used)))
	if !selected {
		return b.String()
	}
	style := m.theme.selected
	if m.focus != paneTable {
		style = m.theme.selectedBlur
	}
	return style.Render(b.String())
}

func (m *model) emptyLines(width int) []string {
	var text string
	switch {
	case len(m.all) > 0:
		text = "No sandbox matches the filter. Esc takes it away."
	case !m.looked || m.anyUnanswered():
		text = "Looking for sandboxes…"
	case m.err != nil:
		text = "Hosts cannot be looked for: " + view.Sentence(m.err.Error()) + "." // here there is room for a path
		if errors.Is(m.err, control.ErrUnsafeDirectory) {
			text += " Nobody but you may have access to that folder."
		}
	case len(m.hosts) > 0 && m.unavailable() == len(m.hosts):
		text = "No host answers; the activity log says why."
		if m.layout().log.h == 0 {
			text += " Press l for it."
		}
	case len(m.hosts) > 0:
		text = "No live sandboxes. They appear here as soon as a host has one."
	default:
		text = "No live sandboxes. Start an opted-in MAF host or run mst --demo."
	}
	lines := []string{""}
	for _, line := range wrap(text, width-2) {
		lines = append(lines, " "+m.theme.dim.Render(line))
	}
	return lines
}

func (m *model) anyUnanswered() bool {
	for _, host := range m.hosts {
		if !host.answered {
			return true
		}
	}
	return false
}

// detailLabel is the width of the labels in the details.
const detailLabel = 12

// airy is how many lines the details must have for empty ones among them.
const airy = 12

// details are the lines of the selected sandbox.
func (m *model) details(width int) []string {
	r := m.current()
	if r == nil {
		return nil
	}
	now := m.now()
	sign, style := m.theme.state(r.record.State)
	lines := []string{" " + style.Render(sign+"━━ "+stateWord(r))}
	if m.layout().detail.h-frame >= airy {
		lines = []string{"", lines[0], ""}
	}
	looks := r.past.looks
	disposal := "available"
	if r.ambiguous {
		disposal = "refused: several sandboxes have this id"
	}
	for _, field := range []struct{ label, value string }{
		{"SOURCE", r.record.SourceID},
		{"SCOPE", r.record.Scope},
		{"THREAD", r.record.ThreadID},
		{"AGENT", r.record.AgentID},
		{"CALL", r.record.CallID},
		{"INSTANCE", r.record.InstanceID},
		{"KIND", r.record.Kind},
		{"BACKEND", r.record.Backend},
		{"PROCESS", processText(r.record.ProcessID)},
		{"AGE", view.Age(r.record.CreatedAt.Age(now))},
		{"LAST SIGNAL", view.Age(r.record.LastActivityAt.Age(now)) + " ago"},
		{"HISTORY", historyText(looks, width-detailLabel-2)},
		{"CONTRACT", r.record.ExecutionContract},
		{"EGRESS", view.Egress(&r.record)},
		{"DISPOSAL", disposal},
	} {
		value := view.Name(field.value)
		if value == "" && field.label == "CALL" {
			continue // a sandbox that a conversation shares has none
		}
		if value == "" {
			value = "—"
		}
		room := width - detailLabel - 2
		if view.Width(value) > room {
			// An id or key is read, and copied, best in one piece.
			lines = append(lines, " "+m.theme.dim.Render(field.label))
			for _, part := range wrap(value, width-1) {
				lines = append(lines, " "+part)
			}
			continue
		}
		lines = append(lines, " "+m.theme.dim.Render(view.Pad(field.label, detailLabel))+value)
	}
	return lines
}

func processText(id int) string {
	if id == 0 {
		return "—"
	}
	return view.Process(id)
}

func historyText(looks []look, width int) string {
	text := sparkline(looks, min(maxHistory, width))
	switch n := signals(looks); n {
	case 0:
		return text
	case 1:
		return text + " 1 signal"
	default:
		return text + " " + plural(n, "signal")
	}
}

// clock is the time of day in the log.
func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// toneStyle is the look of a message.
func (t theme) toneStyle(of tone) lipgloss.Style {
	switch of {
	case toneGood:
		return t.good
	case toneWarn:
		return t.warn
	case toneBad:
		return t.bad
	}
	return t.text
}

// conversation counts the sandboxes of a conversation and their hosts.
func (m *model) conversation(scope, thread string) (sandboxes, hosts int) {
	seen := make(map[control.Manifest]bool)
	for _, r := range m.all {
		if r.record.Scope == scope && r.record.ThreadID == thread {
			sandboxes++
			seen[r.id.host] = true
		}
	}
	return sandboxes, len(seen)
}
