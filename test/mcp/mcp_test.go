// Package mcp runs maf-sandbox mcp as clients do: the real program, over
// standard streams and HTTP, with real sandboxes.
package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/root"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/webports"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// patience bounds a wait; it is reached only when something hangs.
const patience = 30 * time.Second

// cache is the folder of images and templates of all these tests: capturing and
// booting a Python takes a second.
var cache string

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){
		cli.Program: func() { os.Exit(root.Main()) },
	})
}

type tests struct{ *testing.M }

func (t tests) Run() int {
	dir, err := os.MkdirTemp("", "maf-sandbox-mcp-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder for temporary files
	cache = filepath.Join(dir, "cache")
	return webports.Run(t.M)
}

// command is a command of the program with arguments, on the engine of the tests
// and in its own cache.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{name, "--engine", hosttest.Engine()}, args...)
	if name == "mcp" && hosttest.Engine() != host.KVM {
		args = append(args, "--min-isolation", sandbox.IsolationProcess.String())
	}
	c := exec.Command(cli.Program, args...)
	c.Env = append(os.Environ(), cli.CacheEnv+"="+cache)
	return c
}

// requireSandboxes skips a test by name and reason where no sandbox can run.
func requireSandboxes(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	hosttest.Open(t)
	if out, err := command(t, "run", "-c", "print(6*7)").CombinedOutput(); err != nil {
		t.Fatalf("no sandbox: %v\n%s", err, out)
	}
}

// processes counts the processes that run the program, servers, supervisors and
// workers, but for this test, which may be the same file.
func processes(t *testing.T) (n int) {
	t.Helper()
	program, err := exec.LookPath(cli.Program)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if got, err := os.Stat(link); err == nil && os.SameFile(got, want) && filepath.Base(filepath.Dir(link)) != strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// eventually waits for what another process brings about without telling.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// nothingLeft is checked at the end of every test.
func nothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "no process is left", func() bool { return processes(t) == 0 })
}

// stdio connects the SDK's client to the program.
func stdio(t *testing.T, args ...string) *sdk.ClientSession {
	t.Helper()
	c := command(t, "mcp", args...)
	c.Stderr = t.Output()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // most tests have closed it
	return cs
}

// run calls execute_code and gives its text.
func run(ctx context.Context, t *testing.T, cs *sdk.ClientSession, code string) (text string, isError bool) {
	t.Helper()
	res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": code}})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return res.Content[0].(*sdk.TextContent).Text, res.IsError
}

func wants(t *testing.T, cs *sdk.ClientSession, code, want string) {
	t.Helper()
	if got, isError := run(t.Context(), t, cs, code); got != want || isError {
		t.Errorf("%s: got %q, want %q", code, got, want)
	}
}

func TestAClientComputesOverStandardStreams(t *testing.T) {
	requireSandboxes(t)
	cs := stdio(t, "--timeout", "20s")
	wants(t, cs, "print(6*7)", "stdout:\n42")
	wants(t, cs, "import statistics as s; x = [1, 2, 4]", "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see.")
	wants(t, cs, "print(s.median(x))", "stdout:\n2")
	if got, _ := run(t.Context(), t, cs, "1/0"); !strings.HasPrefix(got, "stderr:\nTraceback") || !strings.HasSuffix(got, "ZeroDivisionError: division by zero\n\nexit code: 1") {
		t.Errorf("got %q", got)
	}
	if got, isError := run(t.Context(), t, cs, "import os; os._exit(3)"); !isError || !strings.Contains(got, "status 3") || !strings.Contains(got, "The sandbox was lost") {
		t.Errorf("got %q", got)
	}
	wants(t, cs, "x = 1", "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see.")
	if _, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "reset_sandbox"}); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t.Context(), t, cs, "print(x)"); !strings.Contains(got, "NameError") {
		t.Errorf("after a reset: %q", got)
	}
	if err := cs.Close(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	nothingLeft(t)
}

func TestTheModelIsToldOfThePythonAtTheFirstStartOfAll(t *testing.T) {
	requireSandboxes(t)
	c := command(t, "mcp")
	c.Env = append(c.Env, cli.CacheEnv+"="+t.TempDir())
	c.Stderr = t.Output()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // the test has closed it
	// Each list waits a while; a busy machine may need more.
	version := regexp.MustCompile(`a stock CPython (3\.[0-9.]+) in a sandbox`)
	var told []string
	eventually(t, "the description names the Python", func() bool {
		tools, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		told = version.FindStringSubmatch(tools.Tools[0].Description)
		return told != nil
	})
	wants(t, cs, "import platform; print(platform.python_version())", "stdout:\n"+told[1])
	if err := cs.Close(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	nothingLeft(t)
}

func TestATimeLimitKeepsTheSandbox(t *testing.T) {
	requireSandboxes(t)
	cs := stdio(t, "--timeout", "500ms")
	if got, isError := run(t.Context(), t, cs, "x = 7\nprint('half', flush=True)\nwhile True: pass"); !isError || !strings.HasPrefix(got, "Error: the program timed out after 0.5s\n\nstdout:\nhalf") || strings.Contains(got, "lost") {
		t.Errorf("got %q", got)
	}
	wants(t, cs, "print(x)", "stdout:\n7")
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

func TestAClientThatCancelsStopsItsProgramOnly(t *testing.T) {
	requireSandboxes(t)
	cs := stdio(t)
	wants(t, cs, "x = 7; print(x)", "stdout:\n7")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "while True: pass"}}); err == nil {
		t.Error("an endless program was answered")
	}
	// It would wait for 120 s if the program went on.
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, _ := run(ctx, t, cs, "print(x)"); got != "stdout:\n7" {
		t.Errorf("got %q", got)
	}
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

