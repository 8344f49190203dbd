package console

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/terminaltest"
)

// typed are the keys of the table as a terminal sends them.
var typed = map[string]string{
	"up": "\x1b[A", "down": "\x1b[B", "pgup": "\x1b[5~", "pgdown": "\x1b[6~", "home": "\x1b[H", "end": "\x1b[F",
	"tab": "\t", "shift+tab": "\x1b[Z", "enter": "\r", "esc": "\x1b", "space": " ", "ctrl+c": "\x03", "ctrl+z": "\x1a",
	"ctrl+b": "\x02", "ctrl+f": "\x06", "ctrl+l": "\x0c",
}

func playGrowing(t *testing.T, interval time.Duration) *terminaltest.Terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), playEnv+"="+interval.String(), "TERM=xterm-256color")
	return terminaltest.Play(t, 140, 36, cmd)
}

// playKeys plays a console in which no look happens by itself: what is seen
// comes of a key.
func playKeys(t *testing.T) *terminaltest.Terminal {
	t.Helper()
	c := playGrowing(t, time.Hour)
	shows(t, c, "the first row", `LIVE INSTANCES 40 [^▸]*▸[^\n]*t-01`)
	return c
}

func shows(t *testing.T, c *terminaltest.Terminal, what, pattern string) {
	t.Helper()
	r := regexp.MustCompile(pattern)
	c.Until(what+": "+pattern, func() bool { return r.MatchString(c.Screen()) })
}

// selects is a pattern of the screen with this row selected.
func selects(thread string) string { return `▸[^\n]*` + thread }

// A conversation in which every key of the table has its turn. What is not the
// name of a key is typed as it stands.
func TestEveryKeyDoesWhatTheTableSaysOnARealTerminal(t *testing.T) {
	const (
		table, details = "┏━ LIVE INSTANCES", "┏━ PHYSICAL SANDBOX"
		click          = "\x1b[<0;30;6M\x1b[<0;30;6m" // the third row
		wheel          = "\x1b[<65;30;6M"
		title          = "\x1b[<0;4;3M\x1b[<0;4;3m" // of the column STATE
		noLog          = "team/t-30"                // where the log was there is room for it
	)
	used := map[string]bool{}
	c := playKeys(t)
	for _, step := range []struct{ keys, shows string }{
		{"down", selects("t-02")},
		{"j", selects("t-03")},
		{"up", selects("t-02")},
		{"k", selects("t-01")},
		{"pgdown", selects("t-2")},
		{"pgup", selects("t-01")},
		{"ctrl+f", selects("t-2")},
		{"ctrl+b", selects("t-01")},
		{"end", selects("t-40")},
		{"home", selects("t-01")},
		{"G", selects("t-40")},
		{"g", selects("t-01")},
		{"tab", details},
		{"shift+tab", table},
		{"enter", details},
		{"enter", table},
		{"tab", details},
		{"esc", table},
		{"s", "MAF KEY▲"},
		{"S", "MAF KEY▼"},
		{"S", "MAF KEY▲"},
		{"w", `HISTORY +INSTANCE`},
		{"w", "PHYSICAL SANDBOX"},
		{"r", "LIVE INSTANCES 41 "},
		{"space", "PAUSED"},
		{"space", "LIVE INSTANCES 42 "},
		{"?", "↑↓ Scroll"},
		{"esc", "q Quit"},
		{"/", "enter Keep"},
		{"t-07", "LIVE INSTANCES 1 of 42"},
		{"enter", "q Quit"},
		{"y", "Copied id-07"},
		{"esc", "LIVE INSTANCES 42 "},
		{"g", selects("t-01")},
		{"d", "DISPOSE PHYSICAL INSTANCE"},
		{"esc", "Nothing was disposed of"},
		{"p", "PURGE CONVERSATION"},
		{"esc", "Nothing was purged"},
		{"d", "DISPOSE PHYSICAL INSTANCE"},
		{"tab", "▸Dispose"},
		{"enter", "Sandbox disposed. team/t-01"},
		{"l", noLog},
		{"l", "ACTIVITY"},
		{click, selects("t-03")},
		{wheel, selects("t-06")},
		{title, "STATE▲"},
		{"/", "enter Keep"},
		{"\x1b[200~t-0\x1b[201~", "LIVE INSTANCES 9 of"},
		{"\x1b[200~9\x1b[201~", "LIVE INSTANCES 1 of"},
		{"enter", "q Quit"},
		{"\x1b[200~q\x1b[201~?", "↑↓ Scroll"}, // a paste is no keys
		{"esc", "q Quit"},
	} {
		keys := step.keys
		if sequence, named := typed[keys]; named {
			keys = sequence
		}
		used[step.keys] = true
		if regexp.MustCompile(step.shows).MatchString(c.Screen()) {
			t.Fatalf("%s is shown before %q is typed", step.shows, step.keys)
		}
		c.Types(keys)
		shows(t, c, step.keys, step.shows)
	}
	if !strings.Contains(c.Output(), "\x1b]52;c;aWQtMDc=") {
		t.Error("y has not copied id-07 with OSC 52")
	}
	// Or a slow line shows half of one and half of the next.
	if !strings.Contains(c.Output(), ansi.SetModeSynchronizedOutput) {
		t.Error("a terminal that can hold its screen until a frame is whole is not asked to")
	}
	drawn := len(c.Output())
	c.Types(typed["ctrl+l"])
	c.Until("drawing all anew", func() bool {
		_, anew, cleared := strings.Cut(c.Output()[drawn:], ansi.EraseEntireScreen)
		return cleared && strings.Contains(anew, "LIVE INSTANCES")
	})
	c.Types(typed["ctrl+z"])
	c.Resumes("LIVE INSTANCES")
	c.Types("q")
	ended(t, c)
	c = playKeys(t)
	c.Types(typed["ctrl+c"])
	ended(t, c)
	used["ctrl+l"], used["ctrl+z"], used["q"], used["ctrl+c"] = true, true, true, true
	for _, b := range bindings() {
		for _, key := range b.keys {
			if !used[key] {
				t.Errorf("%s (%s) was not typed: it needs a step", key, b.help)
			}
		}
	}
}

func ended(t *testing.T, c *terminaltest.Terminal) {
	t.Helper()
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

func TestTenLooksASecondDisturbNobodyWhoTypes(t *testing.T) {
	c := playGrowing(t, 100*time.Millisecond)
	c.Sees("LIVE INSTANCES 4")
	c.Types("jjj")
	shows(t, c, "the fourth row", selects("t-04"))
	c.Types("p")
	c.Sees("Type t-04 to confirm")
	c.Types("t-0")
	c.Sees("> t-0")
	c.Sees("● one 60")
	c.Types("4\t")
	c.Sees("▸Purge")
	c.Types("\x1b")
	c.Sees("q Quit")
	shows(t, c, "the same row", `LIVE INSTANCES 60 (?s:.*)`+selects("t-04"))
	if n := strings.Count(c.Screen(), "LIVE INSTANCES"); n != 1 {
		t.Errorf("%d tables are painted:\n%s", n, c.Screen())
	}
	c.Types("q")
	ended(t, c)
}
