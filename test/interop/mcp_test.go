//go:build linux && amd64

package interop

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/command"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/terminaltest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// mcpServer is maf-sandbox mcp --control with one client.
type mcpServer struct {
	t       *testing.T
	dir     string
	process *os.Process
	client  *sdk.ClientSession
	stderr  *bytes.Buffer // to be read after the end
}

// startMCP starts maf-sandbox mcp --control, announced as desk in the folder.
// The test is skipped where no sandbox can run.
func startMCP(t *testing.T, dir string, args ...string) *mcpServer {
	t.Helper()
	hosttest.Open(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	s := &mcpServer{t: t, dir: dir, stderr: &bytes.Buffer{}}
	args = append([]string{"mcp", "--control", "--control-name", "desk", "--limits", string(microvm.EnforceRlimit), "--engine", hosttest.Engine()}, args...)
	if hosttest.Engine() != host.KVM {
		args = append(args, "--min-isolation", sandbox.IsolationProcess.String())
	}
	c := exec.Command(cli.Program, args...)
	c.Env = append(os.Environ(), cli.CacheEnv+"="+cache, "MAF_SANDBOX_TUI_RUNTIME_DIR="+dir)
	c.Stderr = s.stderr
	client := sdk.NewClient(&sdk.Implementation{Name: "Interop Client", Version: "1"}, nil)
	var err error
	if s.client, err = client.Connect(t.Context(), &sdk.CommandTransport{Command: c}, nil); err != nil {
		t.Fatalf("%v\n%s", err, s.stderr)
	}
	s.process = c.Process
	t.Cleanup(func() { _ = s.client.Close() }) // most tests have ended it
	return s
}

// run calls execute_code.
func (s *mcpServer) run(code string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := s.client.CallTool(ctx, &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": code}})
	if err != nil {
		s.t.Errorf("%s: %v", code, err)
		return ""
	}
	return res.Content[0].(*sdk.TextContent).Text
}

const (
	lost    = "\n\nThe sandbox was lost: names, imports and files of earlier calls are gone."
	stopped = "Error: the program was stopped: its sandbox was disposed of by somebody else"
)

func (s *mcpServer) wants(code, want string) {
	s.t.Helper()
	if got := s.run(code); got != want {
		s.t.Errorf("%s: got %q, want %q", code, got, want)
	}
}

// endless starts a program that never ends and waits until it is seen to run.
func (s *mcpServer) endless() (result <-chan string) {
	s.t.Helper()
	ended := make(chan string, 1)
	go func() { ended <- s.run("while True: pass") }()
	c := discovered(s.t, s.dir, "desk")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for bound := time.After(patience); ; {
		if records := list(s.t, c); len(records) == 1 && records[0].State == control.StateRunning {
			return ended
		}
		select {
		case <-tick.C:
		case <-bound:
			s.t.Fatal("the program does not begin")
		}
	}
}

// parent is the parent of a process, as the kernel tells it.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	// The name in parentheses may have anything in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return ppid
}

// workerOf fails unless the record's process is a live worker of the server.
func (s *mcpServer) workerOf(r control.Record) {
	s.t.Helper()
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(r.ProcessID), "cmdline"))
	if err != nil || !bytes.HasPrefix(name, []byte("maf-sandbox-worker")) {
		s.t.Errorf("the worker %d: %q, %v", r.ProcessID, name, err)
	}
	// The supervisor is between them.
	if got := parent(s.t, parent(s.t, r.ProcessID)); got != s.process.Pid {
		s.t.Errorf("the worker %d is of %d, not of the server %d", r.ProcessID, got, s.process.Pid)
	}
}

