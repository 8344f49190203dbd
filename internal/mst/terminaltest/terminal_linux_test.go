package terminaltest

import (
	"os/exec"
	"strings"
	"testing"
)

// script is a program whose frame is under way until a line is typed.
const script = `
stty -echo
printf 'before'
printf '\033[?2026h\033[2J\033[Hone '
read -r line
printf 'two'
printf '\033[?2026l'
read -r line
stty echo
`

func TestTheScreenChangesAWholeFrameAtATime(t *testing.T) {
	c := Play(t, 40, 10, exec.Command("sh", "-c", script))
	c.Until("half of a frame", func() bool { return strings.HasSuffix(c.Output(), "one ") })
	c.Sees("before")
	c.Resize(50, 10)
	if screen := c.Screen(); !strings.Contains(screen, "before") || strings.Contains(screen, "one") {
		t.Errorf("half of a frame is shown:\n%s", screen)
	}
	c.Types("\n")
	c.Sees("one two")
	if screen := c.Screen(); strings.Contains(screen, "before") {
		t.Errorf("what was before the frame is shown:\n%s", screen)
	}
	c.Types("\n")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

// A program asks (DECRQM) before it says where its frames begin.
func TestTheTerminalSaysThatItHoldsFrames(t *testing.T) {
	c := Play(t, 40, 10, exec.Command("sh", "-c", `
		stty raw -echo
		printf '\033[?2026$p'
		dd bs=1 count=11 2>/dev/null | od -An -c | tr -d ' '
		stty cooked echo
	`))
	c.Sees(`033[?2026;2$y`) // known, and reset
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
