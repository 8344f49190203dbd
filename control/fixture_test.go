package control_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// patience bounds a hang; nothing is expected to come near.
const patience = 30 * time.Second

// TestMain looks for goroutines and descriptors that the tests leave.
func TestMain(m *testing.M) {
	flag.Parse()
	// The runtime opens its poller with the first connection and keeps it.
	if listener, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = listener.Close()
	}
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	code := m.Run()
	// The fuzzing engine has goroutines of its own.
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	if code == 0 && !fuzzing && !ends(func() bool { return runtime.NumGoroutine() <= goroutines && openDescriptors() <= descriptors }) {
		buf := make([]byte, 1<<20)
		_, _ = os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		_, _ = fmt.Fprintf(os.Stderr, "goroutines or descriptors are left: %d and %d, before %d and %d\n",
			runtime.NumGoroutine(), openDescriptors(), goroutines, descriptors)
		code = 1
	}
	os.Exit(code)
}

// openDescriptors counts them where the system tells.
func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// ends waits until what the tests did has ended.
func ends(done func() bool) bool {
	deadline := time.After(patience / 3)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			return false
		case <-tick.C:
		}
	}
	return true
}

// scripted is a control whose answers a test chooses.
type scripted struct {
	records []control.Record
	list    func(ctx context.Context) error
	dispose func(ctx context.Context, id string) (control.DisposalResult, error)
	purge   func(ctx context.Context, scope, thread string) (control.PurgeResult, error)

	mu    sync.Mutex
	calls [][]any // guarded by mu
}

func (s *scripted) note(call ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// taken gives the calls since the last time.
func (s *scripted) taken() [][]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *scripted) List(ctx context.Context) ([]control.Record, error) {
	if s.list != nil {
		if err := s.list(ctx); err != nil {
			return nil, err
		}
	}
	return s.records, nil
}

func (s *scripted) Get(ctx context.Context, id string) (control.Record, bool, error) {
	records, err := s.List(ctx)
	for _, r := range records {
		if r.InstanceID == id {
			return r, true, err
		}
	}
	return control.Record{}, false, err
}

func (s *scripted) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	s.note("dispose", id, timeout.Seconds())
	if s.dispose != nil {
		return s.dispose(ctx, id)
	}
	if _, found, _ := s.Get(ctx, id); !found {
		return control.DisposalResult{Status: control.NotFound, InstanceID: id, Message: "scripted absence"}, nil
	}
	return control.DisposalResult{Status: control.Disposed, InstanceID: id, Message: "scripted disposal"}, nil
}

func (s *scripted) Purge(ctx context.Context, scope, thread string, timeout time.Duration) (control.PurgeResult, error) {
	s.note("purge", scope, thread, timeout.Seconds())
	if s.purge != nil {
		return s.purge(ctx, scope, thread)
	}
	return control.PurgeResult{Status: control.Purged, Scope: scope, ThreadID: thread, Disposed: 2, Message: "scripted purge"}, nil
}

var errSecret = errors.New("secret detail")

// untilEnd holds a call until its context ends.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

const now = 1_800_000_000.0

func record(id string) control.Record {
	return control.Record{
		SourceID: "fake-host", Backend: "hyperlight", Scope: "tenant/ä b", ThreadID: "t 1", AgentID: "analyst", CallID: "call-7",
		Kind: "python", InstanceID: id, State: control.StateReady, CreatedAt: now, LastActivityAt: now + 1.5,
		ProcessID: 4242, EgressTargets: []string{"a.example", "b.example"},
	}
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

// started is a server that listens, and its manifest.
func started(t testing.TB, config control.ServerConfig) (*control.Server, control.Manifest) {
	t.Helper()
	if config.Directory == "" {
		config.Directory = shortDir(t)
	}
	if config.SourceID == "" {
		config.SourceID = "host"
	}
	server, err := control.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	manifest, err := server.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return server, manifest
}

// reply is what came back over a connection.
type reply struct {
	status int
	header http.Header
	body   string
	proto  string
	close  bool
}

func address(m control.Manifest) string { return strings.TrimPrefix(m.Endpoint, "http://") }

func dial(t testing.TB, m control.Manifest) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends bytes and reads one response.
func exchange(t testing.TB, m control.Manifest, request string) reply {
	t.Helper()
	conn := dial(t, m)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Logf("send: %v", err)
	}
	method, _, _ := strings.Cut(request, " ")
	return response(t, bufio.NewReader(conn), method)
}

func response(t testing.TB, in *bufio.Reader, method string) reply {
	t.Helper()
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("read the response: %v", err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("read the body: %v", err)
	}
	return reply{r.StatusCode, r.Header, string(body), r.Proto, r.Close}
}

// request is the text of a request as the protocol's clients send it.
func request(m control.Manifest, method, target string, headers ...string) string {
	lines := append([]string{method + " " + target + " HTTP/1.1", "Host: " + address(m), "Accept: application/json"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func ask(t testing.TB, m control.Manifest, method, target string, headers ...string) reply {
	t.Helper()
	return exchange(t, m, request(m, method, target, headers...))
}
