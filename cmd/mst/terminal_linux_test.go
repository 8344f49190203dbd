package main

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

// terminal is a terminal with mst on it.
type terminal struct {
	t    *testing.T
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

func play(t *testing.T, width, height int, env string, args ...string) *terminal {
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
	c := &terminal{t: t, tty: tty, fd: fd, side: side, emu: vt.NewSafeEmulator(cmp.Or(width, 80), cmp.Or(height, 24)), done: make(chan error, 1), more: make(chan struct{}, 1)}
	c.resize(width, height)
	c.cmd = exec.Command(os.Args[0], args...)
	c.cmd.Env = append(os.Environ(), playEnv+"="+env, "TERM="+cmp.Or(os.Getenv(termEnv), "xterm-256color"), "MAF_SANDBOX_TUI_RUNTIME_DIR="+cmp.Or(os.Getenv(dirEnv), t.TempDir()+"/none"), "TMPDIR="+t.TempDir())
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = side, side, side
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
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

func (c *terminal) resize(width, height int) {
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

func (c *terminal) screen() string {
	c.drawing.Lock()
	defer c.drawing.Unlock()
	return c.emu.String()
}

func (c *terminal) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// until waits until what is true, which can only change with output.
func (c *terminal) until(what string, is func() bool) {
	c.t.Helper()
	limit := time.After(patience)
	for !is() {
		select {
		case <-c.more:
		case <-time.After(50 * time.Millisecond): // a child's state changes without output
		case <-limit:
			c.t.Fatalf("%s does not happen; the screen is\n%s", what, c.screen())
		}
	}
}

func (c *terminal) sees(text string) {
	c.t.Helper()
	c.until("seeing "+text, func() bool { return strings.Contains(c.screen(), text) })
}

func (c *terminal) seesNot(text string) {
	c.t.Helper()
	c.until("not seeing "+text, func() bool { return !strings.Contains(c.screen(), text) })
}

func (c *terminal) types(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.tty, keys); err != nil {
		c.t.Fatal(err)
	}
}

func (c *terminal) ends() int {
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
		c.t.Fatalf("the program does not end; the screen is\n%s", c.screen())
	}
	return -1
}

// sane fails unless the terminal is as it was before.
func (c *terminal) sane() {
	c.t.Helper()
	c.until("a cooked terminal", func() bool {
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
		c.until("end of "+m.what, func() bool {
			out := c.output()
			return strings.LastIndex(out, m.on) <= strings.LastIndex(out, m.off)
		})
	}
}
