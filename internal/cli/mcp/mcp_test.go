package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// patience bounds a wait; it is reached only when something hangs.
const patience = 20 * time.Second

func factory(t *testing.T) (f *cli.Factory, signals chan<- os.Signal) {
	t.Helper()
	s, _, _ := streams.Test("")
	c := make(chan os.Signal, 1)
	dir := t.TempDir()
	return &cli.Factory{
		Streams:  s,
		CacheDir: func() (string, error) { return dir, nil },
		Signals:  func() (<-chan os.Signal, func()) { return c, func() {} },
	}, c
}

// parse gives what a command line means.
func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	f, _ := factory(t)
	var got *Options
	cmd := NewCmd(f, func(_ context.Context, o *Options) error { got = o; return nil })
	cmd.SetArgs(append([]string{}, args...)) // nil would be those of the test program
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return got, err
}

func TestOptionsAreParsed(t *testing.T) {
	o, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if o.HTTP != "" || o.Cleanup.Value != "session" || o.MinIsolation.Value != "microvm" || o.Timeout.Value != 2*time.Minute ||
		o.Idle.Value != 30*time.Minute || o.MaxSessions != 16 || o.Limits.Value != cli.LimitsAuto || o.Memory.Bytes != 256<<20 || o.MaxOutput.Bytes != 1<<20 || o.MaxShown.Bytes != 32<<10 {
		t.Errorf("defaults %+v", o)
	}
	o, err = parse(t, "--http", "[::1]:80", "--image", "data", "--memory", "1GiB", "--timeout", "5m", "--max-output", "2MiB", "--max-shown", "1MiB", "--limits", "rlimit",
		"--cleanup", "dispose", "--min-isolation", "os_process", "--allow", "a.example", "--allow", "b.example", "--allow-private", "c.example",
		"--allow-origin", "https://x.example:8443", "--max-sessions", "3", "--idle", "1m", "--log", "debug", "--control", "--control-name", "desk")
	if err != nil {
		t.Fatal(err)
	}
	rules, private, err := o.network()
	if err != nil || len(rules) != 3 || len(private) != 1 || private[0].String() != "c.example" || rules[2].Host != private[0] {
		t.Errorf("rules %v, private %v, %v", rules, private, err)
	}
	if o.Image != "data" || o.Memory.Bytes != 1<<30 || o.Timeout.Value != 5*time.Minute || o.MaxOutput.Bytes != 2<<20 || o.MaxShown.Bytes != 1<<20 || o.Limits.Value != "rlimit" ||
		o.Cleanup.Value != "dispose" || o.MinIsolation.Value != "os_process" || len(o.AllowPrivate) != 1 || !o.Control || o.ControlName != "desk" || o.MaxSessions != 3 || o.Idle.Value != time.Minute {
		t.Errorf("got %+v", o)
	}
}

