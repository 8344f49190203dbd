package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// pane is a part of the screen that can have the focus.
type pane int

const (
	paneTable pane = iota
	paneDetail
	paneLog
)

// notice is the message of the status line.
type notice struct {
	text  string
	tone  tone
	until time.Time
}

// noticeTime is how long a message stays in the status line.
const noticeTime = 8 * time.Second

// model is the whole state of the console.
type model struct {
	ctx      context.Context // ends with the console; questions to hosts end with it
	source   Hosts
	now      func() time.Time
	interval time.Duration
	suspend  tea.Cmd
	theme    theme
	// light and few are what the terminal said of its background and colours.
	light, few bool

	width, height int

	hosts   map[control.Manifest]*hostState
	looking bool  // the folder is being read
	looked  bool  // and was at least once
	wanted  bool  // the operator waits for the answers of all hosts
	err     error // the last reading failed: what is shown is old
	paused  bool

	all      []*row // of all hosts
	rows     []*row // those that are shown, in their order
	natural  []int  // how wide the table's columns want to be; nil when not known
	selected identity
	was      place // where the selection was
	// chose: the selection is the operator's. Until then, and until all hosts
	// have answered once, it is the first row, whoever answers first.
	chose  bool
	index  int // and in which row; -1 without rows
	offset int // the first row on the screen

	order     view.Order
	filter    textinput.Model
	filtering bool // the filter is being typed
	query     view.Query

	focus        pane
	wide         bool
	showLog      bool
	detailScroll int
	logScroll    int // lines up from the newest

	dialog    dialog
	disposing bool
	doing     string // what is being disposed of or purged
	notice    notice
	log       []entry
}

func newModel(ctx context.Context, source Hosts, now func() time.Time, interval time.Duration) *model {
	m := &model{
		ctx: ctx, source: source, now: now, interval: interval, suspend: tea.Suspend, theme: newTheme(true, false),
		hosts: make(map[control.Manifest]*hostState), index: -1, showLog: true,
	}
	m.order, _ = view.ParseOrder("source") // it is a column
	m.filter = newInput("/", maxFilter)
	m.filter.Placeholder = "words, !word, field:value"
	return m
}

// maxFilter bounds the text of a filter, in characters.
const maxFilter = 256

func newInput(prompt string, limit int) textinput.Model {
	input := textinput.New()
	input.Prompt = prompt
	input.CharLimit = limit
	// It would run programs of the system to read the clipboard; terminals paste.
	input.KeyMap.Paste.SetEnabled(false)
	styles := input.Styles()
	styles.Cursor.Blink = false
	input.SetStyles(styles)
	return input
}

// The messages of work that was done.
type (
	tickMsg      struct{}
	announcedMsg struct {
		manifests []control.Manifest
		err       error
	}
	answeredMsg struct {
		manifest control.Manifest
		rows     []*row
		err      error
	}
	disposedMsg struct {
		record control.Record
		result control.DisposalResult
		err    error
	}
	purgedMsg struct {
		scope, thread string
		result        control.PurgeResult
		failures      []*control.HostError
		err           error
	}
)

// Init begins with a look at all hosts.
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.refresh(), m.tick(), tea.RequestBackgroundColor)
}

func (m *model) tick() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
}

// refresh looks for hosts, unless that is under way; every host that is found
// is then asked.
func (m *model) refresh() tea.Cmd {
	if m.looking {
		return nil
	}
	m.looking = true
	source := m.source
	return func() tea.Msg {
		manifests, err := source.Announced()
		return announcedMsg{manifests, err}
	}
}

// refreshNow is a refresh that an operator or an action wants: hosts whose
// answer is under way are asked once more after it.
func (m *model) refreshNow() tea.Cmd {
	for _, host := range m.hosts {
		host.again = host.asking
	}
	return m.refresh()
}

// refreshAsked is the key for a look.
func (m *model) refreshAsked() tea.Cmd {
	m.wanted, m.notice = true, notice{}
	return m.refreshNow()
}