func TestACanceledProgramThatDoesNotObeyIsToldByTheNextOne(t *testing.T) {
	requireSandboxes(t)
	cs := stdio(t)
	wants(t, cs, "x = 7; print(x)", "stdout:\n7")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	disobeys := "sum(iter(int, 1))" // all of it in C, where nothing looks for an interruption
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": disobeys}}); err == nil {
		t.Error("an endless program was answered")
	}
	wants(t, cs, "print('x' in globals())", "stdout:\nFalse\n\nThe sandbox was lost: names, imports and files of earlier calls are gone.")
	wants(t, cs, "print('x' in globals())", "stdout:\nFalse")
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

// raw starts the program with pipes of the test's own.
func raw(t *testing.T, args ...string) (c *exec.Cmd, to io.WriteCloser, from *bufio.Scanner) {
	t.Helper()
	c = command(t, "mcp", args...)
	c.Stderr = t.Output()
	to, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // most have ended
		_ = c.Wait()
	})
	return c, to, bufio.NewScanner(out)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

func call(id int, code string) string {
	encoded, _ := json.Marshal(code) // a string always can be
	return `{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":` + string(encoded) + "}}}\n"
}

func TestARawTranscriptGivesFortyTwo(t *testing.T) {
	requireSandboxes(t)
	c, to, from := raw(t)
	for _, step := range []struct{ says, want string }{
		{initialize, `"serverInfo":{"name":"maf-sandbox"`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n", `"name":"execute_code"`},
		{call(3, "print(6*7)"), `"result":{"content":[{"type":"text","text":"stdout:\n42"}],"structuredContent":{"stdout":"42\n","stderr":"","exit_code":0,"error":null,`},
		{`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"reset_sandbox"}}` + "\n", `"text":"The sandbox is as new."`},
	} {
		if _, err := io.WriteString(to, step.says); err != nil {
			t.Fatal(err)
		}
		if !from.Scan() || !strings.Contains(from.Text(), step.want) {
			t.Fatalf("%s\ngot  %s\nwant %s", step.says, from.Text(), step.want)
		}
	}
	_ = to.Close()
	if from.Scan() {
		t.Errorf("more than answers on standard output: %q", from.Text())
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

func TestCallsThatAreSentTogetherAreServedInTheirOrder(t *testing.T) {
	requireSandboxes(t)
	c, to, from := raw(t)
	const appended = 12
	messages := call(2, "l = ['before']") + `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"reset_sandbox"}}` + "\n" + call(4, "l = []")
	var want []string
	for i := range appended {
		messages += call(5+i, "l.append("+strconv.Itoa(i)+")")
		want = append(want, strconv.Itoa(i))
	}
	if _, err := io.WriteString(to, initialize+messages+call(5+appended, "print(l)")); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	answered, list := 0, ""
	for from.Scan() {
		answered++
		if strings.Contains(from.Text(), `"id":`+strconv.Itoa(5+appended)+`,`) {
			list = from.Text()
		}
	}
	if answered != 5+appended || !strings.Contains(list, `"stdout":"[`+strings.Join(want, ", ")+`]\n"`) {
		t.Errorf("%d answers, and at last %s", answered, list)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

// started waits until a session has a sandbox and an endless program has been
// taken: messages are taken in their order, and the ping's answer comes last.
func started(t *testing.T, to io.Writer, from *bufio.Scanner) {
	t.Helper()
	for _, says := range []string{
		initialize, call(2, "print('on')"), call(3, "while True: pass") + `{"jsonrpc":"2.0","id":4,"method":"ping"}` + "\n",
	} {
		if _, err := io.WriteString(to, says); err != nil {
			t.Fatal(err)
		}
		if !from.Scan() {
			t.Fatalf("no answer to %s", says)
		}
	}
}

func TestNothingIsLeftOfAClientThatVanishes(t *testing.T) {
	requireSandboxes(t)
	c, to, from := raw(t)
	started(t, to, from)
	_ = to.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	nothingLeft(t)
}

func TestNothingIsLeftOfAServerThatIsStopped(t *testing.T) {
	requireSandboxes(t)
	for _, r := range []struct {
		signal syscall.Signal
		status int
	}{{syscall.SIGTERM, cli.ExitTerminated}, {syscall.SIGINT, cli.ExitInterrupt}, {syscall.SIGKILL, -1}} {
		c, to, from := raw(t)
		started(t, to, from)
		if err := c.Process.Signal(r.signal); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if got := c.ProcessState.ExitCode(); got != r.status {
			t.Errorf("%s: exit status %d, want %d", r.signal, got, r.status)
		}
		nothingLeft(t)
	}
}
