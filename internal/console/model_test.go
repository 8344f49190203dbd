package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

func visibleWidth(line string) int { return ansi.StringWidth(line) }

func five() *fakeHosts { return newHosts().add("one", sandboxes("one", 5)...) }

func TestSelectionFollowsTheSandboxAndNotTheRow(t *testing.T) {
	d := drive(t, five(), 80, 24)
	d.press("down", "down")
	if got := d.selectedID(); got != "one-id-3" {
		t.Fatalf("selected %s", got)
	}
	d.hosts.add("one", sandboxes("one", 5)[1:]...)
	d.look()
	if got := d.selectedID(); got != "one-id-3" {
		t.Errorf("after the first went, %s is selected", got)
	}
	d.press("S")
	if got := d.selectedID(); got != "one-id-3" {
		t.Errorf("after the order was turned round, %s is selected", got)
	}
}

func TestDisposalIsOfTheGenerationThatTheDialogNames(t *testing.T) {
	for _, r := range []struct {
		name   string
		change func(d *driver)
	}{
		{"nothing changed", func(*driver) {}},
		{"a row above went", func(d *driver) { d.hosts.add("one", sandboxes("one", 5)[1:]...) }},
		{"the order changed", func(d *driver) { d.m.order.Descend = true; d.m.arrange() }},
		{"a filter hides it", func(d *driver) { d.m.query = view.ParseQuery("t-5"); d.m.arrange() }},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := drive(t, five(), 80, 24)
			d.press("down", "down", "d")
			r.change(d)
			d.look()
			d.sees("DISPOSE", "team/t-3/agent", "one-id-3", "1h old")
			d.press("tab", "enter")
			if !slices.Equal(d.hosts.disposed, []string{"one-id-3"}) {
				t.Errorf("disposed of %v", d.hosts.disposed)
			}
		})
	}
}

func TestDisposalIsRefusedWhenTheGenerationChangedMeanwhile(t *testing.T) {
	replaced := sandboxes("one", 5)
	replaced[2].InstanceID = "one-id-3-new"
	moved := sandboxes("one", 5)
	moved[2].ThreadID = "another"
	twice := sandboxes("one", 5)
	twice[4].InstanceID = "one-id-3"
	for _, r := range []struct {
		name    string
		records []control.Record
	}{
		{"a newer generation", replaced},
		{"another key", moved},
		{"the id is there twice", twice},
		{"it is gone", slices.Delete(sandboxes("one", 5), 2, 3)},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := drive(t, five(), 80, 24)
			d.press("down", "down", "d", "tab")
			d.hosts.add("one", r.records...)
			d.look()
			d.sees("Nothing is disposed of", "Close")
			d.press("enter")
			if len(d.hosts.disposed) != 0 {
				t.Errorf("disposed of %v", d.hosts.disposed)
			}
			// Nor by a button that was chosen before the change was drawn.
			d = drive(t, five(), 80, 24)
			d.press("down", "down", "d")
			d.hosts.add("one", r.records...)
			d.look()
			d.do(d.m.dialog.choose(d.m, 1))
			if len(d.hosts.disposed) != 0 {
				t.Errorf("disposed of %v", d.hosts.disposed)
			}
			d.sees("The generation changed; nothing was disposed of.")
		})
	}
}

func TestTheFirstRowIsSelectedWhicheverHostAnswersFirst(t *testing.T) {
	for _, r := range []struct{ name, key, want string }{
		{"nobody has chosen", "", "one-id-1"},
		{"the operator has chosen meanwhile", "down", "two-id-2"},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := drive(t, newHosts(), 80, 24)
			one, two := control.Manifest{SourceID: "one"}, control.Manifest{SourceID: "two"}
			d.m.hosts[one], d.m.hosts[two] = &hostState{manifest: one, asking: true}, &hostState{manifest: two, asking: true}
			d.send(answeredMsg{two, hostRows(two, sandboxes("two", 2)), nil})
			if r.key != "" {
				d.press(r.key)
			}
			d.send(answeredMsg{one, hostRows(one, sandboxes("one", 2)), nil})
			if got := d.selectedID(); got != r.want {
				t.Errorf("selected %s, want %s", got, r.want)
			}
			// From now on it is followed.
			d.send(answeredMsg{one, hostRows(one, sandboxes("one", 3)), nil})
			d.send(answeredMsg{two, hostRows(two, sandboxes("two", 5)), nil})
			if got := d.selectedID(); got != r.want {
				t.Errorf("then selected %s, want %s", got, r.want)
			}
		})
	}
}

