package console

import (
	"cmp"
	"fmt"
	"slices"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

const (
	noSelection = "Select a live sandbox first."
	sayBusy     = "A disposal is already in progress."
)

// openDispose asks whether the selected sandbox is to be disposed of.
func (m *model) openDispose() tea.Cmd {
	r := m.current()
	switch {
	case m.disposing:
		m.say(toneWarn, sayBusy)
	case r == nil:
		m.say(toneWarn, noSelection)
	case r.ambiguous:
		m.say(toneBad, "Several sandboxes have this id; exact disposal is refused. p purges instead.")
	default:
		m.dialog = &disposeDialog{target: *r}
	}
	return nil
}

// disposeDialog asks about one generation, which it keeps: whatever becomes of
// the table below it, nothing else can be disposed of.
type disposeDialog struct {
	scroll
	target row
	focus  int // the first button keeps
}

// live says whether the generation is still there and still what it was.
func (d *disposeDialog) live(m *model) bool {
	i := slices.IndexFunc(m.all, func(r *row) bool { return r.id == d.target.id })
	return i >= 0 && m.all[i].place() == d.target.place() && !m.all[i].ambiguous
}

func (*disposeDialog) title() string { return "DISPOSE PHYSICAL INSTANCE" }

func (d *disposeDialog) body(m *model, width int) []string {
	r := &d.target.record
	lines := wrap("Dispose "+view.Name(r.LogicalName())+"?", width)
	lines = append(lines, wrap(view.Name(r.InstanceID), width)...)
	lines = append(lines, wrap(fmt.Sprintf("%s at %s, %s old", cmp.Or(view.Name(r.Kind), "—"), view.Name(r.SourceID), view.Age(r.CreatedAt.Age(m.now()))), width)...)
	if !d.live(m) {
		for _, sentence := range []string{"This generation is gone or has changed.", "Nothing is disposed of."} {
			for _, line := range wrap(sentence, width) {
				lines = append(lines, m.theme.bad.Render(line))
			}
		}
		return lines
	}
	lines = append(lines, conversationLines(r.Scope, r.ThreadID, width)...)
	lines = append(lines, m.absentLines("nothing is disposed of until every host answers", width)...)
	for _, line := range wrap("A newer generation with the same key is protected.", width) {
		lines = append(lines, m.theme.dim.Render(line))
	}
	return lines
}

// absentLines warn of hosts that do not answer, and of what that leads to. One
// that is gone leads to nothing.
func (m *model) absentLines(effect string, width int) []string {
	n := m.unknown()
	if n == 0 {
		return nil
	}
	lines := wrap(sayUnavailable(n)+": "+effect+".", width)
	for i, line := range lines {
		lines[i] = m.theme.warn.Render(line)
	}
	return lines
}

func sayUnavailable(hosts int) string {
	return plural(hosts, "host") + map[bool]string{true: " is", false: " are"}[hosts == 1] + " unavailable"
}

// conversationLines name a conversation in two parts: joined by a slash it could
// be read as another tenant's.
func conversationLines(scope, thread string, width int) []string {
	return append(wrap("scope "+view.Name(scope), width), wrap("thread "+view.Name(thread), width)...)
}

func (d *disposeDialog) foot(m *model, _ int) []string { return []string{"", m.buttonLine(d, 1)} }

func (d *disposeDialog) buttons(m *model) ([]string, int) {
	if !d.live(m) {
		return []string{"Close"}, 0
	}
	return []string{"Keep sandbox", "Dispose"}, d.focus
}

func (d *disposeDialog) hints(m *model) []hint {
	if !d.live(m) {
		return []hint{{"enter", "Close", 0}}
	}
	return askHints
}

// askHints are the keys of a dialog that asks.
var askHints = []hint{{"tab", "Other button", 1}, {"enter", "Choose", 1}, {"esc", "Keep", 0}}

func (d *disposeDialog) press(m *model, msg tea.KeyPressMsg) tea.Cmd {
	switch name := msg.String(); name {
	case "esc", "q", "n":
		return d.choose(m, 0)
	case "tab", "shift+tab", "left", "right", "h", "l":
		d.focus = 1 - d.focus
	case "enter":
		_, focus := d.buttons(m)
		return d.choose(m, focus)
	default:
		m.scrollKey(name)
	}
	return nil
}

func (*disposeDialog) paste(*model, tea.PasteMsg) tea.Cmd { return nil }

func (d *disposeDialog) choose(m *model, button int) tea.Cmd {
	m.dialog = nil
	if button != 1 {
		m.say(toneInfo, "Nothing was disposed of.")
		return nil
	}
	if !d.live(m) {
		m.tell(toneWarn, "The generation changed; nothing was disposed of.")
		return nil
	}
	return m.dispose(d.target.record)
}

// openPurge asks whether the conversation of the selected sandbox is to be
// purged.
func (m *model) openPurge() tea.Cmd {
	r := m.current()
	switch {
	case m.disposing:
		m.say(toneWarn, sayBusy)
		return nil
	case r == nil:
		m.say(toneWarn, noSelection)
		return nil
	}
	d := &purgeDialog{scope: r.record.Scope, thread: r.record.ThreadID, input: newInput("> ", maxThread)}
	cmd := d.input.Focus()
	m.dialog = d
	return cmd
}

// maxThread bounds what is typed for a thread id, in characters.
const maxThread = 4096

// purgeDialog asks about a conversation. Its thread id has to be typed: that
// many sandboxes on several hosts are not removed by a slip.
type purgeDialog struct {
	scroll
	scope, thread string
	input         textinput.Model
	focus         int // the first button keeps
}

// word is what has to be typed: the id as it is shown.
func (d *purgeDialog) word() string {
	if word := view.Name(d.thread); word != "" {
		return word
	}
	return "purge"
}

func (d *purgeDialog) typed() bool { return d.input.Value() == d.word() }

func (*purgeDialog) title() string { return "PURGE CONVERSATION" }

func (d *purgeDialog) body(m *model, width int) []string {
	sandboxes, hosts := m.conversation(d.scope, d.thread)
	lines := wrap("Purge "+view.Name(d.scope+"/"+d.thread)+"?", width)
	lines = append(lines, conversationLines(d.scope, d.thread, width)...)
	lines = append(lines, wrap(fmt.Sprintf("Sandboxes: %d on %s. Every host is asked.", sandboxes, plural(hosts, "host")), width)...)
	lines = append(lines, m.absentLines("the purge will be partial", width)...)
	for _, line := range wrap("Type "+d.word()+" to confirm:", width) {
		lines = append(lines, m.theme.dim.Render(line))
	}
	return lines
}

func (d *purgeDialog) foot(m *model, width int) []string {
	d.input.SetWidth(max(1, width-4))
	return []string{d.input.View(), m.buttonLine(d, 1)}
}

func (d *purgeDialog) buttons(*model) ([]string, int) {
	if !d.typed() {
		return []string{"Keep"}, 0
	}
	return []string{"Keep", "Purge"}, d.focus
}

func (*purgeDialog) hints(*model) []hint { return askHints }

func (d *purgeDialog) press(m *model, msg tea.KeyPressMsg) tea.Cmd {
	switch name := msg.String(); name {
	case "esc":
		return d.choose(m, 0)
	case "tab", "shift+tab":
		d.focus = 1 - d.focus
		return nil
	case "enter":
		_, focus := d.buttons(m)
		return d.choose(m, focus)
	case "up", "down", "pgup", "pgdown":
		m.scrollKey(name)
		return nil
	}
	return d.edit(msg)
}

func (d *purgeDialog) paste(_ *model, msg tea.PasteMsg) tea.Cmd { return d.edit(msg) }

func (d *purgeDialog) edit(msg tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	d.input, cmd = d.input.Update(msg)
	if !d.typed() {
		d.focus = 0
	}
	return cmd
}

func (d *purgeDialog) choose(m *model, button int) tea.Cmd {
	m.dialog = nil
	if button != 1 || !d.typed() {
		m.say(toneInfo, "Nothing was purged.")
		return nil
	}
	return m.purge(d.scope, d.thread)
}
