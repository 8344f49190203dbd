package console

import tea "charm.land/bubbletea/v2"

// wheelStep is how far one step of a mouse wheel goes.
const wheelStep = 3

// clicked selects a row, sorts by a column, gives a pane the focus or presses
// a button.
func (m *model) clicked(msg tea.MouseClickMsg) tea.Cmd {
	l := m.layout()
	if msg.Button != tea.MouseLeft || l.tooSmall {
		return nil
	}
	if m.dialog != nil {
		if button := m.buttonAt(msg.X, msg.Y); button >= 0 {
			return m.dialog.choose(m, button)
		}
		return nil
	}
	switch {
	case l.table.has(msg.X, msg.Y):
		m.setFocus(paneTable)
		m.clickedTable(msg.X-l.table.x-1, msg.Y-l.table.y-1, l.table.h-frame)
	case l.detail.has(msg.X, msg.Y):
		m.setFocus(paneDetail)
	case l.log.has(msg.X, msg.Y):
		m.setFocus(paneLog)
	}
	return nil
}

// clickedTable is a click inside of the table's border.
func (m *model) clickedTable(x, y, height int) {
	if y < 0 || y >= height {
		return
	}
	if y == 0 {
		for _, c := range m.columns() {
			if x >= c.x+1 && x < c.x+1+c.width+columnGap {
				m.sortBy(c.name)
				return
			}
		}
		return
	}
	if index := m.offset + y - 1; index < len(m.rows) {
		m.choose(index)
	}
}

// wheeled scrolls what is under the pointer.
func (m *model) wheeled(msg tea.MouseWheelMsg) {
	by := wheelStep
	switch msg.Button {
	case tea.MouseWheelUp:
		by = -wheelStep
	case tea.MouseWheelDown:
	default:
		return
	}
	l := m.layout()
	switch {
	case l.tooSmall:
	case m.dialog != nil:
		s := m.dialog.scroller()
		s.from = max(0, s.from+by)
	case l.table.has(msg.X, msg.Y):
		m.moveIn(paneTable, by)
	case l.detail.has(msg.X, msg.Y):
		m.moveIn(paneDetail, by)
	case l.log.has(msg.X, msg.Y):
		m.moveIn(paneLog, by)
	}
}
