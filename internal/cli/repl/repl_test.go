package repl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func programs() map[string]clitest.Script {
	return map[string]clitest.Script{
		"x = 6":                     clitest.Prints("", "", 0),
		"x * 7":                     clitest.Values("42"),
		"def f():\n  return 1":      clitest.Prints("", "", 0),
		"1/0":                       clitest.Prints("", "Traceback\nZeroDivisionError\n", 1),
		"print('half', end='')":     clitest.Prints("half", "", 0),
		"import os; os._exit(7)":    clitest.Exits(7),
		"crash":                     clitest.Fails("", "", clitest.Failure(sandbox.ErrGuestCrash, false, "the interpreter crashed")),
		"slow":                      clitest.Fails("", "", clitest.Failure(sandbox.ErrTimeout, true, "time limit of 1s reached")),
		"print('\x1b[2J')":          clitest.Prints("\x1b[2J\n", "", 0),
		"for i in range(2):\n  i":   clitest.Prints("0\n1\n", "", 0),
		"for i in range(2):\n  i\n": clitest.Prints("0\n1\n", "", 0),
	}
}

func talk(t *testing.T, e *clitest.Engine, stdin string) (stdout, stderr string, err error) {
	t.Helper()
	s, out, errOut := streams.Test(stdin)
	f, _ := e.Factory(s, t.TempDir())
	cmd := NewCmd(f, nil)
	cmd.SetArgs([]string{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(context.Background())
	return out.String(), errOut.String(), err
}

const retired = "maf-sandbox: the sandbox is retired; going on with a fresh one, names are lost\n"

func TestAConversationFromAPipe(t *testing.T) {
	for _, r := range []struct {
		name           string
		in             string
		stdout, stderr string
		opened, resets int
	}{
		{"values are shown, prompts are not", "x = 6\nx * 7\n", "42\n", "", 1, 0},
		{"the last line needs no line break", "x * 7", "42\n", "", 1, 0},
		{"the end finishes a statement", "for i in range(2):\n  i", "0\n1\n", "", 1, 0},
		{"several lines make a statement", "def f():\n  return 1\n\nx * 7\n", "42\n", "", 1, 0},
		{"an exception is not the end", "1/0\nx * 7\n", "42\n", "Traceback\nZeroDivisionError\n", 1, 0},
		{"a time limit is not the end", "slow\nx * 7\n", "42\n", "maf-sandbox: time limit of 1s reached\n", 1, 0},
		{"reset", ":reset\nx * 7\n", "42\n", "", 1, 1},
		{"quit", ":quit\nx * 7\n", "", "", 1, 0},
		{"exit as Python has it", "exit()\nx * 7\n", "", "", 1, 0},
		{"an unknown command", ":nope\n", "", "no command :nope; :help lists them\n", 1, 0},
		{"a command with too much", ":reset now\n", "", ":reset takes nothing after it\n", 1, 0},
		{"a crash brings a fresh sandbox", "crash\nx * 7\n", "42\n", "maf-sandbox: the interpreter crashed\n" + retired, 2, 0},
		{"so does an exit", "import os; os._exit(7)\nx * 7\n", "42\n", "maf-sandbox: the program ended its interpreter with status 7\n" + retired, 2, 0},
		{"pipes get output as it is", "print('half', end='')\nprint('\x1b[2J')\n", "half\x1b[2J\n", "", 1, 0},
		{"nothing at all", "", "", "", 1, 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			e := &clitest.Engine{Programs: programs()}
			stdout, stderr, err := talk(t, e, r.in)
			if err != nil || stdout != r.stdout || stderr != r.stderr {
				t.Errorf("got %v, %q, %q; want %q, %q", err, stdout, stderr, r.stdout, r.stderr)
			}
			if opened, resets, closed := e.Counts(); opened != r.opened || resets != r.resets || closed != opened {
				t.Errorf("%d opened, %d resets, %d closed; want %d, %d, all", opened, resets, closed, r.opened, r.resets)
			}
		})
	}
}

func TestAConversationOnATerminalSaysWhenTheCeilingIsTheWeakestOne(t *testing.T) {
	for _, r := range []struct {
		name   string
		limits microvm.Enforcement
		asked  string
		tty    bool
		said   bool
	}{
		{"chosen for the user", microvm.EnforceRlimit, "auto", true, true},
		{"asked for", microvm.EnforceRlimit, "rlimit", true, false},
		{"a stronger one", microvm.EnforceCgroup, "auto", true, false},
		{"nobody there to read it", microvm.EnforceRlimit, "auto", false, false},
	} {
		s, _, errOut := streams.Test("")
		s.ErrTTY = r.tty
		f, _ := (&clitest.Engine{Limits: r.limits}).Factory(s, t.TempDir())
		cmd := NewCmd(f, nil)
		cmd.SetArgs([]string{"--limits", r.asked})
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(errOut.String(), "bounded by rlimit"); said != r.said {
			t.Errorf("%s: %q", r.name, errOut)
		}
	}
}

func TestTimeSaysHowLongAStatementTook(t *testing.T) {
	s, out, errOut := streams.Test(":time x * 7\nx = 6\n:time\nx = 6\n:time\nx = 6\n")
	e := &clitest.Engine{Programs: programs()}
	f, _ := e.Factory(s, t.TempDir())
	now := time.Unix(0, 0)
	o := &Options{Factory: f, Editor: NewEditor, Now: func() time.Time { now = now.Add(1500 * time.Microsecond); return now }}
	if err := run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if want := "1.5ms\ntiming is on\n1.5ms\ntiming is off\n"; errOut.String() != want || out.String() != "42\n" {
		t.Errorf("got %q and %q, want %q", out, errOut, want)
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	stdout, _, _ := talk(t, &clitest.Engine{}, ":help\n")
	for _, c := range commands() {
		if !strings.Contains(stdout, c.name) {
			t.Errorf("help lacks %s: %q", c.name, stdout)
		}
	}
}

func TestInterruptStopsTheProgramAndKeepsTheSandbox(t *testing.T) {
	started := make(chan struct{})
	e := &clitest.Engine{Programs: programs()}
	e.Programs["loop"] = clitest.Waits(started)
	s, out, errOut := streams.Test("loop\nx * 7\n")
	f, signals := e.Factory(s, t.TempDir())
	done := make(chan error)
	go func() { done <- run(context.Background(), &Options{Factory: f, Editor: NewEditor, Now: time.Now}) }()
	<-started
	signals <- os.Interrupt
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if opened, _, _ := e.Counts(); opened != 1 || out.String() != "42\n" || errOut.String() != "Traceback\nKeyboardInterrupt\n" {
		t.Errorf("%d opened, %q, %q", opened, out, errOut)
	}
}

func TestTerminateEndsTheConversation(t *testing.T) {
	for _, r := range []struct {
		name string
		sig  os.Signal
		want int
		in   string
	}{
		{"while a program runs", syscall.SIGTERM, 143, "loop\n"},
		{"hang up", syscall.SIGHUP, 129, "loop\n"},
	} {
		t.Run(r.name, func(t *testing.T) {
			started := make(chan struct{})
			e := &clitest.Engine{Programs: map[string]clitest.Script{"loop": clitest.Waits(started)}}
			s, _, _ := streams.Test(r.in)
			f, signals := e.Factory(s, t.TempDir())
			done := make(chan error)
			go func() { done <- run(context.Background(), &Options{Factory: f, Editor: NewEditor, Now: time.Now}) }()
			<-started
			signals <- r.sig
			if got := cli.ExitStatus(<-done); got != r.want {
				t.Errorf("status %d, want %d", got, r.want)
			}
		})
	}
}

func TestASignalAtThePromptEndsTheConversation(t *testing.T) {
	s, _, _ := streams.Test("")
	e := &clitest.Engine{}
	f, signals := e.Factory(s, t.TempDir())
	asked := make(chan struct{})
	o := &Options{Factory: f, Now: time.Now, Editor: func(*streams.Streams, string) Editor { return silent{asked} }}
	done := make(chan error)
	go func() { done <- run(context.Background(), o) }()
	<-asked
	signals <- syscall.SIGTERM
	if got := cli.ExitStatus(<-done); got != 143 {
		t.Errorf("status %d, want 143", got)
	}
}

// silent is an editor whose user never types anything.
type silent struct{ asked chan struct{} }

func (s silent) Line(string) (string, error) {
	s.asked <- struct{}{}
	select {}
}

func (silent) Close() error { return nil }

func TestHistoryIsKeptPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "history")
	if err := saveHistory(lines("x = 1\n"), path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v; want mode 600", info, err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode().Perm() != 0o700 {
		t.Fatalf("got %v, %v; want mode 700", dir, err)
	}
	var h history
	loadHistory(&h, path)
	if h.text != "x = 1\n" {
		t.Errorf("read %q", h.text)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".history-*")); left != nil {
		t.Errorf("left over: %v", left)
	}
}

func TestHistoryIsNotReadThroughALink(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	var h history
	loadHistory(&h, filepath.Join(dir, "history"))
	if h.text != "" {
		t.Errorf("read %q", h.text)
	}
}
