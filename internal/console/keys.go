package console

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// binding is a key and what it does. The table of them is all there is: keys
// are looked up in it, and the help and the footer are made from it.
type binding struct {
	keys  []string // as Bubble Tea names them; the first is shown
	shown string   // how the key is written for people
	group string
	help  string
	// hint is the word in the footer; keys without one are in the help only.
	hint string
	rank int // of the hint
	do   func(*model) tea.Cmd
}

// bindings is the key table. It is made at each call: it names functions that
// name it.
func bindings() []binding {
	return []binding{
		{[]string{"r"}, "r", "Act", "look at all hosts now", "Refresh", 1, (*model).refreshAsked},
		{[]string{"d"}, "d", "Act", "dispose of the selected sandbox, after asking", "Dispose", 1, (*model).openDispose},
		{[]string{"p"}, "p", "Act", "purge the selected sandbox's whole conversation, after asking", "Purge", 1, (*model).openPurge},
		{[]string{"y"}, "y", "Act", "copy the instance id to the terminal's clipboard", "Copy", 6, (*model).copyID},
		{[]string{"/"}, "/", "Look", "filter: words, !word, field:value", "Filter", 2, (*model).openFilter},
		{[]string{"s"}, "s", "Look", "sort by the next column", "Sort", 4, func(m *model) tea.Cmd { m.sortNext(); return nil }},
		{[]string{"S"}, "S", "Look", "turn the order round", "", 0, func(m *model) tea.Cmd {
			m.order.Descend = !m.order.Descend
			m.arrange()
			return nil
		}},
		{[]string{"w"}, "w", "Look", "wide table: more columns, full ids", "Wide", 5, func(m *model) tea.Cmd {
			m.wide = !m.wide
			m.clamp()
			return nil
		}},
		{[]string{"space"}, "space", "Look", "pause, or go on", "Pause", 7, func(m *model) tea.Cmd {
			if m.paused = !m.paused; !m.paused {
				return m.refreshNow()
			}
			return nil
		}},
		{[]string{"l"}, "l", "Look", "show or hide the activity log", "Log", 8, func(m *model) tea.Cmd { m.toggleLog(); return nil }},
		{[]string{"tab"}, "tab", "Move", "to the next pane", "", 0, func(m *model) tea.Cmd { m.cycleFocus(1); return nil }},
		{[]string{"shift+tab"}, "shift+tab", "Move", "to the pane before", "", 0, func(m *model) tea.Cmd { m.cycleFocus(-1); return nil }},
		{[]string{"enter"}, "enter", "Move", "to the details, and back", "", 0, func(m *model) tea.Cmd {
			if m.focus == paneTable {
				m.setFocus(paneDetail)
			} else {
				m.setFocus(paneTable)
			}
			return nil
		}},
		{[]string{"up", "k"}, "↑ k", "Move", "up", "", 0, func(m *model) tea.Cmd { m.move(-1); return nil }},
		{[]string{"down", "j"}, "↓ j", "Move", "down", "", 0, func(m *model) tea.Cmd { m.move(1); return nil }},
		{[]string{"pgup", "ctrl+b"}, "pgup ctrl+b", "Move", "a page up", "", 0, func(m *model) tea.Cmd { m.move(-m.page()); return nil }},
		{[]string{"pgdown", "ctrl+f"}, "pgdn ctrl+f", "Move", "a page down", "", 0, func(m *model) tea.Cmd { m.move(m.page()); return nil }},
		{[]string{"home", "g"}, "home g", "Move", "to the first", "", 0, func(m *model) tea.Cmd { m.move(-farAway); return nil }},
		{[]string{"end", "G"}, "end G", "Move", "to the last", "", 0, func(m *model) tea.Cmd { m.move(farAway); return nil }},
		{[]string{"?"}, "?", "Program", "this help", "Help", 0, func(m *model) tea.Cmd { m.dialog = &helpDialog{}; return nil }},
		{[]string{"esc"}, "esc", "Program", "back: take the filter away, leave a pane", "", 0, func(m *model) tea.Cmd { m.back(); return nil }},
		{[]string{"q", "ctrl+c"}, "q ctrl+c", "Program", "quit", "Quit", 3, func(*model) tea.Cmd { return tea.Quit }},
		// What other programs write to the terminal stays on the screen otherwise.
		{[]string{"ctrl+l"}, "ctrl+l", "Program", "draw the screen anew", "", 0, func(*model) tea.Cmd { return tea.ClearScreen }},
		{[]string{"ctrl+z"}, "ctrl+z", "Program", "suspend, until fg", "", 0, func(m *model) tea.Cmd { return m.suspend }},
	}
}

// farAway is further than any list goes.
const farAway = 1 << 30

// pressed gives a key to whoever it is for.
func (m *model) pressed(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	// These always work: nobody is to be locked in, or to act on a screen that
	// cannot be read.
	switch name {
	case "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return m.suspend
	case "ctrl+l":
		return tea.ClearScreen
	}
	switch {
	case m.layout().tooSmall:
		// What cannot be seen is not acted on.
		if name == "q" {
			return tea.Quit
		}
		return nil
	case m.dialog != nil:
		return m.dialog.press(m, msg)
	case m.filtering:
		return m.typeFilter(msg)
	}
	for _, b := range bindings() {
		if slices.Contains(b.keys, name) {
			return b.do(m)
		}
	}
	return nil
}