func TestAMessageAndTheFilterShareTheStatusLine(t *testing.T) {
	d := drive(t, five(), 40, 10)
	d.press("/", "'t-1", "enter", "y")
	d.sees("Copied one-id-1, if the terminal allo…\n", "LIVE INSTANCES 1 of 5")
	d.seesNot("……")
	d.send(tea.WindowSizeMsg{Width: 100, Height: 24})
	d.sees("(OSC 52).  /t-1")
}

func TestSelectionGoesToTheNewGenerationOfAPlace(t *testing.T) {
	d := drive(t, five(), 80, 24)
	d.press("down", "down")
	records := sandboxes("one", 5)
	records[2].InstanceID = "one-id-3-new"
	d.hosts.add("one", records...)
	d.look()
	if got := d.selectedID(); got != "one-id-3-new" {
		t.Errorf("selected %s", got)
	}
}

func TestAnIDThatSeveralSandboxesHaveIsNotDisposedOf(t *testing.T) {
	hosts := newHosts().add("one", sandboxes("x", 1)...).add("two", sandboxes("x", 1)...)
	d := drive(t, hosts, 80, 24)
	d.press("d")
	d.sees("exact disposal is refused")
	d.seesNot("DISPOSE")
}

func TestKeepingIsWhatHappensUnlessOneChoosesOtherwise(t *testing.T) {
	for _, keys := range [][]string{{"enter"}, {"esc"}, {"tab", "tab", "enter"}, {"y"}, {"q", "enter"}, {"tab", "esc"}} {
		d := drive(t, five(), 80, 24)
		d.press("d")
		d.press(keys...)
		if len(d.hosts.disposed) != 0 {
			t.Errorf("%v disposed of %v", keys, d.hosts.disposed)
		}
	}
}

func TestPastedTextPressesNoKeys(t *testing.T) {
	d := drive(t, five(), 80, 24)
	d.send(tea.PasteMsg{Content: "d\t\rq"})
	if d.m.dialog != nil || d.quit {
		t.Error("a paste pressed keys")
	}
	d.press("d", "tab")
	d.send(tea.PasteMsg{Content: "\r"})
	if len(d.hosts.disposed) != 0 || d.m.dialog == nil {
		t.Error("a paste confirmed a disposal")
	}
}

func TestAPurgeNeedsTheThreadID(t *testing.T) {
	hosts := newHosts().add("one", sandboxes("one", 2)...).add("two", sandboxes("two", 2)...)
	d := drive(t, hosts, 80, 24)
	d.press("p")
	d.sees("PURGE CONVERSATION", "Purge team/t-1?", "Sandboxes: 2 on 2 hosts", "Type t-1 to confirm")
	d.press("'t-", "tab", "enter")
	if len(d.hosts.purged) != 0 {
		t.Fatalf("purged %v before the id was typed", d.hosts.purged)
	}
	d.press("p", "'t-1", "enter")
	if len(d.hosts.purged) != 0 {
		t.Fatalf("purged %v though Keep had the focus", d.hosts.purged)
	}
	d.press("p", "'t-1", "tab", "enter")
	if !slices.Equal(d.hosts.purged, []string{"team/t-1"}) {
		t.Errorf("purged %v", d.hosts.purged)
	}
	d.press("l", "l")
	d.sees("Conversation purged across 2 host(s). Disposed: 2.")
	if len(d.m.all) != 2 {
		t.Errorf("%d sandboxes are left", len(d.m.all))
	}
}

