package console

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// View is the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.WindowTitle = "mst"
	return v
}

// screen is all lines of the screen.
func (m *model) screen() string {
	if m.width <= 0 || m.height <= 0 {
		return "" // no size is known yet
	}
	l := m.layout()
	if l.tooSmall {
		return m.smallNote()
	}
	lines := make([]string, m.height)
	lines[0] = m.header(m.width)
	put := func(r rect, title string, focus bool, content []string) {
		for i, line := range m.panel(r, title, focus, content) {
			lines[r.y+i] += line
		}
	}
	if l.table.h > 0 {
		put(l.table, m.tableTitle(), m.focus == paneTable, m.tableLines(l.table.w-frame, l.table.h-frame))
	}
	if l.detail.h > 0 {
		content := m.details(l.detail.w - frame)
		if content == nil {
			content = []string{"", " " + m.theme.dim.Render("Nothing is selected.")}
		}
		from := min(m.detailScroll, max(0, len(content)-(l.detail.h-frame)))
		title := "PHYSICAL SANDBOX"
		if len(content) > l.detail.h-frame {
			title += " ↑↓"
		}
		put(l.detail, title, m.focus == paneDetail, content[from:])
	}
	if l.log.h > 0 {
		title := "ACTIVITY"
		// No entry has less than a line: a long log is not wrapped for this.
		if room := l.log.h - frame; len(m.log) > room || m.logHeight(l.log.w-frame) > room {
			title += " ↑↓"
		}
		put(l.log, title, m.focus == paneLog, m.logLines(l.log.w-frame, l.log.h-frame))
	}
	lines[l.status] = m.statusLine(m.width)
	lines[l.footer] = m.footer(m.width)
	screen := strings.Join(lines, "\n")
	if m.dialog == nil {
		return screen
	}
	box, at := m.dialogBox()
	return lipgloss.NewCompositor(
		lipgloss.NewLayer(screen),
		lipgloss.NewLayer(strings.Join(box, "\n")).X(at.x).Y(at.y).Z(1),
	).Render()
}

