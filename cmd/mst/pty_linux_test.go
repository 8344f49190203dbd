package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/console"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/terminaltest"
)

// playEnv makes the test program be mst; its value says which.
const playEnv = "MST_TEST_PLAY"

// dirEnv is the discovery folder, when there is one.
const dirEnv = "MST_TEST_DIRECTORY"

// termEnv is the kind of terminal, when it is not an ordinary one.
const termEnv = "MST_TEST_TERM"

func TestMain(m *testing.M) {
	switch os.Getenv(playEnv) {
	case "":
		heedHangups()
		os.Exit(m.Run())
	case "host":
		victim()
	case "panic":
		f := command.New()
		f.Console = func(ctx context.Context, _ *fleet.Fleet) error {
			return console.Run(ctx, &panicking{}, console.Config{Interval: time.Hour})
		}
		os.Exit(command.Main(f))
	}
	main()
}

// victim is a host, until it is killed.
func victim() {
	server, err := control.NewServer(control.ServerConfig{Control: control.NewMemory(sandbox("victim", "t-1", "victim-a")), SourceID: "victim", Directory: os.Getenv(dirEnv)})
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test at the latest
	os.Exit(0)
}

// play starts mst on a terminal.
func play(t *testing.T, width, height int, env string, args ...string) *terminaltest.Terminal {
	t.Helper()
	return playAway(t, 0, width, height, env, args...)
}

// playAway starts mst on a terminal that is away: it answers late.
func playAway(t *testing.T, away time.Duration, width, height int, env string, args ...string) *terminaltest.Terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), playEnv+"="+env, "TERM="+cmp.Or(os.Getenv(termEnv), "xterm-256color"), "MAF_SANDBOX_TUI_RUNTIME_DIR="+cmp.Or(os.Getenv(dirEnv), t.TempDir()+"/none"), "TMPDIR="+t.TempDir())
	return terminaltest.Play(t, width, height, cmd, terminaltest.AnswersAfter(away))
}

