package console

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func TestTheFooterHasTheKeysThatWorkNow(t *testing.T) {
	for _, r := range []struct {
		name          string
		width, height int
		keys          []string
		want          string
	}{
		{"smallest", 40, 10, nil, " r Refresh  d Dispose  p Purge  ? Help"},
		{"details in the table's place", 40, 10, []string{"enter"}, " esc Back  r Refresh  d Dispose  ? Help"},
		{"wider", 60, 20, nil, " r Refresh  d Dispose  p Purge  / Filter  ? Help  q Quit"},
		{"usual", 80, 24, nil, " r Refresh  d Dispose  p Purge  y Copy  / Filter  s Sort  w Wide  ? Help  q Quit"},
		{"usual, details", 80, 24, []string{"enter"}, " r Refresh  d Dispose  p Purge  y Copy  / Filter  s Sort  w Wide  ? Help  q Quit"},
		{"a filter that is typed", 80, 24, []string{"/", "'x"}, " enter Keep  esc Clear  ↑↓ Move"},
		{"a filter that is there", 80, 24, []string{"/", "'x", "enter"}, " r Refresh  d Dispose  p Purge  y Copy  / Filter  s Sort  w Wide  ? Help  q Quit"},
		{"a question", 80, 24, []string{"d"}, " tab Other button  enter Choose  esc Keep"},
		{"a question about more", 80, 24, []string{"p"}, " tab Other button  enter Choose  esc Keep"},
		{"help", 140, 60, []string{"?"}, " ↑↓ Scroll  esc Close"},
	} {
		d := drive(t, five(), r.width, r.height)
		d.press(r.keys...)
		lines := strings.Split(strings.TrimRight(d.screen(), "\n"), "\n")
		if got := lines[len(lines)-1]; got != r.want {
			t.Errorf("%s: %q, want %q", r.name, got, r.want)
		}
	}
}

func TestWhatIsUnderWayIsSaidUntilItIsOver(t *testing.T) {
	d := drive(t, five(), 80, 24)
	record := d.m.current().record
	d.m.dispose(record)
	d.now = d.now.Add(2 * noticeTime)
	d.sees("Disposing one-id-1…")
	d.press("d")
	d.sees(sayBusy)
	d.now = d.now.Add(2 * noticeTime)
	d.sees("Disposing one-id-1…")
	d.send(disposedMsg{record: record, result: control.DisposalResult{Status: control.Disposed, Message: "Sandbox disposed."}})
	d.sees("Sandbox disposed.")
	d.now = d.now.Add(2 * noticeTime)
	d.seesNot("Disposing")
}

func TestALookThatIsAskedForNamesTheHostItWaitsFor(t *testing.T) {
	d := drive(t, five().add("two", sandboxes("two", 1)...), 80, 24)
	d.m.say(toneInfo, "of before")
	hosts := d.m.sortedHosts()
	hosts[0].asking, hosts[1].asking = true, true
	d.press("r")
	d.sees("Looking at all hosts…")
	d.send(answeredMsg{hosts[0].manifest, hosts[0].rows, nil})
	d.sees("Waiting for two…")
	d.send(answeredMsg{hosts[1].manifest, hosts[1].rows, nil})
	d.sees("6 live instances · refreshed just now")
	d.seesNot("of before")
	// Looks that nobody asked for are not told.
	hosts[0].asking = true
	d.look()
	d.seesNot("Waiting for")
	// A folder that cannot be read ends the wait.
	hosts[0].asking, d.hosts.err = false, errors.New("x")
	d.press("r")
	if d.m.wanted {
		t.Error("still waiting")
	}
}

func TestWhyAHostDoesNotAnswerIsInTheLogFromTheStart(t *testing.T) {
	hosts := five().add("dead", sandboxes("dead", 1)...)
	hosts.down["dead"] = errDown
	d := drive(t, hosts, 140, 36)
	d.sees("✗ dead unavailable", "host dead: control endpoint is unavailable: connection refused")
	d.look()
	if n := len(d.m.log); n != 1 {
		t.Errorf("%d lines in the log after two looks", n)
	}
}

func TestAHostThatHasNotAnsweredYetHasNoNumber(t *testing.T) {
	d := drive(t, five(), 80, 24)
	slow := control.Manifest{SourceID: "slow"}
	d.m.hosts[slow] = &hostState{manifest: slow, asking: true}
	d.sees("… slow ")
	d.seesNot("slow 0")
}