func TestAPurgeOfAThreadThatCannotBeTypedTakesWhatIsShown(t *testing.T) {
	records := sandboxes("one", 1)
	records[0].ThreadID = "\x1b[2J"
	d := drive(t, newHosts().add("one", records...), 80, 24)
	d.press("p")
	d.send(tea.PasteMsg{Content: `\x1b[2J`})
	d.press("tab", "enter")
	if !slices.Equal(d.hosts.purged, []string{"team/\x1b[2J"}) {
		t.Errorf("purged %q", d.hosts.purged)
	}
}

func TestOneDisposalAtATime(t *testing.T) {
	d := drive(t, five(), 80, 24)
	d.m.disposing = true
	d.press("d")
	d.sees(sayBusy)
	d.press("p")
	if d.m.dialog != nil {
		t.Error("a dialog opened")
	}
}

func TestWhatCameOfAnActionIsSaidAndLogged(t *testing.T) {
	for _, r := range []struct {
		name  string
		hosts func() *fakeHosts
		keys  []string
		want  string
	}{
		{"disposed", five, []string{"d", "tab", "enter"}, "Sandbox disposed. team/t-1/agent"},
		{"failed", func() *fakeHosts { h := five(); h.failure = errors.New("no\x1b[2J"); return h }, []string{"d", "tab", "enter"}, "Disposal failed: no^[[2J"},
		{"purge failed", func() *fakeHosts { h := five(); h.failure = errors.New("no"); return h }, []string{"p", "'t-1", "tab", "enter"}, "Purge failed: no"},
		{"given up", func() *fakeHosts { h := five(); h.failure = context.Canceled; return h }, []string{"p", "'t-1", "tab", "enter"}, "Purge was given up"},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := drive(t, r.hosts(), 140, 36)
			d.press(r.keys...)
			if n := strings.Count(d.screen(), r.want); n != 2 {
				t.Errorf("%q is %d times on the screen, want in status and log:\n%s", r.want, n, d.screen())
			}
			d.now = d.now.Add(2 * noticeTime)
			if n := strings.Count(d.screen(), r.want); n != 1 {
				t.Errorf("%q is %d times on the screen later, want in the log alone", r.want, n)
			}
		})
	}
}

func TestHostsThatFailAreShownAndBlockNothing(t *testing.T) {
	hosts := five().add("two", sandboxes("two", 1)...)
	d := drive(t, hosts, 140, 36)
	d.sees("● one 5", "● two 1")
	hosts.down["two"] = errDown
	d.look()
	d.sees("✗ two unavailable", "1 host unavailable", "host two: control endpoint is unavailable", "5 live instances")
	delete(hosts.down, "two")
	d.look()
	d.sees("● two 1", "host two answers again", "6 live instances")
}

func TestASlowHostKeepsItsRowsAndIsAskedOnceMore(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.m.interval = 2 * time.Second
	host := d.m.sortedHosts()[0]
	host.asking = true
	d.now = d.now.Add(time.Minute)
	d.look()
	d.sees("5 live instances · refreshed 1m ago")
	d.press("r", "r", "r")
	if !host.again {
		t.Fatal("a refresh during a question was forgotten")
	}
	d.send(answeredMsg{host.manifest, hostRows(host.manifest, sandboxes("one", 2)), nil})
	if host.asking || host.again || len(d.m.all) != 5 {
		t.Errorf("asking %v, again %v, %d rows; want it asked once more and answered", host.asking, host.again, len(d.m.all))
	}
}

func TestAFolderThatCannotBeReadLeavesTheOldRows(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.hosts.err = errors.New("sandbox discovery directory is not private: /x")
	d.look()
	d.sees("Control endpoint unavailable · sandbox discovery directory is not private", "one-id-1"[:8])
	d.hosts.err = nil
	d.look()
	d.seesNot("Control endpoint unavailable")
}

