package main

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/console"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/terminaltest"
)

// panicking are hosts that are a bug, at the second look.
type panicking struct {
	console.Hosts // nothing else is called
	looks         atomic.Int32
}

func (p *panicking) Announced() ([]control.Manifest, error) {
	if p.looks.Add(1) > 1 {
		panic("a bug in a command")
	}
	return nil, nil
}

func TestTheTerminalIsSaneHoweverTheConsoleEnds(t *testing.T) {
	for _, r := range []struct {
		name   string
		end    func(c *terminaltest.Terminal)
		status int
	}{
		{"q", func(c *terminaltest.Terminal) { c.Types("q") }, 0},
		{"ctrl+c", func(c *terminaltest.Terminal) { c.Types("\x03") }, 0},
		{"ctrl+c in a dialog", func(c *terminaltest.Terminal) { c.Types("d\x03") }, 0},
		{"SIGTERM", func(c *terminaltest.Terminal) { c.Signal(syscall.SIGTERM) }, 143},
		{"SIGINT", func(c *terminaltest.Terminal) { c.Signal(syscall.SIGINT) }, 130},
		{"SIGHUP", func(c *terminaltest.Terminal) { c.Signal(syscall.SIGHUP) }, 129},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := play(t, 80, 24, "mst", "--demo")
			c.Sees("LIVE INSTANCES 3")
			r.end(c)
			if status := c.Ends(); status != r.status {
				t.Errorf("exit status %d, want %d", status, r.status)
			}
			c.Sane()
		})
	}
}

func TestASignalWhileTheConsoleStartsLeavesASaneTerminal(t *testing.T) {
	for range 5 {
		c := play(t, 80, 24, "mst", "--demo")
		c.Until("the first byte", func() bool { return c.Output() != "" })
		c.Signal(syscall.SIGINT)
		if status := c.Ends(); status != 130 {
			t.Errorf("exit status %d", status)
		}
		c.Sane()
	}
}

func TestATerminalThatIsClosedEndsTheConsole(t *testing.T) {
	c := play(t, 80, 24, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3")
	c.HangUp()
	if status := c.Ends(); status != 129 && status != 1 {
		t.Errorf("exit status %d, want that of SIGHUP or of a failed write", status)
	}
}

func TestAPanicLeavesTheTerminalSaneAndSaysThatItIsABug(t *testing.T) {
	c := play(t, 80, 24, "panic")
	c.Started()
	c.Sees("No live sandboxes")
	c.Types("r")
	if status := c.Ends(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
	const message = "mst: the console failed, which is a bug worth reporting"
	c.Until("the message", func() bool { return strings.Contains(c.Output(), message) })
	if out := c.Output(); strings.Index(out, message) < strings.LastIndex(out, "\x1b[?1049l") {
		t.Errorf("the message was written before the alternate screen was left: %q", out)
	}
}

// Over ssh a terminal answers late. What it answers to a console that has ended
// meanwhile is not to be typed at the shell's prompt.
func TestAnswersThatComeLateAreNotLeftForTheShell(t *testing.T) {
	questions := func(c *terminaltest.Terminal) {
		c.Until("the questions", func() bool { return strings.Contains(c.Output(), "\x1b]11;?") })
	}
	for _, r := range []struct {
		name, env string
		end       func(c *terminaltest.Terminal)
		status    int
	}{
		{"q", "mst", func(c *terminaltest.Terminal) { c.Types("q") }, 0},
		{"SIGTERM", "mst", func(c *terminaltest.Terminal) { c.Signal(syscall.SIGTERM) }, 143},
		{"SIGINT", "mst", func(c *terminaltest.Terminal) { c.Signal(syscall.SIGINT) }, 130},
		{"a panic", "panic", func(c *terminaltest.Terminal) { c.Types("r") }, 1},
		{"a suspension", "mst", func(c *terminaltest.Terminal) {
			c.Types("\x1a")
			c.Until("leaving the alternate screen", func() bool { return strings.Contains(c.Output(), "\x1b[?1049l") })
			c.Sane()
			c.Signal(syscall.SIGTERM) // here is nobody who would stop it, so it hears
		}, 143},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := playAway(t, 50*time.Millisecond, 80, 24, r.env, "--demo")
			questions(c)
			r.end(c)
			if status := c.Ends(); status != r.status {
				t.Errorf("exit status %d, want %d", status, r.status)
			}
			c.Sane()
		})
	}
}

func TestSuspendGivesTheTerminalBackAndResumeTakesIt(t *testing.T) {
	c := play(t, 80, 24, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3")
	c.Types("\x1a")
	c.Resumes("LIVE INSTANCES")
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}
