package console

import (
	"errors"
	"fmt"
	"image/color"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func TestTheLogCanBeReadOnAScreenOfAnyHeight(t *testing.T) {
	for _, size := range [][2]int{{140, 36}, {110, 20}, {80, 24}, {40, 10}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			hosts := newHosts().add("dead")
			hosts.down["dead"] = errDown
			d := drive(t, hosts, size[0], size[1])
			const log, reason = "ACTIVITY", "host dead: control"
			if d.m.logFits() {
				d.sees(log, reason)
				d.seesNot("Press l", "(l says why)")
				d.press("l")
				d.seesNot(log)
			} else {
				d.seesNot(log)
				d.sees("Press l for it.")
				if size[0] >= 80 {
					d.sees("1 host unavailable (l says why)")
				}
			}
			d.press("l")
			d.sees(log, reason)
			if !d.m.logFits() {
				d.sees("esc Back")
				d.press("l")
				d.seesNot(log)
				d.sees("LIVE INSTANCES")
			}
			// It is one of the panes.
			d.press("tab", "tab")
			d.sees("━ "+log, reason)
			d.press("tab")
			d.sees("━ LIVE INSTANCES")
		})
	}
}

func TestAResizeHidesNoPaneThatKeysGoTo(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.m.note(toneInfo, "done")
	d.press("tab", "tab")
	d.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	d.sees("━ ACTIVITY", "done", "esc Back")
	d.press("esc")
	d.sees("━ LIVE INSTANCES")
}

func TestALogThatIsHiddenIsNoPane(t *testing.T) {
	d := drive(t, five(), 140, 36)
	d.press("l", "tab", "tab")
	d.sees("━ LIVE INSTANCES")
	d.seesNot("ACTIVITY")
}

func TestALogOfMoreThanFitsSaysSo(t *testing.T) {
	d := drive(t, five(), 140, 36)
	for range 4 {
		d.m.note(toneInfo, "line")
	}
	d.seesNot("ACTIVITY ↑↓")
	d.m.note(toneInfo, "line")
	d.sees("ACTIVITY ↑↓")
}

func TestTheTableStandsWhereItStoodWhenOneComesBack(t *testing.T) {
	for name, keys := range map[string][2]string{"details": {"enter", "enter"}, "log": {"l", "l"}, "details, then esc": {"enter", "esc"}} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, newHosts().add("one", sandboxes("one", 50)...), 60, 15)
			d.press("end", "pgup", "up", "down", "down")
			before := d.screen()
			d.press(keys[0])
			d.look()
			if d.screen() == before {
				t.Fatal("nothing takes the table's place")
			}
			d.press(keys[1])
			if after := d.screen(); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func TestAnIDIsInOnePieceFromTwoPanesOn(t *testing.T) {
	drive(t, demo(), twoPanes, 30).sees("f2ecba87b2ce44659a66fd28fd0a1002")
}

// Two sandboxes that differ in what cannot be seen are two in the log too.
func TestTheLogTellsNamesApart(t *testing.T) {
	records := sandboxes("one", 2)
	records[0].ThreadID, records[1].ThreadID = "a\nb", "a b"
	records[0].InstanceID = "\x1b[31m"
	d := drive(t, newHosts().add("one", records...), 140, 36)
	d.press("d", "tab", "enter")
	d.sees(`dispose team/a\x0ab/agent \x1b[31m`, `Sandbox disposed. team/a\x0ab/agent`)
	d.press("p", "'a b", "tab", "enter")
	d.sees("purge team/a b")

	hosts := newHosts().add("h\n").add("h ")
	hosts.down["h\n"], hosts.down["h "] = errDown, errDown
	d = drive(t, hosts, 140, 36)
	d.sees(`host h\x0a: control`, `host h\u0020: control`)
	delete(hosts.down, "h ")
	d.look()
	d.sees(`host h\u0020 answers again`)
}

func TestThatAHostHasEndedIsLoggedThoughItDidNotAnswerBefore(t *testing.T) {
	hosts := five().add("two", sandboxes("two", 1)...)
	hosts.down["two"] = errors.New("control request timed out")
	d := drive(t, hosts, 140, 36)
	d.look()
	hosts.down["two"] = fmt.Errorf("control endpoint is unavailable: %w", control.ErrGone)
	for range 3 {
		d.look()
	}
	d.sees("host two: control request timed out", "host two: control endpoint is unavailable: host is gone")
	if n := len(d.m.log); n != 2 {
		t.Errorf("%d lines in the log, want one for each reason", n)
	}
}

func TestWhatStandsOnTheScreenByMistakeGoesWithCtrlL(t *testing.T) {
	for _, keys := range [][]string{nil, {"d"}, {"p"}, {"/", "'x"}, {"?"}} {
		d := drive(t, five(), 80, 24)
		d.press(keys...)
		d.press("ctrl+l")
		if want := fmt.Sprintf("%T", tea.ClearScreen()); !strings.HasPrefix(d.copy, want) {
			t.Errorf("after %v: %q, want a %s", keys, d.copy, want)
		}
	}
}

// The 16 colours of a terminal are what its user has them be, but blue and the
// dark grey are hard to read on black, and the bright ones on white.
func TestTextOfFewColoursCanBeRead(t *testing.T) {
	for _, r := range []struct {
		name string
		dark bool
		hard []string
	}{
		{"dark", true, []string{"0", "4", "8"}},
		{"light", false, []string{"7", "10", "11", "14", "15"}},
	} {
		theme := newTheme(r.dark, true)
		for what, style := range map[string]lipgloss.Style{
			"text": theme.text, "dim": theme.dim, "bold": theme.bold, "accent": theme.accent, "good": theme.good,
			"warn": theme.warn, "bad": theme.bad, "key": theme.key, "focused border": theme.borderFocus,
		} {
			for _, hard := range r.hard {
				if style.GetForeground() == lipgloss.Color(hard) {
					t.Errorf("%s: %s has colour %s", r.name, what, hard)
				}
			}
			if !ofTerminal(style.GetForeground()) {
				t.Errorf("%s: %s has %v, which is none of 16", r.name, what, style.GetForeground())
			}
		}
		if theme.warn.GetForeground() == theme.bad.GetForeground() {
			t.Errorf("%s: warnings look like failures", r.name)
		}
		if theme.selected.GetBackground() == theme.selectedBlur.GetBackground() {
			t.Errorf("%s: the selected row looks the same without the focus", r.name)
		}
	}
}

// ofTerminal says whether a colour is one of the terminal's 16, or its own.
func ofTerminal(c color.Color) bool {
	if _, none := c.(lipgloss.NoColor); none {
		return true
	}
	for i := range 16 {
		if c == lipgloss.Color(fmt.Sprint(i)) {
			return true
		}
	}
	return false
}

func TestTheThemeFollowsTheNumberOfColours(t *testing.T) {
	d := drive(t, five(), 140, 36)
	all := d.m.screen()
	var few tea.ColorProfileMsg
	for few.Profile.String() != "ANSI" {
		few.Profile++
	}
	d.send(few)
	if d.m.screen() == all {
		t.Error("the theme does not follow the terminal's colours")
	}
	dark := d.m.screen()
	d.send(tea.BackgroundColorMsg{Color: color.White})
	if d.m.screen() == dark || !d.m.few {
		t.Error("the theme does not follow the background and the colours")
	}
	few.Profile++ // 256 colours
	d.send(few)
	if d.m.few || !d.m.light {
		t.Errorf("few %v, light %v", d.m.few, d.m.light)
	}
}