func (m *model) smallNote() string {
	note := fmt.Sprintf("mst needs %d×%d; this is %d×%d. q quits.", minWidth, minHeight, m.width, m.height)
	lines := wrap(note, m.width)
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

func (m *model) tableTitle() string {
	title := "LIVE INSTANCES"
	if len(m.query) > 0 {
		title += fmt.Sprintf(" %d of %d", len(m.rows), len(m.all))
	} else if len(m.rows) > 0 {
		title += fmt.Sprintf(" %d", len(m.rows))
	}
	return title
}

// edges are the signs that a border is made of.
type edges struct{ topLeft, topRight, bottomLeft, bottomRight, across, side string }

// The pane that has the focus has a heavy border: colour is not alone.
var (
	lightEdges = edges{"╭", "╮", "╰", "╯", "─", "│"}
	heavyEdges = edges{"┏", "┓", "┗", "┛", "━", "┃"}
)

// panel draws a border around content, exactly as large as the rectangle.
func (m *model) panel(r rect, title string, focus bool, content []string) []string {
	border, e := m.theme.border, lightEdges
	if focus {
		border, e = m.theme.borderFocus, heavyEdges
	}
	inner := r.w - frame
	title = view.Cut(title, max(0, inner-3))
	lines := make([]string, 0, r.h)
	lines = append(lines, border.Render(e.topLeft+e.across+" ")+m.theme.bold.Render(title)+
		border.Render(" "+strings.Repeat(e.across, max(0, inner-3-view.Width(title)))+e.topRight))
	side := border.Render(e.side)
	for i := range r.h - frame {
		var line string
		if i < len(content) {
			line = content[i]
		}
		lines = append(lines, side+view.Pad(view.Cut(line, inner), inner)+side)
	}
	return append(lines, border.Render(e.bottomLeft+strings.Repeat(e.across, inner)+e.bottomRight))
}

// header names the program, every host with its health, and the time.
func (m *model) header(width int) string {
	title := " MST"
	right := m.now().Format("15:04") + " "
	if m.paused {
		right = "PAUSED " + right
	}
	room := width - view.Width(title) - view.Width(right) - 2
	if sub := " MAF sandbox signals"; room > 2*len(sub) {
		title += sub
		room -= len(sub)
	}
	line := m.theme.accent.Render(title) + "  " + m.healthChips(room-2)
	gap := max(1, width-view.Width(line)-view.Width(right))
	style := m.theme.dim
	if m.paused {
		style = m.theme.warn
	}
	return view.Cut(line+strings.Repeat(" ", gap)+style.Render(right), width)
}

// healthChips are the hosts in one line, those that are unavailable first: they
// are what must be seen when there is no room for all.
func (m *model) healthChips(width int) string {
	hosts := m.sortedHosts()
	var chips []string
	used, left := 0, len(hosts)
	for _, wanted := range []bool{true, false} {
		for _, host := range hosts {
			if host.failed() != wanted {
				continue
			}
			sign, style := "●", m.theme.good
			switch {
			case host.failed():
				sign, style = "✗", m.theme.bad
			case !host.answered:
				sign, style = "…", m.theme.warn
			}
			name := view.Cut(view.Name(host.manifest.SourceID), 24)
			chip := fmt.Sprintf("%s %d", name, len(host.rows))
			switch {
			case host.failed():
				chip = name + " unavailable"
			case !host.answered:
				chip = name // nobody knows yet how many it has
			}
			size := view.Width(chip) + 4
			if used+size > width-5 && left > 1 || used+size > width {
				continue
			}
			used += size
			left--
			chips = append(chips, style.Render(sign)+" "+chip)
		}
	}
	if left > 0 {
		chips = append(chips, m.theme.dim.Render(fmt.Sprintf("+%d", left)))
	}
	return strings.Join(chips, "  ")
}

// statusLine is the line above the key hints: the filter while it is typed,
// else a message, else what there is.
func (m *model) statusLine(width int) string {
	if m.filtering {
		m.filter.SetWidth(max(1, width-4))
		return " " + m.filter.View()
	}
	text, style := m.statusText()
	text = view.Cut(text, width-2)
	line := " " + style.Render(text)
	// The table's title says too that a filter is at work.
	if room := width - 2 - view.Width(text) - 2; m.filter.Value() != "" && room >= leastFilter {
		line += m.theme.dim.Render("  " + view.Cut("/"+view.Name(m.filter.Value()), room))
	}
	return line
}

// leastFilter is the least room in which the filter is shown beside a message.
const leastFilter = 8

func (m *model) statusText() (string, lipgloss.Style) {
	switch {
	case m.err != nil:
		return "Control endpoint unavailable · " + view.Sentence(m.err.Error()), m.theme.bad
	case m.notice.text != "" && m.now().Before(m.notice.until):
		return m.notice.text, m.theme.toneStyle(m.notice.tone)
	case m.doing != "":
		return m.doing, m.theme.text
	case !m.looked:
		return "Looking for hosts…", m.theme.dim
	case m.wanted:
		if waiting := m.waiting(); len(waiting) == 1 {
			return "Waiting for " + view.Name(waiting[0].manifest.SourceID) + "…", m.theme.dim
		}
		return "Looking at all hosts…", m.theme.dim
	}
	text := plural(len(m.all), "live instance")
	if m.paused {
		text += " · paused"
	}
	text += " · " + m.freshness()
	if n := m.unavailable(); n > 0 {
		text += " · " + plural(n, "host") + " unavailable"
		if m.layout().log.h == 0 {
			text += " (l says why)"
		}
		return text, m.theme.warn
	}
	return text, m.theme.text
}

// freshness says how old the oldest answer on the screen is: a host that is slow
// keeps its old rows for as long.
func (m *model) freshness() string {
	now := m.now()
	oldest := now
	for _, host := range m.hosts {
		if host.answered && host.at.Before(oldest) {
			oldest = host.at
		}
	}
	fresh := 2 * m.interval
	if m.paused {
		fresh = time.Second - 1 // nothing will make it newer
	}
	if passed := now.Sub(oldest); passed > fresh {
		return "refreshed " + view.Age(passed) + " ago"
	}
	return "refreshed just now"
}

// logLines is the content of the log's pane.
func (m *model) logLines(width, height int) []string {
	if len(m.log) == 0 {
		return []string{" " + m.theme.dim.Render("What you do, and what hosts answer, is written here.")}
	}
	scroll := 0
	if m.logScroll > 0 {
		scroll = min(m.logScroll, max(0, m.logHeight(width)-height))
	}
	// Only what is seen is made: there is a frame for every key.
	var lines []string
	for i := len(m.log) - 1; i >= 0 && len(lines) < height+scroll; i-- {
		lines = append(m.entryLines(&m.log[i], width), lines...)
	}
	end := len(lines) - scroll
	return lines[max(0, end-height):end]
}

// logHeight is how many lines the whole log has, for a pane's width.
func (m *model) logHeight(width int) int {
	n := 0
	for i := range m.log {
		n += len(m.log[i].wrapped(width))
	}
	return n
}

// stamp is the width of an entry's moment.
const stamp = len("15:04:05 ")

// entryLines are the lines of an entry.
func (m *model) entryLines(e *entry, width int) []string {
	style := m.theme.toneStyle(e.tone)
	parts := e.wrapped(width)
	lines := make([]string, len(parts))
	for i, part := range parts {
		at := strings.Repeat(" ", stamp)
		if i == 0 {
			at = m.theme.dim.Render(clock(e.at)) + " "
		}
		lines[i] = " " + at + style.Render(part)
	}
	return lines
}

// maxEntry bounds the lines of an entry: hosts' messages can be long.
const maxEntry = 3

// wrapped is the text in lines for a pane's width: what a host says is often
// worth reading to its end. It is kept, for hosts decide how long it takes.
func (e *entry) wrapped(width int) []string {
	if e.parts == nil || e.width != width {
		e.width, e.parts = width, wrapEntry(e.text, max(1, width-stamp-2))
	}
	return e.parts
}

func wrapEntry(text string, room int) []string {
	// More than can be seen: no character of UTF-8 has more than four bytes, and
	// those that take no cell of their own are few. One that is cut in two is
	// not shown.
	head := text[:min(len(text), (maxEntry+2)*room*utf8.UTFMax)]
	if view.Width(head) <= room && len(head) == len(text) {
		return []string{text}
	}
	parts := wrap(strings.ToValidUTF8(head, ""), room)
	if len(parts) <= maxEntry && len(head) == len(text) {
		return parts
	}
	last := min(len(parts), maxEntry) - 1
	return append(parts[:last], view.Start(parts[last], room-1)+"…")
}

// wrap breaks a safe text into lines: at spaces where it can, else anywhere.
func wrap(text string, width int) []string {
	width = max(1, width)
	var lines []string
	for line := range strings.SplitSeq(ansi.Wrap(text, width, ""), "\n") {
		// Wrap leaves a hyphen behind a word that fills the line.
		if ansi.StringWidth(line) > width {
			line = ansi.Hardwrap(line, width, true)
		}
		lines = append(lines, strings.Split(line, "\n")...)
	}
	return lines
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
