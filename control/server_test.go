package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func newServer(t *testing.T, config control.ServerConfig) *control.Server {
	t.Helper()
	server, err := control.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// files are the names in a folder; none when it is missing.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAServerConfigurationReportsAllItsProblems(t *testing.T) {
	_, err := control.NewServer(control.ServerConfig{DisposeTimeout: -1, MaxConnections: -1})
	if !errors.Is(err, control.ErrConfig) {
		t.Fatalf("NewServer: %v", err)
	}
	for _, want := range []string{"control is needed", "source id", "dispose timeout", "connections"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q says nothing about %q", err, want)
		}
	}
}

func TestAServerOpensNothingUntilItIsStarted(t *testing.T) {
	dir := shortDir(t)
	server := newServer(t, control.ServerConfig{Control: control.NewMemory(), SourceID: "s", Directory: dir})
	if _, err := server.Manifest(); !errors.Is(err, control.ErrNotStarted) {
		t.Errorf("Manifest: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Errorf("Close before Start: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder exists: %v", err)
	}
}

func TestAStartedServerIsAnnouncedAsThePeersDo(t *testing.T) {
	dir := shortDir(t)
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(), SourceID: "demo-sörver", Directory: dir})
	names := files(t, dir)
	if len(names) != 1 || !regexp.MustCompile(`^\d+-[0-9a-f]{12}\.json$`).MatchString(names[0]) {
		t.Fatalf("announced in %v", names)
	}
	path := filepath.Join(dir, names[0])
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Byte for byte the peer's, then what the peer ignores.
	want := regexp.MustCompile(`^\{"source_id": "demo-s\\u00f6rver", "endpoint": "http://127\.0\.0\.1:\d+", "process_id": \d+, "protocol_version": 1, "implementation": "go"\}$`)
	if !want.Match(text) || !json.Valid(text) {
		t.Errorf("announced as %s", text)
	}
	read, err := control.Manifests(dir)
	if err != nil || len(read) != 1 || read[0] != m || m.ProcessID != os.Getpid() {
		t.Errorf("read %+v, %v; want %+v", read, err, m)
	}
}

func TestStartingAStartedServerChangesNothing(t *testing.T) {
	server, m := started(t, control.ServerConfig{Control: control.NewMemory()})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if again, err := server.Manifest(); err != nil || again != m {
		t.Errorf("Manifest = %+v, %v; want %+v", again, err, m)
	}
}

func TestAClosedServerIsGoneAndCanBeStartedAgain(t *testing.T) {
	dir := shortDir(t)
	server, m := started(t, control.ServerConfig{Control: control.NewMemory(), Directory: dir, Socket: true})
	for range 2 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if conn, err := net.Dial("tcp", address(m)); err == nil {
		_ = conn.Close()
		t.Error("the port is still open")
	}
	if _, err := server.Manifest(); !errors.Is(err, control.ErrNotStarted) {
		t.Errorf("Manifest: %v", err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	again, err := server.Manifest()
	if err != nil || ask(t, again, "GET", "/v1/health").status != 200 {
		t.Errorf("after the restart: %+v, %v", again, err)
	}
}

func TestAServerThatCannotBeAnnouncedDoesNotListen(t *testing.T) {
	dir := shortDir(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := newServer(t, control.ServerConfig{Control: control.NewMemory(), SourceID: "s", Directory: dir})
	if err := server.Start(); !errors.Is(err, control.ErrUnsafeDirectory) {
		t.Fatalf("Start: %v", err)
	}
	if _, err := server.Manifest(); !errors.Is(err, control.ErrNotStarted) {
		t.Errorf("Manifest: %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Errorf("Start in a good folder: %v", err)
	}
}

// What an operation that does not obey is still doing must be over before the
// same server can live again; its client is told that nothing is known.
func TestAServerIsNotRestartedOverOperationsThatAreUnderWay(t *testing.T) {
	dir := shortDir(t)
	entered, release := make(chan struct{}), make(chan struct{})
	returned := make(chan struct{})
	stubborn := &scripted{list: func(context.Context) error {
		close(entered)
		<-release
		close(returned)
		return nil
	}}
	server, m := started(t, control.ServerConfig{Control: stubborn, Directory: dir})
	answers := make(chan reply, 1)
	go func() { answers <- ask(t, m, "GET", "/v1/sandboxes") }()
	<-entered
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.status != 500 || got.body != `{"error":"control request failed"}` {
		t.Errorf("the client got %+v", got)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("announced: %v", left)
	}
	if err := server.Start(); !errors.Is(err, control.ErrUnsettled) {
		t.Errorf("Start over an operation: %v", err)
	}
	close(release)
	<-returned
	stubborn.list = nil
	eventually(t, func() bool { return server.Start() == nil }, "the server does not start after the operation settled")
}

func TestClosingEndsOperationsThatObey(t *testing.T) {
	entered := make(chan struct{})
	c := &scripted{records: []control.Record{record("one")}}
	c.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
		close(entered)
		return control.DisposalResult{}, untilEnd(ctx)
	}
	server, m := started(t, control.ServerConfig{Control: c})
	answers := make(chan reply, 1)
	go func() { answers <- ask(t, m, "DELETE", "/v1/sandboxes/one") }()
	<-entered
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := server.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	group.Wait()
	if got := <-answers; got.status != 500 || got.body != `{"error":"disposal failed"}` {
		t.Errorf("the client got %+v", got)
	}
	if err := server.Start(); err != nil {
		t.Errorf("Start: %v", err)
	}
}

func TestAFolderThatIsRemovedUnderAServerHurtsNobody(t *testing.T) {
	dir := shortDir(t)
	server, m := started(t, control.ServerConfig{Control: control.NewMemory(), Directory: dir, Socket: true})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, m, "GET", "/v1/health"); got.status != 200 {
		t.Errorf("health: %+v", got)
	}
	if err := server.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestTheSocketServesThisUserAndIsAdvertised(t *testing.T) {
	dir := shortDir(t)
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(control.DemoRecords("host", time.Unix(now, 0))...), Directory: dir, Socket: true})
	info, err := os.Lstat(m.Socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 || filepath.Dir(m.Socket) != dir {
		t.Fatalf("%s: %v, %v", m.Socket, info, err)
	}
	read, err := control.Manifests(dir)
	if err != nil || len(read) != 1 || read[0] != m {
		t.Fatalf("read %+v, %v", read, err)
	}
	// Only the socket can lead to the host when the port is another's.
	m.Endpoint = "http://127.0.0.1:1"
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Health(context.Background()); err != nil {
		t.Error(err)
	}
	if records := inventory(t, client); len(records) != 3 {
		t.Errorf("listed %+v", records)
	}
}

func TestASocketWithoutRoomForItsNameStopsTheStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	server := newServer(t, control.ServerConfig{Control: control.NewMemory(), SourceID: "s", Directory: dir, Socket: true})
	if err := server.Start(); err == nil || !strings.Contains(err.Error(), "path has") {
		t.Fatalf("Start: %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// eventually waits for what other goroutines bring about.
func eventually(t testing.TB, done func() bool, complaint string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatal(complaint)
		case <-tick.C:
		}
	}
}