func TestHostsThatGoTakeTheirRowsAlong(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.hosts.order = nil
	d.look()
	d.sees("No live sandboxes. Start an opted-in MAF host or run mst --demo.", "Nothing is selected")
	d.press("d")
	d.sees(noSelection)
}

func TestFilterKnowsColumnsByTheNamesOfTheFlagsToo(t *testing.T) {
	d := drive(t, five().add("two", sandboxes("two", 2)...), 140, 36)
	for query, want := range map[string]string{"host:two": "2 of 7", "source:two": "2 of 7", "id:one-id-3": "1 of 7", "!host:one": "2 of 7", "pid:7": "0 of 7"} {
		d.press("/", "'"+query, "enter")
		d.sees("LIVE INSTANCES " + want)
		d.press("esc")
	}
}

func TestFilterNarrowsWhileItIsTyped(t *testing.T) {
	for _, r := range []struct {
		typed string
		rows  int
	}{{"t-3", 1}, {"!t-3", 4}, {"kind:python", 5}, {"kind:codeact", 0}, {"!kind:python", 0}, {"one t-2", 1}, {"STATE:READY", 5}, {"", 5}} {
		d := drive(t, five(), 80, 24)
		d.press("/", "'"+r.typed)
		if len(d.m.rows) != r.rows {
			t.Errorf("%q keeps %d rows, want %d", r.typed, len(d.m.rows), r.rows)
		}
		d.press("enter")
		if d.m.filtering || len(d.m.rows) != r.rows {
			t.Errorf("%q: after enter %d rows", r.typed, len(d.m.rows))
		}
		d.press("esc")
		if len(d.m.rows) != 5 {
			t.Errorf("%q: esc leaves %d rows", r.typed, len(d.m.rows))
		}
	}
}

func TestEveryKeyOfTheTableDoesSomethingAndIsInTheHelp(t *testing.T) {
	for _, b := range bindings() {
		for _, key := range b.keys {
			t.Run(key, func(t *testing.T) {
				d := drive(t, newHosts().add("one", sandboxes("one", 50)...), 140, 40)
				d.press("down", "down", "/", "'one", "enter")
				switch b.shown {
				case "esc":
				case "shift+tab", "tab":
				case "pgup ctrl+b", "home g", "↑ k":
					d.press("end")
				}
				before := fingerprint(d)
				d.press(key)
				if fingerprint(d) == before {
					t.Error("the key does nothing")
				}
			})
		}
	}
	d := drive(t, demo(), 140, 60)
	d.press("?")
	for _, b := range bindings() {
		d.sees(b.shown)
	}
}

// fingerprint is everything that a key could have changed.
func fingerprint(d *driver) string {
	return fmt.Sprint(d.screen(), d.quit, d.copy, d.m.looking, d.histories())
}

func TestCtrlCQuitsFromEverywhere(t *testing.T) {
	for _, keys := range [][]string{nil, {"d"}, {"p", "'x"}, {"/", "'x"}, {"?"}} {
		d := drive(t, five(), 80, 24)
		d.press(keys...)
		d.press("ctrl+c")
		if !d.quit {
			t.Errorf("after %v ctrl+c does not quit", keys)
		}
	}
}

func TestTooSmallAScreenSaysSoAndActsOnNothing(t *testing.T) {
	for _, size := range [][2]int{{39, 10}, {40, 9}, {1, 1}, {20, 5}, {0, 0}, {3, 100}} {
		d := drive(t, five(), size[0], size[1])
		d.press("d", "tab", "enter", "p")
		if d.m.dialog != nil || len(d.hosts.disposed) > 0 {
			t.Errorf("%v: something happened unseen", size)
		}
		if lines := strings.Split(d.m.screen(), "\n"); len(lines) > max(1, size[1]) {
			t.Errorf("%v: %d lines", size, len(lines))
		}
	}
	d := drive(t, five(), 39, 9)
	d.sees("mst needs 40×10")
	d.press("q")
	if !d.quit {
		t.Error("q does not quit")
	}
}

