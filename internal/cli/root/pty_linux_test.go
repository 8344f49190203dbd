package root

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// playEnv makes the test program be maf-sandbox over a fake engine.
const playEnv = "MAF_SANDBOX_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) == "" {
		os.Exit(m.Run())
	}
	f := cli.New()
	e := &clitest.Engine{Programs: map[string]clitest.Script{
		"print('\\x1b[2J')":  clitest.Prints("\x1b[2Jx\n", "", 0),
		"6*7":                clitest.Values("42"),
		"def f():\n    pass": clitest.Prints("defined\n", "", 0),
		"while True: pass": func(ctx context.Context, req microvm.Request) (microvm.Result, error) {
			_, _ = req.Stdout.Write([]byte("started\n"))
			return clitest.Waits(make(chan struct{}, 1))(ctx, req)
		},
		"stubborn": func(_ context.Context, req microvm.Request) (microvm.Result, error) {
			_, _ = req.Stdout.Write([]byte("started\n"))
			select {}
		},
	}}
	f.Open = func(ctx context.Context, o cli.Options) (cli.Machine, microvm.Info, error) {
		if o.Image == "slow" {
			o.Progress("capturing python3")
			// Until the line is seen, the test presses no key.
			var b [1]byte
			_, _ = os.Stdin.Read(b[:])
		}
		return e.Open(ctx, o)
	}
	os.Exit(Run(context.Background(), f, os.Args[1:]))
}

// console is a program on a terminal.
type console struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	done chan error

	mu     sync.Mutex // guards screen
	screen bytes.Buffer
	more   chan struct{}
}

func play(t *testing.T, args ...string) *console {
	t.Helper()
	c := &console{t: t, done: make(chan error, 1), more: make(chan struct{}, 1)}
	c.cmd = exec.Command(os.Args[0], args...)
	c.cmd.Env = append(os.Environ(), playEnv+"=1", "TERM=xterm", cli.CacheEnv+"="+filepath.Join(t.TempDir(), "cache"))
	tty, err := pty.StartWithSize(c.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	c.tty = tty
	read := make(chan struct{})
	go func() {
		defer close(read)
		var b [4096]byte
		for {
			n, err := tty.Read(b[:])
			c.mu.Lock()
			c.screen.Write(b[:n])
			c.mu.Unlock()
			select {
			case c.more <- struct{}{}:
			default:
			}
			if err != nil {
				return // EIO when the program is gone
			}
		}
	}()
	go func() {
		err := c.cmd.Wait()
		<-read
		c.done <- err
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // most often over already
		_ = tty.Close()
	})
	return c
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.String()
}

// wait waits until the screen has seen want n times.
func (c *console) wait(want string, n int) {
	c.t.Helper()
	limit := time.After(30 * time.Second)
	for strings.Count(c.text(), want) < n {
		select {
		case <-c.more:
		case <-limit:
			c.t.Fatalf("%q was not seen %d times in %q", want, n, c.text())
		}
	}
}

func (c *console) typed(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.tty, keys); err != nil {
		c.t.Fatal(err)
	}
}

// end waits for the program's end and gives its status, that of a shell for a
// program ended by a signal.
func (c *console) end() int {
	c.t.Helper()
	select {
	case err := <-c.done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return 0
		}
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	case <-time.After(30 * time.Second):
		c.t.Fatalf("the program does not end; screen %q", c.text())
		return -1
	}
}

func TestATerminalSeesControlsButDoesNotObeyThem(t *testing.T) {
	c := play(t, "run", "-c", `print('\x1b[2J')`)
	if status := c.end(); status != 0 || c.text() != "^[[2Jx\r\n" {
		t.Errorf("got %d, %q", status, c.text())
	}
}

func TestATerminalSeesProgressThatIsErased(t *testing.T) {
	c := play(t, "run", "--image", "slow", "--echo", "-c", "6*7")
	c.wait("capturing python3 (", 1) // and the seconds, of which a busy machine may skip some
	c.typed("\n")
	if status := c.end(); status != 0 || !strings.HasSuffix(c.text(), "\r\x1b[K42\r\n") {
		t.Errorf("got %d, %q", status, c.text())
	}
}

func TestCtrlCEndsARunWith130(t *testing.T) {
	c := play(t, "run", "-c", "while True: pass")
	c.wait("started", 1)
	c.typed("\x03")
	if status := c.end(); status != 130 {
		t.Errorf("got %d, %q", status, c.text())
	}
}

func TestASecondCtrlCKillsARunThatDoesNotEnd(t *testing.T) {
	c := play(t, "run", "-c", "stubborn")
	c.wait("started", 1)
	c.typed("\x03")
	c.wait("^C", 1)
	// The first one may not have been handled yet; more of them do no harm.
	for {
		select {
		case err := <-c.done:
			c.done <- err
			if status := c.end(); status != 130 {
				t.Errorf("got %d, %q", status, c.text())
			}
			return
		case <-time.After(50 * time.Millisecond):
			c.typed("\x03")
		}
	}
}

func TestAConversationOnATerminal(t *testing.T) {
	c := play(t, "repl")
	c.wait(">>> ", 1)
	c.typed("6*7\r")
	c.wait("42", 1)

	// A statement of several lines, its body indented with Tab.
	c.typed("def f():\r")
	c.wait("... ", 1)
	c.typed("\tpass\r\r")
	c.wait("defined", 1)

	// Ctrl-C at the prompt gives up the line.
	c.typed("6*")
	c.wait("6*", 2)
	c.typed("\x03")
	c.wait("KeyboardInterrupt", 1)

	// Ctrl-C while a program runs interrupts that.
	c.typed("while True: pass\r")
	c.wait("... ", 2)
	c.typed("\r")
	c.wait("started", 1)
	c.typed("\x03")
	c.wait("KeyboardInterrupt", 2)

	// The line before comes back with the arrow key.
	c.typed("6*7\r")
	c.wait("42", 2)
	c.typed("\x1b[A\r")
	c.wait("42", 3)

	c.typed("\x04")
	if status := c.end(); status != 0 {
		t.Errorf("got %d, %q", status, c.text())
	}
}

func TestATerminalIsPutBackWhenTheConversationIsTerminated(t *testing.T) {
	c := play(t, "repl")
	c.wait(">>> ", 1)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := c.end(); status != 143 {
		t.Errorf("got %d, %q", status, c.text())
	}
	mode, err := unix.IoctlGetTermios(int(c.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint32(unix.ECHO | unix.ICANON | unix.ISIG); mode.Lflag&want != want {
		t.Errorf("the terminal is left with local modes %#x", mode.Lflag)
	}
}
