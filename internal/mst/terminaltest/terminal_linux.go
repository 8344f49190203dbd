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

	"github.com/charmbracelet/x/ansi"
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
	held    *string // by drawing: the screen until the frame under way is whole
	done    chan error
	away    time.Duration

	mu   sync.Mutex
	raw  strings.Builder // guarded by mu
	more chan struct{}
}

// patience bounds a hang.
const patience = 30 * time.Second

// Option is a property of a terminal.
type Option func(*Terminal)

// AnswersAfter has the terminal answer the program's questions after a time, as
// one at the other end of a network.
func AnswersAfter(away time.Duration) Option {
	return func(c *Terminal) { c.away = away }
}

// Play starts the program on a terminal of this size, which is killed at the end
// of the test. A size of zero is that of a terminal that does not say it.
func Play(t testing.TB, width, height int, cmd *exec.Cmd, options ...Option) *Terminal {
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
	for _, option := range options {
		option(c)
	}
	c.holdFrames()
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
	c.answer()
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

// holdFrames has the screen change a whole frame at a time for a program that
// says where its frames begin and end, as terminals with synchronized output
// (DEC private mode 2026) do. Without it a look at the screen may meet half of
// one.
func (c *Terminal) holdFrames() {
	// The emulator says of modes that were switched that it knows them.
	_, _ = c.emu.WriteString(ansi.ResetModeSynchronizedOutput)
	// Called while the emulator draws, so its lock and drawing are held.
	c.emu.SetCallbacks(vt.Callbacks{
		EnableMode: func(mode ansi.Mode) {
			if mode == ansi.ModeSynchronizedOutput && c.held == nil {
				screen := c.emu.Emulator.String()
				c.held = &screen
			}
		},
		DisableMode: func(mode ansi.Mode) {
			if mode == ansi.ModeSynchronizedOutput {
				c.held = nil
			}
		},
	})
}

// answer has the emulator answer what the program asks a terminal.
func (c *Terminal) answer() {
	type answer struct {
		text []byte
		due  time.Time
	}
	answers := make(chan answer, 1000)
	go func() {
		defer close(answers)
		for {
			b := make([]byte, 256)
			n, err := c.emu.Read(b)
			if n > 0 {
				answers <- answer{b[:n], time.Now().Add(c.away)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for a := range answers {
			time.Sleep(time.Until(a.due)) // the network
			if _, err := c.tty.Write(a.text); err != nil {
				return
			}
		}
	}()
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
	if c.held != nil {
		return *c.held
	}
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

// A mode is switched on and off by what a program writes.
type mode struct{ what, on, off string }

// modes are those that a console uses.
var modes = []mode{
	{"the alternate screen", "\x1b[?1049h", "\x1b[?1049l"},
	{"mouse reports", "\x1b[?1002h", "\x1b[?1002l"},
	{"mouse reports of every place", "\x1b[?1006h", "\x1b[?1006l"},
	{"paste brackets", "\x1b[?2004h", "\x1b[?2004l"},
	{"a hidden cursor", "\x1b[?25l", "\x1b[?25h"},
	{"reports of other keys", "\x1b[>4;2m", "\x1b[>4m"},
	{"the keyboard protocol", "\x1b[>1u", "\x1b[<1u"},
}

// Started waits until every mode has been switched on.
func (c *Terminal) Started() {
	c.t.Helper()
	for _, m := range modes {
		c.Until("the beginning of "+m.what, func() bool { return strings.Contains(c.Output(), m.on) })
	}
}

// Sane fails unless the terminal is as it was before, and no answer of it is
// left for who reads from it next. The program has ended or is suspended.
func (c *Terminal) Sane() {
	c.t.Helper()
	c.Until("a cooked terminal", func() bool {
		want := uint32(unix.ECHO | unix.ICANON | unix.ISIG)
		return c.mode().Lflag&want == want
	})
	for _, m := range modes {
		c.Until("the end of "+m.what, func() bool {
			out := c.Output()
			return strings.LastIndex(out, m.on) <= strings.LastIndex(out, m.off)
		})
	}
	c.Until("the end of the last frame", func() bool {
		c.drawing.Lock()
		defer c.drawing.Unlock()
		return c.held == nil
	})
	if left := c.Unread(); left != "" {
		c.t.Errorf("%q is left for who reads next", left)
	}
}

func (c *Terminal) mode() *unix.Termios {
	c.t.Helper()
	mode, err := unix.IoctlGetTermios(int(c.side.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return mode
}

// Unread reads what the program has left unread, and what the terminal answered
// to it late. The program has ended or is suspended.
func (c *Terminal) Unread() string {
	c.t.Helper()
	before := c.mode()
	raw := *before
	raw.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	raw.Iflag &^= unix.ICRNL
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1
	set := func(mode *unix.Termios) {
		if err := unix.IoctlSetTermios(int(c.side.Fd()), unix.TCSETS, mode); err != nil {
			c.t.Fatal(err)
		}
	}
	set(&raw)
	defer set(before)
	// No program of ours asks for the status, so its report is the last answer.
	// This emulator reports as to a DEC question.
	const question, report = "\x1b[5n", "\x1b[?0n"
	if _, err := io.WriteString(c.side, question); err != nil {
		c.t.Fatal(err)
	}
	var left []byte
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		var b [256]byte
		n, err := unix.Read(int(c.side.Fd()), b[:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			c.t.Fatal(err)
		}
		left = append(left, b[:max(0, n)]...)
		if all, done := strings.CutSuffix(string(left), report); done {
			return all
		}
	}
	c.t.Fatalf("the terminal does not report its status; it sent %q", left)
	return ""
}

// Resumes has a program that is suspending itself give the terminal back, and go on
// until it has painted the text again.
func (c *Terminal) Resumes(text string) {
	c.t.Helper()
	const on, off = "\x1b[?1049h", "\x1b[?1049l"
	c.Until("leaving the alternate screen", func() bool {
		out := c.Output()
		return strings.LastIndex(out, on) < strings.LastIndex(out, off)
	})
	c.Sane()
	before := len(c.Output())
	c.Until("painting again", func() bool {
		// One that comes before the program waits for it is lost: there is no
		// shell here that would stop it first.
		c.Signal(syscall.SIGCONT)
		return strings.Contains(c.Output()[before:], text)
	})
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
