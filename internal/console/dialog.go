package console

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// dialog is a box above everything else. Keys, clicks and pastes go to it
// alone.
type dialog interface {
	title() string
	// body are the lines that scroll when there is no room for all.
	body(m *model, width int) []string
	// foot are the lines that are always there; the last one has the buttons.
	foot(m *model, width int) []string
	// buttons are the dialog's buttons now, and which of them has the focus.
	buttons(m *model) (labels []string, focus int)
	// hints are the keys that it knows.
	hints(m *model) []hint
	press(m *model, msg tea.KeyPressMsg) tea.Cmd
	paste(m *model, msg tea.PasteMsg) tea.Cmd
	// choose is a click on a button.
	choose(m *model, button int) tea.Cmd
	// scroller is where the body stands.
	scroller() *scroll
}

// scroll is the first line that is shown of a body.
type scroll struct{ from int }

func (s *scroll) scroller() *scroll { return s }

// dialogWidth is how wide dialogs are where there is room, border and padding
// included.
const dialogWidth = 64

// dialogPad is what border and padding take of the width.
const dialogPad = 6

// dialogBox draws the dialog and says where it stands.
func (m *model) dialogBox() ([]string, rect) {
	width := min(dialogWidth, m.width-2)
	inner := width - dialogPad
	body, foot := m.dialog.body(m, inner), m.dialog.foot(m, inner)
	height := min(len(body)+len(foot)+frame, m.height)
	room := max(0, height-frame-len(foot))
	s := m.dialog.scroller()
	s.from = min(max(s.from, 0), max(0, len(body)-room))
	shown := body[s.from:min(len(body), s.from+room)]
	lines := make([]string, 0, height-frame)
	for _, line := range append(append([]string(nil), shown...), foot...) {
		lines = append(lines, "  "+line)
	}
	title := m.dialog.title()
	if len(shown) < len(body) {
		title += " ↑↓"
	}
	at := rect{(m.width - width) / 2, max(0, (m.height-height)/2), width, height}
	return m.panel(at, title, true, lines), at
}

// buttonGap stands between two buttons, and buttonPad at both sides of each.
const buttonGap, buttonPad = 2, 2

// buttonLine draws a dialog's buttons; danger is the number of the one that
// destroys something, -1 for none.
func (m *model) buttonLine(d dialog, danger int) string {
	labels, focus := d.buttons(m)
	parts := make([]string, len(labels))
	for i, label := range labels {
		style := m.theme.button
		switch {
		case i == focus && i == danger:
			style = m.theme.danger
		case i == focus:
			style = m.theme.buttonFocus
		}
		// Colour is not alone: the button with the focus has a sign too.
		if i == focus {
			label = "▸" + label
		} else {
			label = " " + label
		}
		parts[i] = style.Render(label)
	}
	return strings.Join(parts, strings.Repeat(" ", buttonGap))
}

// buttonAt is the button at a place on the screen, -1 for none.
func (m *model) buttonAt(x, y int) int {
	_, at := m.dialogBox()
	if y != at.y+at.h-2 {
		return -1
	}
	left := at.x + 3 // the border and two spaces
	labels, _ := m.dialog.buttons(m)
	for i, label := range labels {
		size := view.Width(label) + 1 + 2*buttonPad
		if x >= left && x < left+size {
			return i
		}
		left += size + buttonGap
	}
	return -1
}

// scrollKey moves the body, if the key is one for that.
func (m *model) scrollKey(name string) bool {
	s := m.dialog.scroller()
	switch name {
	case "up", "k":
		s.from--
	case "down", "j":
		s.from++
	case "pgup", "ctrl+b":
		s.from -= m.height / 2
	case "pgdown", "ctrl+f":
		s.from += m.height / 2
	case "home", "g":
		s.from = 0
	case "end", "G":
		s.from = farAway // the drawing knows where the end is
	default:
		return false
	}
	s.from = max(0, s.from)
	return true
}

// helpDialog shows the key table.
type helpDialog struct{ scroll }

func (*helpDialog) title() string { return "KEYS" }

func (*helpDialog) body(m *model, width int) []string {
	var lines []string
	for _, group := range []string{"Act", "Look", "Move", "Program"} {
		lines = append(lines, m.theme.bold.Render(group))
		for _, b := range bindings() {
			if b.group != group {
				continue
			}
			for i, part := range wrap(b.help, max(1, width-helpKey)) {
				key := ""
				if i == 0 {
					key = b.shown
				}
				lines = append(lines, m.theme.key.Render(view.Pad(key, helpKey))+part)
			}
		}
		lines = append(lines, "")
	}
	for _, text := range []string{
		"Filter: every word must be found, !word must not, and field:value looks into one field: host, id, pid or a column, " + strings.Join(view.ColumnNames(), ", ") + ".",
		"Mouse: a click selects a row, sorts by a title or presses a button; the wheel scrolls. Most terminals select text with shift.",
	} {
		lines = append(append(lines, wrap(text, width)...), "")
	}
	lines = append(lines, wrap("History: a bar for every look, ▂ starting ▃ ready ▇ running ▄ resetting ▁ disposing ✗ failed; │ a new generation.", width)...)
	return append(lines, "")
}

// helpKey is the width of the keys in the help.
const helpKey = 13

func (d *helpDialog) foot(m *model, _ int) []string { return []string{m.buttonLine(d, -1)} }

func (*helpDialog) buttons(*model) ([]string, int) { return []string{"Close"}, 0 }

func (*helpDialog) hints(*model) []hint { return []hint{{"↑↓", "Scroll", 1}, {"esc", "Close", 0}} }

func (*helpDialog) press(m *model, msg tea.KeyPressMsg) tea.Cmd {
	switch name := msg.String(); name {
	case "esc", "enter", "?", "q":
		m.dialog = nil
	default:
		m.scrollKey(name)
	}
	return nil
}

func (*helpDialog) paste(*model, tea.PasteMsg) tea.Cmd { return nil }

func (*helpDialog) choose(m *model, _ int) tea.Cmd { m.dialog = nil; return nil }
