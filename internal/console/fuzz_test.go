package console

import (
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// FuzzScreen shows what a host could say on a screen of any size, with any keys
// pressed: nothing panics, no line is too wide, and no text becomes a command
// for the terminal.
func FuzzScreen(f *testing.F) {
	f.Add("会議室", "id", "ready", uint8(80), uint8(24), "dwp?/")
	f.Add("\x1b[2J\u202e", "\u009b", "failed", uint8(40), uint8(10), "\tjjG")
	f.Add("👩‍👩‍👧 é̂ ﷽", strings.Repeat("9", 300), "", uint8(140), uint8(36), "sSslw d")
	f.Add("\xcc\xdb\ufe0f", "\u200b\xcc\xd1", "x\x1e", uint8(103), uint8(36), "p?") // a line became too wide
	f.Add("\u200b\u0300\ufe0f", "\U000e0001a", "x", uint8(103), uint8(16), "p")
	f.Fuzz(func(t *testing.T, text, id, state string, width, height uint8, keys string) {
		records := sandboxes(text+"s", 3)
		records[0].ThreadID, records[0].InstanceID, records[0].State = text, id, control.State(state)
		records[1].AgentID, records[1].Kind, records[1].ExecutionContract = text, text, text
		records[2].EgressTargets, records[2].InstanceID, records[2].Backend = []string{text, id}, text, id
		d := drive(t, newHosts().add(text+"s", records...), int(width), int(height))
		for _, key := range keys[:min(len(keys), 20)] {
			switch {
			case key == '\t':
				d.press("tab")
			case key > ' ' && key <= '~':
				d.press(string(key))
			}
			check(t, d)
		}
	})
}

func check(t *testing.T, d *driver) {
	t.Helper()
	screen := d.m.screen()
	lines := strings.Split(screen, "\n")
	if len(lines) > max(1, d.m.height) {
		t.Fatalf("%d lines on a screen of %d", len(lines), d.m.height)
	}
	for _, line := range lines {
		if w := visibleWidth(line); w > max(d.m.width, 0) {
			t.Fatalf("a line of %d columns on a screen of %d: %q", w, d.m.width, line)
		}
	}
	for _, part := range strings.Split(screen, "\x1b")[1:] {
		if !strings.HasPrefix(part, "[") || !sgr(part[1:]) {
			t.Fatalf("the screen has the sequence %q", part[:min(len(part), 20)])
		}
	}
	for _, r := range screen {
		if r < ' ' && r != '\n' && r != '\x1b' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e {
			t.Fatalf("the screen has %q", r)
		}
	}
}