func TestOptionsThatMakeNoSenseAreUsageErrors(t *testing.T) {
	for _, r := range []struct {
		name string
		args []string
		want string
	}{
		{"an address of others without a token", []string{"--http", "0.0.0.0:8080"}, "can be reached by others: give --token-file FILE"},
		{"every address without a token", []string{"--http", ":8080"}, "can be reached by others"},
		{"no port", []string{"--http", "127.0.0.1"}, "want host:port"},
		{"a token for the standard streams", []string{"--token-file", "x"}, "--token-file is for --http"},
		{"an origin for the standard streams", []string{"--allow-origin", "https://x"}, "--allow-origin is for --http"},
		{"an origin with a path", []string{"--http", "127.0.0.1:1", "--allow-origin", "https://x/"}, "is no origin"},
		{"an origin without a scheme", []string{"--http", "127.0.0.1:1", "--allow-origin", "x.example"}, "is no origin"},
		{"an address that is empty", []string{"--http", ""}, "the value of --http is empty"},
		{"a token's file that is empty", []string{"--http", "127.0.0.1:1", "--token-file="}, "the value of --token-file is empty"},
		{"sessions on the standard streams", []string{"--max-sessions", "16"}, "--max-sessions is for --http: without it"},
		{"silence on the standard streams", []string{"--idle", "30m"}, "--idle is for --http: without it"},
		{"a port that is none", []string{"--http", "127.0.0.1:65536"}, "a port is from 0 to 65535"},
		{"a name without a control", []string{"--control-name", "x"}, "--control-name is for --control: without it"},
		{"a name with a control that is not wanted", []string{"--control=false", "--control-name", "x"}, "--control-name is for --control"},
		{"a name that is empty", []string{"--control", "--control-name", ""}, "the value of --control-name is empty"},
		{"a name that a terminal obeys", []string{"--control", "--control-name", "a\x1b[2J"}, `--control-name "a\x1b[2J" has characters that cannot be seen`},
		{"a name that looks like another", []string{"--control", "--control-name", "a\u200b"}, "cannot be seen"},
		{"a name that is no text", []string{"--control", "--control-name", "a\xff"}, "cannot be seen"},
		{"a name without end", []string{"--control", "--control-name", strings.Repeat("x", 1025)}, "at most 1024"},
		{"no sessions", []string{"--http", "127.0.0.1:1", "--max-sessions", "0"}, "from 1 to 1024"},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := parse(t, r.args...)
			var usage *cli.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), r.want) {
				t.Errorf("got %v, want %q", err, r.want)
			}
		})
	}
	for _, args := range [][]string{{"--cleanup", "never"}, {"--min-isolation", "much"}, {"--log", "all"}, {"--log-format", "xml"}, {"--memory", "1"}, {"argument"}} {
		if _, err := parse(t, args...); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// serving is the command over the backend in memory, as a process would run it.
type serving struct {
	backend *sandboxtest.Backend
	to      io.WriteCloser
	from    *bufio.Scanner
	errOut  *locked
	signals chan<- os.Signal
	done    chan error
}

// locked is a buffer that is written and read at the same time.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
	// wrote gets a token after a write.
	wrote chan struct{}
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func begin(t *testing.T, change func(*Options), args ...string) *serving {
	t.Helper()
	f, signals := factory(t)
	in, to := io.Pipe()
	from, out := io.Pipe()
	s := &serving{
		backend: sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM}),
		to:      to, from: bufio.NewScanner(from), errOut: &locked{wrote: make(chan struct{}, 1)}, signals: signals, done: make(chan error, 1),
	}
	f.Streams.In, f.Streams.Out, f.Streams.Err = in, out, s.errOut
	cmd := NewCmd(f, func(ctx context.Context, o *Options) error {
		o.Backend = func(*Options, []sandbox.Host, *slog.Logger) (sandbox.Backend, error) { return s.backend, nil }
		if change != nil {
			change(o)
		}
		return run(ctx, o)
	})
	cmd.SetArgs(append([]string{}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	go func() {
		s.done <- cmd.ExecuteContext(context.WithoutCancel(t.Context()))
		_, _ = in.Close(), out.Close() // who says more, or waits for more, is told
	}()
	t.Cleanup(func() { _, _ = to.Close(), from.Close() })
	return s
}

func (s *serving) says(t *testing.T, message string) string {
	t.Helper()
	if _, err := io.WriteString(s.to, message+"\n"); err != nil {
		t.Fatal(err)
	}
	if !s.from.Scan() {
		t.Fatalf("no answer to %s", message)
	}
	return s.from.Text()
}

func (s *serving) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.done:
		if left := s.backend.Registered(); left != 0 {
			t.Errorf("%d sandboxes are left", left)
		}
		if _, err := s.backend.Acquire(t.Context(), sandbox.Key{}, sandbox.Spec{}); err == nil {
			t.Error("the backend is still open")
		}
		return err
	case <-time.After(patience):
		t.Fatal("the command never ends")
		return nil
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

func call(code string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"` + strings.ReplaceAll(code, `"`, `\"`) + `"}}}`
}

func TestAClientThatClosesItsEndIsASuccess(t *testing.T) {
	s := begin(t, nil)
	s.says(t, initialize)
	if got := s.says(t, call(`print "42"`)); !strings.Contains(got, `"stdout:\n42"`) {
		t.Errorf("got %s", got)
	}
	_ = s.to.Close()
	if err := s.ends(t); err != nil || s.errOut.String() != "" {
		t.Errorf("got %v, %q", err, s.errOut)
	}
}

func TestASignalEndsTheServerWithItsStatus(t *testing.T) {
	for _, args := range [][]string{nil, {"--http", "127.0.0.1:0"}} {
		s := begin(t, nil, args...)
		if args == nil {
			s.says(t, initialize)
		} else {
			select {
			case <-s.errOut.wrote:
			case err := <-s.done:
				t.Fatalf("never served: %v", err)
			}
			if got := s.errOut.String(); !strings.HasPrefix(got, "maf-sandbox: serving MCP at http://127.0.0.1:") || !strings.HasSuffix(got, "/mcp\n") {
				t.Errorf("announced as %q", got)
			}
		}
		s.signals <- os.Interrupt
		if err := s.ends(t); cli.ExitStatus(err) != cli.ExitInterrupt {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

func TestCleanupSaysWhatStays(t *testing.T) {
	// The backend in memory vouches for nothing, so that the first use is a reset;
	// the purge is what a session's end always is.
	for cleanup, want := range map[string]string{
		"session": "acquire reset run_code acquire run_code reset dispose_scope close",
		"reset":   "acquire reset run_code reset acquire run_code reset dispose_scope close",
		"dispose": "acquire reset run_code dispose acquire reset run_code dispose dispose_scope close",
	} {
		s := begin(t, nil, "--cleanup", cleanup)
		s.says(t, initialize)
		s.says(t, call(`set "x" "1"`))
		kept := strings.Contains(s.says(t, call(`get "x"`)), `"stdout:\n1"`)
		_ = s.to.Close()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		var ops []string
		for _, c := range s.backend.Calls() {
			ops = append(ops, string(c.Op))
		}
		if got := strings.Join(ops, " "); got != want || kept != (cleanup == "session") {
			t.Errorf("%s: kept %t, got %q, want %q", cleanup, kept, got, want)
		}
	}
}

func TestWhatCannotBeServedIsRefusedBeforeAnyClient(t *testing.T) {
	weak := func(o *Options) {
		o.Backend = func(*Options, []sandbox.Host, *slog.Logger) (sandbox.Backend, error) {
			return sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationProcess}), nil
		}
	}
	for _, r := range []struct {
		name   string
		change func(*Options)
		args   []string
		want   error
	}{
		{"weak isolation", weak, nil, sandbox.ErrIsolationNotPermitted},
		{"more isolation than there is", nil, []string{"--min-isolation", "vm"}, sandbox.ErrIsolationNotPermitted},
		{"a host that is none", nil, []string{"--allow", "http://a/"}, sandbox.ErrInvalid},
		{"a host that cannot be enforced", nil, []string{"--allow-private", "*.example"}, sandbox.ErrEgressNotEnforced},
		{"no token file", nil, []string{"--http", "127.0.0.1:0", "--token-file", filepath.Join(t.TempDir(), "none")}, os.ErrNotExist},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := begin(t, r.change, r.args...)
			select {
			case err := <-s.done:
				if !errors.Is(err, r.want) {
					t.Errorf("got %v, want %v", err, r.want)
				}
			case <-time.After(patience):
				t.Fatal("it is served")
			}
		})
	}
	s := begin(t, weak, "--min-isolation", "os_process")
	s.says(t, initialize) // lowered by name
	_ = s.to.Close()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestTheLogIsWrittenAsAsked(t *testing.T) {
	for _, r := range []struct {
		args []string
		want string
	}{
		{nil, ""}, // warnings only
		{[]string{"--log", "info"}, "level=INFO msg=heard"},
		{[]string{"--log", "debug", "--log-format", "json"}, `"level":"INFO","msg":"heard"`},
	} {
		o, err := parse(t, r.args...)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		o.Factory.Streams.Err = &log
		o.logger().Info("heard")
		if got := log.String(); (got == "") != (r.want == "") || !strings.Contains(got, r.want) {
			t.Errorf("%v: got %q, want %q", r.args, got, r.want)
		}
	}
}