// pasted takes pasted text where text is typed. Everywhere else it is dropped:
// a paste is no keys.
func (m *model) pasted(msg tea.PasteMsg) tea.Cmd {
	switch {
	case m.layout().tooSmall:
	case m.dialog != nil:
		return m.dialog.paste(m, msg)
	case m.filtering:
		return m.typeFilter(msg)
	}
	return nil
}

func (m *model) openFilter() tea.Cmd {
	m.filtering = true
	m.setFocus(paneTable)
	return m.filter.Focus()
}

// typeFilter edits the filter, which works while it is typed.
func (m *model) typeFilter(msg tea.Msg) tea.Cmd {
	if key, ok := msg.(tea.KeyPressMsg); ok {
		switch key.String() {
		case "esc":
			m.filter.SetValue("")
			fallthrough
		case "enter":
			m.filtering = false
			m.filter.Blur()
			m.setQuery()
			return nil
		case "up":
			m.move(-1)
			return nil
		case "down":
			m.move(1)
			return nil
		}
	}
	var cmd tea.Cmd
	m.filter, cmd = m.filter.Update(msg)
	m.setQuery()
	return cmd
}

func (m *model) setQuery() {
	m.query = view.ParseQuery(m.filter.Value())
	m.arrange()
}

// back undoes the outermost thing that was opened.
func (m *model) back() {
	switch {
	case m.focus != paneTable:
		m.setFocus(paneTable)
	case m.filter.Value() != "":
		m.filter.SetValue("")
		m.setQuery()
	}
}

func (m *model) copyID() tea.Cmd {
	r := m.current()
	if r == nil {
		m.say(toneWarn, noSelection)
		return nil
	}
	if !view.IsWord(r.record.InstanceID) {
		// Pasted into a shell, a line break alone would run what stands before it.
		m.say(toneWarn, "Not copied: this id has more than letters, digits and . _ : - in it. Where it is pasted that could be obeyed.")
		return nil
	}
	m.say(toneInfo, fmt.Sprintf("Copied %s, if the terminal allows that (OSC 52).", r.record.InstanceID))
	return tea.SetClipboard(r.record.InstanceID)
}

// sortNext goes to the next column that the table shows.
func (m *model) sortNext() {
	names := m.sortable()
	m.sortBy(names[(slices.Index(names, m.order.Column.Name)+1)%len(names)])
}

// sortBy sorts by a column; the one that is in use already is turned round.
func (m *model) sortBy(name string) {
	if name == m.order.Column.Name {
		m.order.Descend = !m.order.Descend
	} else if order, err := view.ParseOrder(name); err == nil {
		m.order = order
	}
	m.arrange()
}

// sortable are the names of the columns that one can sort by now.
func (m *model) sortable() []string {
	var names []string
	for _, c := range m.columns() {
		if _, err := view.ColumnNamed(c.name); err == nil {
			names = append(names, c.name)
		}
	}
	return names
}

func (m *model) cycleFocus(step int) {
	panes := []pane{paneTable, paneDetail}
	if m.showLog {
		panes = append(panes, paneLog)
	}
	at := max(0, slices.Index(panes, m.focus))
	m.setFocus(panes[(at+step+len(panes))%len(panes)])
}

// setFocus gives a pane the focus, and its place where there is no room for all.
func (m *model) setFocus(p pane) {
	m.focus = p
	m.clamp()
}

// toggleLog shows the log, or hides it: where there is no room for it beside the
// others it is there as long as it has the focus.
func (m *model) toggleLog() {
	shown := m.layout().log.h > 0
	m.showLog = !shown || !m.logFits()
	switch {
	case shown && m.focus == paneLog:
		m.focus = paneTable
	case !shown && !m.logFits():
		m.focus = paneLog
	}
	m.clamp()
}

// move moves in the pane that has the focus.
func (m *model) move(by int) { m.moveIn(m.focus, by) }

func (m *model) moveIn(p pane, by int) {
	switch p {
	case paneTable:
		if len(m.rows) > 0 {
			m.choose(min(max(m.index+by, 0), len(m.rows)-1))
		}
	case paneDetail:
		l := m.layout()
		most := max(0, len(m.details(l.detail.w-frame))-(l.detail.h-frame))
		m.detailScroll = min(max(m.detailScroll+by, 0), most)
	case paneLog:
		l := m.layout().log
		most := max(0, m.logHeight(l.w-frame)-(l.h-frame))
		m.logScroll = min(max(m.logScroll-by, 0), most)
	}
}

// page is how far a page key goes.
func (m *model) page() int {
	l := m.layout()
	switch m.focus {
	case paneDetail:
		return max(1, l.detail.h-frame-1)
	case paneLog:
		return max(1, l.log.h-frame-1)
	}
	return max(1, l.table.h-tableFrame-1)
}