func TestMouseSelectsSortsScrollsAndPresses(t *testing.T) {
	d := drive(t, newHosts().add("one", sandboxes("one", 50)...), 140, 36)
	click := func(x, y int) { d.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft}) }
	click(10, 5)
	if got := d.selectedID(); got != d.m.rows[2].record.InstanceID {
		t.Errorf("a click selected %s", got)
	}
	click(3, 2)
	if d.m.order.Column.Name != "state" {
		t.Errorf("a click on the title sorts by %s", d.m.order.Column.Name)
	}
	d.send(tea.MouseWheelMsg{X: 10, Y: 5, Button: tea.MouseWheelDown})
	if d.m.index != 2+wheelStep {
		t.Errorf("the wheel went to row %d", d.m.index)
	}
	d.press("d")
	_, at := d.m.dialogBox()
	click(at.x+5, at.y+at.h-2)
	if d.m.dialog != nil || len(d.hosts.disposed) != 0 {
		t.Error("a click on Keep does not keep")
	}
	d.press("d")
	// "▸Keep sandbox" and its padding take 17 columns, the gap 2.
	click(at.x+3+17+2+1, at.y+at.h-2)
	if len(d.hosts.disposed) != 1 {
		t.Errorf("a click on Dispose disposed of %v", d.hosts.disposed)
	}
}

func TestHistoryShowsStatesAndGenerations(t *testing.T) {
	d := drive(t, newHosts(), 140, 36)
	for i, state := range []control.State{control.StateStarting, control.StateReady, control.StateRunning, control.StateRunning, control.StateFailed} {
		records := sandboxes("one", 1)
		records[0].State = state
		records[0].LastActivityAt += control.Timestamp(i)
		if i > 2 {
			records[0].InstanceID = "new"
		}
		d.hosts.add("one", records...)
		d.look()
	}
	d.sees("▂▃▇│▇✗ 4 signals")
	d.hosts.add("one")
	d.look()
	if n := len(d.histories()); n != 0 {
		t.Errorf("histories of %d places that are gone", n)
	}
}

func TestAHostWhoseRecordsHaveAnotherNameHasAHistoryToo(t *testing.T) {
	// The label of a host that the operator named is the operator's.
	d := drive(t, newHosts().add("manual", sandboxes("one", 1)...), 140, 36)
	d.look()
	d.sees("● manual 1", "HISTORY     ▃▃")
}

func TestPausedNothingIsAsked(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.m.interval = time.Nanosecond
	d.press("space")
	d.sees("PAUSED", "· paused")
	_, _ = d.m.Update(tickMsg{})
	if d.m.looking {
		t.Error("a look while paused")
	}
	d.press("space")
	d.seesNot("PAUSED")
}

func TestCopyGivesTheIDToTheTerminal(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.press("y")
	if !strings.Contains(d.copy, "one-id-1") {
		t.Errorf("copied %q", d.copy)
	}
	d.sees("Copied one-id-1")
}

func TestLightAndDarkThemesDiffer(t *testing.T) {
	d := drive(t, five(), 140, 36)
	dark := d.m.screen()
	d.send(tea.BackgroundColorMsg{Color: ansi.White})
	if d.m.screen() == dark {
		t.Error("the theme does not follow the background")
	}
}

func TestResizeStormsLeaveNothingBehind(t *testing.T) {
	d := drive(t, demo(), 80, 24)
	d.press("d")
	for i := range 300 {
		d.send(tea.WindowSizeMsg{Width: i * 7 % 200, Height: i * 5 % 60})
		_ = d.m.screen()
		d.press("down", "tab")
		if i%10 == 0 {
			d.look()
		}
	}
	d.press("esc")
	d.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	d.m.focus, d.m.index = paneTable, -1
	d.press("home")
	d.sees("LIVE INSTANCES 3", "Nothing was disposed of.")
}