func (m *model) ask(host *hostState) tea.Cmd {
	host.asking, host.again = true, false
	ctx, source, manifest := m.ctx, m.source, host.manifest
	return func() tea.Msg {
		records, err := source.Ask(ctx, manifest)
		return answeredMsg{manifest, hostRows(manifest, records), err}
	}
}

// Update changes the state and says what is to be done.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.clamp()
	case tea.BackgroundColorMsg:
		m.light = !msg.IsDark()
		m.theme = newTheme(!m.light, m.few)
	case tea.ColorProfileMsg:
		m.few = hasFewColours(msg)
		m.theme = newTheme(!m.light, m.few)
	case tickMsg:
		if m.paused {
			return m, m.tick()
		}
		return m, tea.Batch(m.tick(), m.refresh())
	case announcedMsg:
		return m, m.announced(msg)
	case answeredMsg:
		return m, m.answered(msg)
	case disposedMsg:
		return m, m.disposed(msg)
	case purgedMsg:
		return m, m.purged(msg)
	case tea.KeyPressMsg:
		m.chose = true
		return m, m.pressed(msg)
	case tea.PasteMsg:
		return m, m.pasted(msg)
	case tea.MouseClickMsg:
		m.chose = true
		return m, m.clicked(msg)
	case tea.MouseWheelMsg:
		m.chose = true
		m.wheeled(msg)
	}
	return m, nil
}

func (m *model) announced(msg announcedMsg) tea.Cmd {
	m.looking, m.looked, m.err = false, true, msg.err
	if msg.err != nil {
		m.wanted = false
		return nil // the old rows stay, and the status line says so
	}
	present := make(map[control.Manifest]bool, len(msg.manifests))
	var asks []tea.Cmd
	for _, manifest := range msg.manifests {
		if present[manifest] {
			continue
		}
		present[manifest] = true
		host := m.hosts[manifest]
		if host == nil {
			host = &hostState{manifest: manifest}
			m.hosts[manifest] = host
		}
		if !host.asking {
			asks = append(asks, m.ask(host))
		}
	}
	for manifest := range m.hosts {
		if !present[manifest] {
			delete(m.hosts, manifest)
		}
	}
	m.wanted = m.wanted && len(m.waiting()) > 0
	m.rebuild()
	return tea.Batch(asks...)
}

func (m *model) answered(msg answeredMsg) tea.Cmd {
	host := m.hosts[msg.manifest]
	if host == nil {
		return nil // it went meanwhile
	}
	// That it has ended is news of a host that did not answer before, too.
	if msg.err != nil && (!host.failed() || errors.Is(msg.err, control.ErrGone) && !host.gone()) {
		m.note(toneWarn, host.name()+": "+msg.err.Error())
	}
	if msg.err == nil && host.failed() {
		m.note(toneGood, host.name()+" answers again")
	}
	host.asking, host.answered, host.at, host.rows, host.err = false, true, m.now(), msg.rows, msg.err
	host.history.add(host.rows)
	m.rebuild()
	m.chose = m.chose || !m.anyUnanswered()
	if host.again {
		return m.ask(host)
	}
	m.wanted = m.wanted && (m.looking || len(m.waiting()) > 0)
	return nil
}

// rebuild makes the rows anew from what hosts said, the filter and the order.
func (m *model) rebuild() {
	m.all = joinRows(m.sortedHosts())
	m.arrange()
}

func (m *model) arrange() {
	m.rows = arrange(m.all, m.query, m.order, m.now())
	m.natural = nil
	index := 0
	if m.chose {
		index = follow(m.rows, m.selected, m.was, m.index)
	}
	m.choose(index)
}

// choose selects a row by its number now; what is kept is its identity.
func (m *model) choose(index int) {
	m.index = min(max(index, 0), len(m.rows)-1)
	if m.index < 0 {
		return // the identity is kept: it may come back
	}
	if r := m.rows[m.index]; r.id != m.selected {
		m.selected, m.detailScroll = r.id, 0
	}
	m.was = m.rows[m.index].place()
	m.clamp()
}