func TestWhatIsShownWhilePausedHasItsAge(t *testing.T) {
	d := drive(t, five(), 80, 24)
	d.m.interval = time.Minute
	d.press("space")
	d.now = d.now.Add(3 * time.Second)
	d.sees("5 live instances · paused · refreshed 3s ago")
	d.press("space")
	d.sees("5 live instances · refreshed just now")
}

func TestAnEmptyTableSaysWhy(t *testing.T) {
	down := newHosts().add("one")
	down.down["one"] = errDown
	unread := newHosts()
	unread.err = fmt.Errorf("%w: /x", control.ErrUnsafeDirectory)
	for _, r := range []struct {
		name  string
		hosts *fakeHosts
		want  string
	}{
		{"no host", newHosts(), "No live sandboxes. Start an opted-in MAF host or run mst --demo."},
		{"a host without sandboxes", newHosts().add("one"), "No live sandboxes. They appear here as soon as a host has one."},
		{"no host that answers", down, "No host answers; the activity log says why."},
		{"no folder", unread, ": /x. Nobody but you may have"},
	} {
		t.Run(r.name, func(t *testing.T) { drive(t, r.hosts, 140, 36).sees(r.want) })
	}
}

func TestTheDialogsWarnOfHostsThatDoNotAnswer(t *testing.T) {
	hosts := five().add("two", sandboxes("two", 1)...).add("three")
	hosts.down["two"] = errDown
	d := drive(t, hosts, 80, 24)
	d.press("d")
	d.sees("1 host is unavailable: nothing is disposed of until every")
	d.press("esc", "p")
	d.sees("1 host is unavailable: the purge will be partial.")
	hosts.down["three"] = errDown
	d.look()
	d.sees("2 hosts are unavailable: the purge will be partial.")
}

func TestKeepingIsSaid(t *testing.T) {
	for want, keys := range map[string][]string{"Nothing was disposed of.": {"d", "enter"}, "Nothing was purged.": {"p", "'t-1", "enter"}} {
		d := drive(t, five(), 80, 24)
		d.press(keys...)
		d.sees(want)
	}
}

func TestADisposalOfWhatHasNoKindReadsWell(t *testing.T) {
	records := sandboxes("one", 1)
	records[0].Kind = ""
	d := drive(t, newHosts().add("one", records...), 80, 24)
	d.press("d")
	d.sees("— at one, 1h old")
}

func TestOneLongIDDoesNotTakeTheOtherColumns(t *testing.T) {
	records := sandboxes("one", 3)
	records[1].InstanceID = strings.Repeat("x", 300)
	d := drive(t, newHosts().add("one", records...), 140, 36)
	d.press("w")
	d.sees("SOURCE", "KIND", "AGE", strings.Repeat("x", maxFirm-1)+"…", "one-id-3")
}

func TestTheHelpScrollsByLettersToo(t *testing.T) {
	d := drive(t, five(), 80, 12)
	d.press("?")
	top := d.screen()
	for _, step := range [][2]string{{"j", "k"}, {"G", "g"}, {"end", "home"}} {
		d.press(step[0])
		if d.screen() == top {
			t.Errorf("%s does not scroll", step[0])
		}
		d.press(step[1])
		if d.screen() != top {
			t.Errorf("%s does not scroll back", step[1])
		}
	}
	d.press("G")
	d.sees("│ a new")
}

func TestWhoReadsOldLinesOfTheLogGoesOnReadingThem(t *testing.T) {
	d := drive(t, five(), 140, 36)
	for _, line := range []string{"aa", "bb", "cc", "dd", "ee", "ff"} {
		d.m.note(toneInfo, line)
	}
	d.press("tab", "tab", "up", "up")
	d.sees(" aa ", " dd ")
	d.m.note(toneInfo, "gg")
	d.sees(" aa ", " dd ")
	d.seesNot(" ee ")
	d.press("down", "down", "down")
	d.sees(" gg ")
	d.m.note(toneInfo, "hh")
	d.sees(" hh ")
}

func TestLongLinesOfTheLogAreReadToTheirEnd(t *testing.T) {
	d := drive(t, five(), 110, 36)
	d.m.note(toneInfo, "before")
	d.m.note(toneWarn, strings.Repeat("host is gone; ", 9)+"the next host clears it away")
	d.sees("before", "the next host clears it away")
	d.m.note(toneWarn, strings.Repeat("endless words ", 999))
	d.sees("…")
	d.press("tab", "tab", "home")
	d.sees("before")
	d.press("end")
	d.seesNot("before")
	for _, line := range strings.Split(d.m.screen(), "\n") {
		if visibleWidth(line) > 110 {
			t.Errorf("too wide: %q", line)
		}
	}
}
