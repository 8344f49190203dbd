package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/vt"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// noon is the time of tests.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fakeHosts are hosts in memory.
type fakeHosts struct {
	mu       sync.Mutex
	order    []string // guarded by mu, as all below
	controls map[string]*control.Memory
	down     map[string]error
	err      error // of the folder
	disposed []string
	purged   []string
	failure  error // of disposals and purges
}

func newHosts() *fakeHosts {
	return &fakeHosts{controls: make(map[string]*control.Memory), down: make(map[string]error)}
}

// add makes a host with records, or gives it others.
func (h *fakeHosts) add(source string, records ...control.Record) *fakeHosts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.controls[source] == nil {
		h.order = append(h.order, source)
	}
	h.controls[source] = control.NewMemory(records...)
	return h
}

func (h *fakeHosts) Announced() ([]control.Manifest, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	manifests := make([]control.Manifest, len(h.order))
	for i, source := range h.order {
		manifests[i] = control.Manifest{SourceID: source, Endpoint: fmt.Sprintf("http://127.0.0.1:%d", 4000+i), ProcessID: 100 + i}
	}
	return manifests, h.err
}

func (h *fakeHosts) Ask(ctx context.Context, manifest control.Manifest) ([]control.Record, error) {
	h.mu.Lock()
	down, c := h.down[manifest.SourceID], h.controls[manifest.SourceID]
	h.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return c.List(ctx)
}

func (h *fakeHosts) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disposed = append(h.disposed, id)
	if h.failure != nil {
		return control.DisposalResult{}, h.failure
	}
	for _, c := range h.controls {
		if _, there, err := c.Get(ctx, id); err == nil && there {
			return c.Dispose(ctx, id, timeout)
		}
	}
	return control.DisposalResult{Status: control.NotFound, InstanceID: id, Message: "The sandbox is already gone or its generation changed."}, nil
}

func (h *fakeHosts) Purge(ctx context.Context, scope, thread string, timeout time.Duration) (control.PurgeResult, []*control.HostError, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.purged = append(h.purged, scope+"/"+thread)
	if h.failure != nil {
		return control.PurgeResult{}, nil, h.failure
	}
	result := control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread}
	for _, c := range h.controls {
		one, err := c.Purge(ctx, scope, thread, timeout)
		if err != nil {
			return result, nil, err
		}
		result.Disposed += one.Disposed
	}
	result.Message = fmt.Sprintf("Conversation purged across %d host(s).", len(h.controls))
	return result, nil, nil
}

// driver plays an operator: it gives the model messages, and runs what the model
// wants done at once, in order. Time is what the test says.
type driver struct {
	t     *testing.T
	m     *model
	hosts *fakeHosts
	now   time.Time
	quit  bool
	copy  string // what was copied, as Bubble Tea says it
}

func drive(t *testing.T, hosts *fakeHosts, width, height int) *driver {
	t.Helper()
	d := &driver{t: t, hosts: hosts, now: noon}
	d.m = newModel(t.Context(), hosts, func() time.Time { return d.now }, time.Hour)
	d.send(tea.WindowSizeMsg{Width: width, Height: height})
	d.do(d.m.refresh())
	return d
}

// send gives the model a message and does what it wants done.
func (d *driver) send(msg tea.Msg) {
	d.t.Helper()
	_, cmd := d.m.Update(msg)
	d.do(cmd)
}

func (d *driver) do(cmd tea.Cmd) {
	d.t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, c := range msg {
			d.do(c)
		}
	case tea.QuitMsg:
		d.quit = true
	case announcedMsg, answeredMsg, disposedMsg, purgedMsg:
		d.send(msg)
	default:
		d.copy = fmt.Sprintf("%T %v", msg, msg)
	}
}

// look is a look at all hosts, as every two seconds.
func (d *driver) look() {
	d.t.Helper()
	d.do(d.m.refresh())
}

// press presses keys: names of keys, or texts in quotes that are typed.
func (d *driver) press(keys ...string) {
	d.t.Helper()
	for _, key := range keys {
		if text, typed := strings.CutPrefix(key, "'"); typed {
			for _, r := range text {
				d.send(tea.KeyPressMsg{Code: r, Text: string(r)})
			}
			continue
		}
		d.send(keyNamed(d.t, key))
	}
}

var namedKeys = map[string]tea.KeyPressMsg{
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight},
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift},
	"pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"space": {Code: tea.KeySpace, Text: " "}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+z": {Code: 'z', Mod: tea.ModCtrl},
	"ctrl+b": {Code: 'b', Mod: tea.ModCtrl}, "ctrl+f": {Code: 'f', Mod: tea.ModCtrl}, "ctrl+l": {Code: 'l', Mod: tea.ModCtrl},
	"backspace": {Code: tea.KeyBackspace},
}

func keyNamed(t testing.TB, name string) tea.KeyPressMsg {
	t.Helper()
	if key, ok := namedKeys[name]; ok {
		return key
	}
	if runes := []rune(name); len(runes) == 1 {
		return tea.KeyPressMsg{Code: runes[0], Text: name}
	}
	t.Fatalf("no key is called %q", name)
	return tea.KeyPressMsg{}
}

// screen is what a terminal shows, line by line without trailing spaces.
func (d *driver) screen() string {
	d.t.Helper()
	return emulate(d.t, d.m.screen(), d.m.width, d.m.height)
}

// emulate shows text on a terminal of a size.
func emulate(t *testing.T, text string, width, height int) string {
	t.Helper()
	terminal := vt.NewEmulator(max(1, width), max(1, height))
	defer func() { _ = terminal.Close() }()
	if _, err := terminal.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))); err != nil {
		t.Fatal(err)
	}
	return trimLines(terminal.String())
}

func trimLines(screen string) string {
	lines := strings.Split(screen, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// sees fails unless the screen has every text.
func (d *driver) sees(texts ...string) {
	d.t.Helper()
	screen := d.screen()
	for _, text := range texts {
		if !strings.Contains(screen, text) {
			d.t.Errorf("the screen does not show %q:\n%s", text, screen)
		}
	}
}

// seesNot fails if the screen has any of the texts.
func (d *driver) seesNot(texts ...string) {
	d.t.Helper()
	screen := d.screen()
	for _, text := range texts {
		if strings.Contains(screen, text) {
			d.t.Errorf("the screen shows %q:\n%s", text, screen)
		}
	}
}

// selectedID is the id of the selected sandbox.
func (d *driver) selectedID() string {
	if r := d.m.current(); r != nil {
		return r.record.InstanceID
	}
	return ""
}

// histories are the looks at all places of all hosts.
func (d *driver) histories() map[place][]look {
	all := make(map[place][]look)
	for manifest, host := range d.m.hosts {
		for at, p := range host.history.places {
			all[place{manifest, at}] = p.looks
		}
	}
	return all
}

// sandboxes are records of one host, with ids id-1, id-2 and so on.
func sandboxes(source string, n int) []control.Record {
	records := make([]control.Record, n)
	for i := range records {
		records[i] = control.Record{
			SourceID: source, Backend: "microvm", Scope: "team", ThreadID: fmt.Sprintf("t-%d", i+1), AgentID: "agent", Kind: "python",
			InstanceID: fmt.Sprintf("%s-id-%d", source, i+1), State: control.StateReady,
			CreatedAt: control.At(noon.Add(-time.Hour)), LastActivityAt: control.At(noon.Add(-time.Minute)),
		}
	}
	return records
}

func demo() *fakeHosts { return newHosts().add("mst-demo", control.DemoRecords("mst-demo", noon)...) }

var errDown = errors.New("control endpoint is unavailable: connection refused")