// current is the selected row, nil without rows.
func (m *model) current() *row {
	if m.index < 0 || m.index >= len(m.rows) {
		return nil
	}
	return m.rows[m.index]
}

// clamp keeps the selection on the screen.
func (m *model) clamp() {
	l := m.layout()
	if l.table.h == 0 {
		return // it stands where it stood when it is seen again
	}
	visible := max(1, l.table.h-tableFrame)
	m.offset = min(m.offset, max(0, len(m.rows)-visible))
	if m.index >= 0 {
		m.offset = min(max(m.offset, m.index-visible+1), m.index)
	}
	m.offset = max(m.offset, 0)
}

// say puts a message into the status line.
func (m *model) say(t tone, text string) {
	m.notice = notice{view.Sentence(text), t, m.now().Add(noticeTime)}
}

// note puts a line into the activity log.
func (m *model) note(t tone, text string) {
	e := entry{at: m.now(), text: view.Sentence(text), tone: t}
	m.log = append(m.log, e)
	if m.logScroll > 0 { // who reads older lines goes on reading them
		m.logScroll += len(e.wrapped(m.width - frame))
	}
	m.log = m.log[max(0, len(m.log)-maxLog):]
}

// tell does both.
func (m *model) tell(t tone, text string) {
	m.say(t, text)
	m.note(t, text)
}

// begin says what is under way, for as long as it is. The text is safe to show.
func (m *model) begin(doing string) {
	m.disposing, m.doing, m.notice = true, doing, notice{}
}

// dispose asks for the disposal of a sandbox. Precondition: the operator has
// confirmed it.
func (m *model) dispose(record control.Record) tea.Cmd {
	m.begin("Disposing " + short(record.InstanceID) + "…")
	m.note(toneInfo, "dispose "+view.Name(record.LogicalName())+" "+view.Name(record.InstanceID))
	ctx, source := m.ctx, m.source
	return func() tea.Msg {
		result, err := source.Dispose(ctx, record.InstanceID, control.DefaultTimeout)
		return disposedMsg{record, result, err}
	}
}

func (m *model) disposed(msg disposedMsg) tea.Cmd {
	m.disposing, m.doing = false, ""
	switch {
	case msg.err != nil:
		m.tell(toneBad, "Disposal failed: "+msg.err.Error())
	case msg.result.Status == control.Disposed:
		m.tell(toneGood, msg.result.Message+" "+view.Name(msg.record.LogicalName()))
	default:
		m.tell(toneBad, msg.result.Message)
	}
	return m.refreshNow()
}

// purge asks for the purge of a conversation. Precondition: the operator has
// confirmed it.
func (m *model) purge(scope, thread string) tea.Cmd {
	m.begin("Purging " + view.Name(scope+"/"+thread) + "…")
	m.note(toneInfo, "purge "+view.Name(scope+"/"+thread))
	ctx, source := m.ctx, m.source
	return func() tea.Msg {
		result, failures, err := source.Purge(ctx, scope, thread, control.DefaultTimeout)
		return purgedMsg{scope, thread, result, failures, err}
	}
}

func (m *model) purged(msg purgedMsg) tea.Cmd {
	m.disposing, m.doing = false, ""
	for _, failure := range msg.failures {
		m.note(toneWarn, view.Name(failure.SourceID)+": "+failure.Message)
	}
	switch {
	case errors.Is(msg.err, context.Canceled):
		m.tell(toneBad, "Purge was given up; it may still go on at hosts.")
	case msg.err != nil:
		m.tell(toneBad, "Purge failed: "+msg.err.Error())
	case msg.result.Status == control.Purged:
		m.tell(toneGood, fmt.Sprintf("%s Disposed: %d.", msg.result.Message, msg.result.Disposed))
	default:
		m.tell(toneBad, fmt.Sprintf("%s Disposed: %d.", msg.result.Message, msg.result.Disposed))
	}
	return m.refreshNow()
}