func TestAConversationWithTheConsole(t *testing.T) {
	c := play(t, 140, 36, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3")
	c.Sees("● mst-demo 3")
	c.Types("\x1b[B")
	c.Sees("▸● RUNNING")
	c.Types("d")
	c.Sees("Dispose tenant-labs/incident-184/analyst?")
	c.Sees("9f15a25d8c0d4ea0ab1af045d9481001")
	c.Types("\r") // keeps
	c.SeesNot("DISPOSE PHYSICAL INSTANCE")
	c.Sees("LIVE INSTANCES 3")
	c.Types("d\t\r")
	c.Sees("Sandbox disposed.")
	c.Sees("LIVE INSTANCES 2")
	c.Types("/review\r")
	c.Sees("LIVE INSTANCES 1 of 2")
	c.Types("p")
	c.Sees("Type review-711 to confirm")
	c.Types("review-711\t\r")
	c.Sees("Conversation purged across 1 host(s). Disposed: 1.")
	c.Types("?")
	c.Sees("KEYS")
	c.Types("\x1b")
	c.SeesNot("KEYS")
	c.Types("\x1b")
	c.Sees("LIVE INSTANCES 1 ")
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

// host starts a host and gives its end.
func host(t *testing.T, directory, source string, c control.Control) (stop func()) {
	t.Helper()
	server, err := control.NewServer(control.ServerConfig{Control: c, SourceID: source, Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // most often closed already
	return func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// sandbox is a record of a host.
func sandbox(source, thread, id string) control.Record {
	now := control.At(time.Now())
	return control.Record{
		SourceID: source, Backend: "microvm", Scope: "team", ThreadID: thread, AgentID: "agent", Kind: "python", InstanceID: id,
		State: control.StateReady, CreatedAt: now - 100, LastActivityAt: now - 5,
	}
}

func TestHostsComeAndGoUnderTheConsole(t *testing.T) {
	dir := t.TempDir() + "/hosts"
	t.Setenv(dirEnv, dir)
	c := play(t, 140, 36, "mst")
	c.Sees("No live sandboxes. Start an opted-in MAF host")

	one := control.NewMemory(sandbox("one", "t-1", "one-a"), sandbox("one", "t-2", "one-b"))
	two := control.NewMemory(sandbox("two", "t-1", "two-a"))
	host(t, dir, "one", one)
	stop := host(t, dir, "two", two)
	c.Sees("● one 2")
	c.Sees("● two 1")
	c.Sees("LIVE INSTANCES 3")

	// One by its key and the dialog.
	c.Types("/t-2\r")
	c.Sees("LIVE INSTANCES 1 of 3")
	c.Types("d")
	c.Sees("Dispose team/t-2/agent?")
	c.Types("\t\r")
	c.Sees("Sandbox disposed. team/t-2/agent")
	c.Types("\x1b")
	c.Sees("LIVE INSTANCES 2 ")

	// A conversation on both hosts.
	c.Types("p")
	c.Sees("Sandboxes: 2 on 2 hosts.")
	c.Types("t-1\t\r")
	c.Sees("Conversation purged across 2 host(s). Disposed: 2.")
	c.Sees("No live sandboxes.")

	// One goes in good order; one dies and leaves its announcement.
	stop()
	c.SeesNot("● two 0")
	if err := os.WriteFile(dir+"/0-dead.json", []byte(`{"source_id": "dead", "endpoint": "http://127.0.0.1:9", "process_id": 12, "protocol_version": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Sees("✗ dead unavailable")
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

func TestAHostThatIsKilledUnderTheConsoleIsNamedAndBlocksNothing(t *testing.T) {
	dir := t.TempDir() + "/hosts"
	t.Setenv(dirEnv, dir)
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), playEnv+"=host")
	alive, err := killed.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alive.Close() }()
	ready, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(ready, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	host(t, dir, "witness", control.NewMemory(sandbox("witness", "t-9", "witness-a"), sandbox("witness", "t-8", "witness-b")))
	c := play(t, 140, 36, "mst")
	c.Sees("● victim 1")
	c.Sees("● witness 2")
	c.Types("d")
	c.Sees("Dispose team/t-1/agent?")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it says that it was killed
	c.Sees("✗ victim unavailable")
	c.Sees("This generation is gone or has changed.")
	c.Types("\t\r")
	c.SeesNot("DISPOSE PHYSICAL INSTANCE")
	c.Sees("host victim: control endpoint is unavailable")

	// A host that is known to be gone is no reason to keep anything elsewhere.
	c.Types("d")
	c.Sees("Dispose team/t-8/agent?")
	if screen := c.Screen(); strings.Contains(screen, "until every host answers") {
		t.Errorf("the dialog warns of a host that is gone:\n%s", screen)
	}
	c.Types("\t\r")
	c.Sees("Sandbox disposed. team/t-8/agent")
	c.Sees("● witness 1") // the row that is left is chosen now
	c.Types("p")
	c.Sees("Type t-9 to confirm")
	c.Types("t-9\t\r")
	c.Sees("Conversation purged across 1 host(s). Disposed: 1.")
	c.Sees("✗ victim unavailable")

	// The next host clears away what the dead one has left.
	host(t, dir, "next", control.NewMemory(sandbox("next", "t-2", "next-a")))
	c.Sees("● next 1")
	c.SeesNot("victim unavailable")
	c.Types("d")
	c.Sees("Dispose team/t-2/agent?")
	c.Types("\t\r")
	c.Sees("Sandbox disposed. team/t-2/agent")
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

func TestResizesAreFollowedAndLeaveNothingBehind(t *testing.T) {
	c := play(t, 80, 24, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3")
	for _, size := range [][2]int{{20, 5}, {1, 1}, {200, 60}, {40, 10}, {103, 30}, {102, 30}, {39, 9}, {60, 12}} {
		c.Resize(size[0], size[1])
	}
	c.Sees("LIVE INSTANCES 3")
	c.Resize(39, 9)
	c.Sees("mst needs 40×10")
	c.Resize(140, 36)
	c.Sees("PHYSICAL SANDBOX")
	c.Sees("q Quit")
	if screen := c.Screen(); strings.Contains(screen, "mst needs") || strings.Count(screen, "LIVE INSTANCES") != 1 {
		t.Errorf("something is left behind:\n%s", screen)
	}
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestATerminalThatDoesNotSayItsSizeIsNoProblem(t *testing.T) {
	c := play(t, 0, 0, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3") // in 80 columns and 24 lines
	c.Types("q")
	if status := c.Ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
}

func TestAQuestionAtThePromptIsAnsweredByAPerson(t *testing.T) {
	const id = "9f15a25d8c0d4ea0ab1af045d9481001"
	for _, r := range []struct {
		name, id, typed, want string
		status                int
	}{
		{"yes", id, "y\r", "disposed: Sandbox disposed.", 0},
		{"yes to the beginning of an id", id[:4], "y\r", "disposed: Sandbox disposed. (" + id + ")", 0},
		{"no", id, "n\r", "Sandbox kept.", 4},
		{"the end of input", id, "\x04", "Sandbox kept.", 4},
		{"ctrl+c", id, "\x03", "[y/N]", 130},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := play(t, 120, 24, "mst", "--demo", "delete", r.id)
			c.Sees("Dispose tenant-labs/incident-184/analyst (" + id + ")? [y/N]")
			c.Types(r.typed)
			if status := c.Ends(); status != r.status {
				t.Errorf("exit status %d, want %d", status, r.status)
			}
			c.Sees(r.want)
			c.Until("a new line for the shell's prompt", func() bool { return strings.HasSuffix(c.Output(), "\n") })
		})
	}
}

// slowHost takes its time to dispose of anything.
type slowHost struct {
	control.Control
	asked chan struct{}
}

func (h slowHost) Dispose(ctx context.Context, _ string, _ time.Duration) (control.DisposalResult, error) {
	close(h.asked)
	<-ctx.Done()
	return control.DisposalResult{}, ctx.Err()
}

func TestCtrlCDuringADisposalEndsTheWaitForIt(t *testing.T) {
	dir := t.TempDir() + "/hosts"
	t.Setenv(dirEnv, dir)
	slow := slowHost{control.NewMemory(sandbox("one", "t-1", "one-a")), make(chan struct{})}
	host(t, dir, "one", slow)
	c := play(t, 120, 24, "mst", "delete", "one-a", "--yes")
	select {
	case <-slow.asked:
	case <-time.After(30 * time.Second):
		t.Fatal("the host is not asked")
	}
	c.Types("\x03")
	if status := c.Ends(); status != 130 {
		t.Errorf("exit status %d", status)
	}
	c.Sane()
	if strings.Contains(c.Output(), "disposed:") {
		t.Errorf("it says that it was done: %q", c.Output())
	}
}

func TestACommandThatWaitsForAHostSaysSo(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, args := range [][]string{{"list"}, {"hosts"}, {"show", "x"}, {"watch"}, {"purge-thread", "--scope", "s", "--thread", "t", "--yes"}} {
		t.Run(args[0], func(t *testing.T) {
			c := play(t, 100, 24, "mst", append(args, "--endpoint", "http://"+silent.Addr().String())...)
			c.Sees("waiting for the")
			c.Signal(syscall.SIGINT)
			if status := c.Ends(); status != 130 {
				t.Errorf("exit status %d", status)
			}
			c.SeesNot("waiting for the")
		})
	}
}

func TestWhatIsNoTerminalGetsNoConsole(t *testing.T) {
	const refusal = "the console needs a terminal"
	t.Setenv(termEnv, "dumb")
	c := play(t, 120, 24, "mst", "--demo")
	if status := c.Ends(); status != 2 {
		t.Errorf("on a dumb terminal: exit status %d", status)
	}
	c.Sees(refusal)

	cmd := exec.Command(os.Args[0], "--demo")
	cmd.Env = append(os.Environ(), playEnv+"=mst")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), refusal) {
		t.Errorf("in a pipe: got %v, %q", err, out)
	}
}

func TestNoColorMeansNoColour(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	c := play(t, 80, 24, "mst", "--demo")
	c.Sees("LIVE INSTANCES 3")
	c.Types("q")
	_ = c.Ends()
	for _, style := range regexp.MustCompile(`\x1b\[([0-9;]*)m`).FindAllStringSubmatch(c.Output(), -1) {
		for parameter := range strings.SplitSeq(style[1], ";") {
			if n, err := strconv.Atoi(parameter); err == nil && (n >= 30 && n <= 48 && n != 39 || n >= 90) {
				t.Fatalf("colour: %q", style[0])
			}
		}
	}
}

// heedHangups lets the programs that the tests start hear of a hang-up, although
// this one may have been started by nohup: a signal that is handled has its
// ordinary effect in children, one that is ignored has none there either.
func heedHangups() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }
