package terminaltest

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Terminal is a terminal with a program on it.
type Terminal struct {
	t    testing.TB
	tty  *os.File
	fd   int      // of tty, while that is open
	side *os.File // the program's side, to look at its modes at the end
	cmd  *exec.Cmd
	emu  *vt.SafeEmulator
	// drawing guards the screen, which the emulator's own lock does not.
	drawing sync.Mutex
	done    chan error

	mu   sync.Mutex
	raw  strings.Builder // guarded by mu
	more chan struct{}
}

// patience bounds a hang.
const patience = 30 * time.Second

// Play starts the program on a terminal of this size, which is killed at the end
// of the test. A size of zero is that of a terminal that does not say it.
func Play(t testing.TB, width, height int, cmd *exec.Cmd) *Terminal {
	t.Helper()
	opened, side, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// A read that cannot be ended would keep the terminal open when it is
	// closed, so this side must be one that does not block.
	fd, err := unix.FcntlInt(opened.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = opened.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	tty := os.NewFile(uintptr(fd), "terminal")
	c := &Terminal{
		t: t, tty: tty, fd: fd, side: side, cmd: cmd, emu: vt.NewSafeEmulator(cmp.Or(width, 80), cmp.Or(height, 24)),
		done: make(chan error, 1), more: make(chan struct{}, 1),
	}
	c.Resize(width, height)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		var b [4096]byte
		for {
			n, err := tty.Read(b[:])
			c.mu.Lock()
			c.raw.Write(b[:n])
			c.mu.Unlock()
			c.drawing.Lock()
			_, _ = c.emu.Write(b[:n])
			c.drawing.Unlock()
			select {
			case c.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	// What the program asks a terminal, the emulator answers.
	go func() { _, _ = io.Copy(tty, c.emu) }()
	go func() { c.done <- c.cmd.Wait() }()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // most often over already
		// Not the emulator's Close, which races with its Read.
		if pipe, ok := c.emu.InputPipe().(io.Closer); ok {
			_ = pipe.Close()
		}
		_ = side.Close()
		_ = tty.Close()
	})
	return c
}

// Resize makes the terminal another size.
func (c *Terminal) Resize(width, height int) {
	c.t.Helper()
	if width > 0 && height > 0 {
		c.drawing.Lock()
		c.emu.Resize(width, height)
		c.drawing.Unlock()
	}
	if err := unix.IoctlSetWinsize(c.fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)}); err != nil {
		c.t.Fatal(err)
	}
}

// Screen is what a person sees now.
func (c *Terminal) Screen() string {
	c.drawing.Lock()
	defer c.drawing.Unlock()
	return c.emu.String()
}

// Output is every byte that the program has written.
func (c *Terminal) Output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// Until waits until what is true, which can only change with output.
func (c *Terminal) Until(what string, is func() bool) {
	c.t.Helper()
	limit := time.After(patience)
	for !is() {
		select {
		case <-c.more:
		case <-time.After(50 * time.Millisecond): // a child's state changes without output
		case <-limit:
			c.t.Fatalf("%s does not happen; the screen is\n%s", what, c.Screen())
		}
	}
}

// Sees waits until the screen has the text.
func (c *Terminal) Sees(text string) {
	c.t.Helper()
	c.Until("seeing "+text, func() bool { return strings.Contains(c.Screen(), text) })
}

// SeesNot waits until the screen does not have the text.
func (c *Terminal) SeesNot(text string) {
	c.t.Helper()
	c.Until("not seeing "+text, func() bool { return !strings.Contains(c.Screen(), text) })
}

// Types types keys, as the terminal sends them.
func (c *Terminal) Types(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.tty, keys); err != nil {
		c.t.Fatal(err)
	}
}

// Ends waits for the program's end and gives its exit status, and 1000 and the
// signal for one that a signal killed.
func (c *Terminal) Ends() int {
	c.t.Helper()
	select {
	case err := <-c.done:
		var exit *exec.ExitError
		switch {
		case err == nil:
			return 0
		case errors.As(err, &exit):
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return 1000 + int(ws.Signal()) // no exit of its own
			}
			return exit.ExitCode()
		default:
			c.t.Fatal(err)
		}
	case <-time.After(patience):
		c.t.Fatalf("the program does not end; the screen is\n%s", c.Screen())
	}
	return -1
}

// Sane fails unless the terminal is as it was before.
func (c *Terminal) Sane() {
	c.t.Helper()
	c.Until("a cooked terminal", func() bool {
		mode, err := unix.IoctlGetTermios(int(c.side.Fd()), unix.TCGETS)
		if err != nil {
			c.t.Fatal(err)
		}
		want := uint32(unix.ECHO | unix.ICANON | unix.ISIG)
		return mode.Lflag&want == want
	})
	for _, m := range []struct{ what, on, off string }{
		{"the alternate screen", "\x1b[?1049h", "\x1b[?1049l"},
		{"mouse reports", "\x1b[?1002h", "\x1b[?1002l"},
		{"paste brackets", "\x1b[?2004h", "\x1b[?2004l"},
		{"a hidden cursor", "\x1b[?25l", "\x1b[?25h"},
	} {
		c.Until("end of "+m.what, func() bool {
			out := c.Output()
			return strings.LastIndex(out, m.on) <= strings.LastIndex(out, m.off)
		})
	}
}

// Signal sends the program a signal.
func (c *Terminal) Signal(s os.Signal) {
	_ = c.cmd.Process.Signal(s) // it may have ended
}

// HangUp takes the terminal away.
func (c *Terminal) HangUp() {
	c.t.Helper()
	if err := errors.Join(c.side.Close(), c.tty.Close()); err != nil {
		c.t.Fatal(err)
	}
}