func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for bound := time.After(patience); ; {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-tick.C:
		case <-bound:
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func TestThePythonConsoleSeesAndEndsTheSandboxesOfAnMCPServer(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		s := startMCP(t, dir)
		look := func(what string) []control.Record {
			t.Helper()
			return decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, what).stdout)
		}
		if records := look("list before any program"); len(records) != 0 {
			t.Errorf("before any program: %+v", records)
		}
		s.wants("x = 7; print(x)", "stdout:\n7")

		hosts := decode[[]map[string]any](t, mst(t, venv, dir, "hosts", "--json").must(t, 0, "hosts").stdout)
		if len(hosts) != 1 || hosts[0]["source_id"] != "desk" || hosts[0]["status"] != "healthy" || hosts[0]["process_id"] != float64(s.process.Pid) {
			t.Errorf("hosts: %v", hosts)
		}
		records := look("list")
		if len(records) != 1 {
			t.Fatalf("listed %+v", records)
		}
		r := records[0]
		age := r.CreatedAt.Age(time.Now())
		if r.SourceID != "desk" || r.Backend != "microvm" || r.Scope != "mcp" || !strings.HasPrefix(r.ThreadID, "session-") || r.AgentID != "Interop-Client" ||
			r.Kind != "codeact" || r.State != control.StateReady || len(r.EgressTargets) != 0 || age > patience {
			t.Errorf("listed %+v, %v old", r, age)
		}
		s.workerOf(r)

		// While nothing runs.
		result := decode[control.DisposalResult](t, mst(t, venv, dir, "delete", r.InstanceID, "--yes", "--json").must(t, 0, "delete").stdout)
		if result.Status != control.Disposed || result.InstanceID != r.InstanceID {
			t.Errorf("delete: %+v", result)
		}
		if records := look("list after the delete"); len(records) != 0 {
			t.Errorf("after the delete: %+v", records)
		}
		gone(t, r.ProcessID)
		s.wants("print('x' in globals())", "stdout:\nFalse"+lost)
		s.wants("x = 8; print(x)", "stdout:\n8")

		// While a program runs.
		ended := s.endless()
		next := look("list of a program that runs")
		if len(next) != 1 || next[0].State != control.StateRunning || next[0].InstanceID == r.InstanceID || next[0].ThreadID != r.ThreadID {
			t.Fatalf("while it runs: %+v", next)
		}
		mst(t, venv, dir, "delete", r.InstanceID, "--yes").must(t, 3, "delete of the one that is gone")
		mst(t, venv, dir, "delete", next[0].InstanceID, "--yes").must(t, 0, "delete of a program that runs")
		if got := <-ended; !strings.HasPrefix(got, stopped) || !strings.HasSuffix(got, lost) {
			t.Errorf("the program: %q", got)
		}
		gone(t, next[0].ProcessID)
		s.wants("print('x' in globals())", "stdout:\nFalse") // was told

		// The conversation.
		ended = s.endless()
		purge := decode[control.PurgeResult](t, mst(t, venv, dir, "purge-thread", "--scope", r.Scope, "--thread", r.ThreadID, "--yes", "--json").must(t, 0, "purge").stdout)
		if purge.Status != control.Purged || purge.Disposed != 1 {
			t.Errorf("purge: %+v", purge)
		}
		if got := <-ended; !strings.HasPrefix(got, stopped) {
			t.Errorf("the purged program: %q", got)
		}
		if text := mst(t, venv, dir, "list").must(t, 0, "list after the purge").stdout; strings.TrimSpace(text) != "No sandboxes." {
			t.Errorf("after the purge: %q", text)
		}
		s.wants("print(6*7)", "stdout:\n42")
		if err := s.client.Close(); err != nil {
			t.Errorf("the server ended with %v\n%s", err, s.stderr)
		}
		if text := mst(t, venv, dir, "hosts").must(t, 0, "hosts at the end").stdout; strings.TrimSpace(text) != "No opted-in MAF hosts." {
			t.Errorf("at the end: %q", text)
		}
	})
}

// An operator's day: a server's sandbox appears, is looked at and removed, a
// conversation on two hosts is purged, and a host is killed.
func TestAnOperatorAtTheConsole(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		console := exec.Command(command.Program)
		console.Env = append(os.Environ(), "TERM=xterm-256color", "MAF_SANDBOX_TUI_RUNTIME_DIR="+dir)
		c := terminaltest.Play(t, 150, 40, console)
		c.Sees("No live sandboxes.")

		s := startMCP(t, dir)
		c.Sees("● desk 0")
		s.wants("x = 7; print(x)", "stdout:\n7")
		c.Sees("LIVE INSTANCES 1")
		r := list(t, discovered(t, dir, "desk"))[0]
		s.workerOf(r)
		c.Sees("mcp/" + r.ThreadID + "/Interop-Client")

		// The same conversation at another host.
		pythonHost(t, venv, dir, "python-host", "real="+r.Scope+"/"+r.ThreadID)
		c.Sees("● python-host 1")
		c.Sees("LIVE INSTANCES 2")
		c.Types("/source:desk\r")
		c.Sees("LIVE INSTANCES 1 of 2")
		c.Sees(r.InstanceID) // the details
		c.Sees("PROCESS     " + strconv.Itoa(r.ProcessID))

		// One by its key and the dialog, while its program runs.
		ended := make(chan string, 1)
		go func() { ended <- s.run("while True: pass") }()
		c.Sees("RUNNING")
		c.Types("d")
		c.Sees("Dispose mcp/" + r.ThreadID + "/Interop-Client?")
		c.Types("\t\r")
		c.Sees("Sandbox disposed.")
		c.Sees("LIVE INSTANCES 0 of 1")
		if got := <-ended; !strings.HasPrefix(got, stopped) || !strings.HasSuffix(got, lost) {
			t.Errorf("the program: %q", got)
		}
		gone(t, r.ProcessID)

		// Its client goes on, with another generation.
		s.wants("print('x' in globals())", "stdout:\nFalse")
		c.Sees(list(t, control.Unite(only(t, dir, "desk")))[0].InstanceID)
		c.Types("p")
		c.Sees("Sandboxes: 2 on 2 hosts.")
		c.Types(r.ThreadID + "\t\r")
		c.Sees("Conversation purged across 2 host(s). Disposed: 2.")
		c.Types("\x1b")
		c.Sees("LIVE INSTANCES 0")
		s.wants("print(6*7)", "stdout:\n42"+lost)
		c.Sees("LIVE INSTANCES 1")

		// A host that is killed takes its sandboxes with it.
		r = list(t, control.Unite(only(t, dir, "desk")))[0]
		if err := s.process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Sees("✗ desk unavailable")
		c.Sees("0 live instances")
		gone(t, r.ProcessID)
		// The next one removes its announcement.
		next := startMCP(t, dir)
		c.Sees("● desk 0")
		c.SeesNot("✗ desk")
		if err := next.client.Close(); err != nil {
			t.Errorf("the next server ended with %v\n%s", err, next.stderr)
		}
		c.SeesNot("● desk") // what was done is still written there
		c.Types("q")
		if status := c.Ends(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		c.Sane()
	})
}

// only are the hosts of this name.
func only(t *testing.T, dir, name string) (hosts []control.DiscoveredHost) {
	t.Helper()
	all, err := control.Discover(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range all {
		if host.Client.Manifest().SourceID == name {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
