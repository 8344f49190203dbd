package mcp

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// discovery is a discovery folder for this test, whose path leaves room for a
// socket's name.
func discovery(t *testing.T) string {
	t.Helper()
	short, err := os.MkdirTemp("", "mst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	dir := filepath.Join(short, "run")
	t.Setenv("MAF_SANDBOX_TUI_RUNTIME_DIR", dir)
	return dir
}

// observed is a backend in memory whose sandboxes say whether they are there.
type observed struct{ sandbox.Backend }

type observedBox struct{ sandbox.Sandbox }

func (b observed) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := b.Backend.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return observedBox{box}, nil
}

// Liveness asks the sandbox itself: one that is gone runs nothing.
func (b observedBox) Liveness() liveness.Report {
	if _, err := b.RunCode(context.Background(), "", time.Second); errors.Is(err, sandbox.ErrDisposed) {
		return liveness.Report{State: liveness.Exited}
	}
	return liveness.Report{State: liveness.Ready}
}

// operated is the command with --control over such a backend.
func operated(t *testing.T, args ...string) *serving {
	t.Helper()
	return begin(t, func(o *Options) {
		memory := o.Backend
		o.Backend = func(o *Options, private []sandbox.Host, logger *slog.Logger) (sandbox.Backend, error) {
			b, err := memory(o, private, logger)
			return observed{b}, err
		}
	}, append([]string{"--control"}, args...)...)
}

// hosts are the names of the hosts in a discovery folder, all of which answer,
// and their control.
func hosts(t *testing.T, dir string) (names []string, all *control.Composite) {
	t.Helper()
	found, err := control.Discover(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range found {
		if host.Err != nil {
			t.Errorf("%s: %v", host.Client.Manifest().SourceID, host.Err)
		}
		names = append(names, host.Client.Manifest().SourceID)
	}
	return names, control.Unite(found)
}

func TestOperatorsSeeAndRemoveWhatClientsUse(t *testing.T) {
	dir := discovery(t)
	s := operated(t, "--control-name", "desk")
	s.says(t, initialize)
	if got := s.errOut.String(); !strings.HasPrefix(got, `maf-sandbox: mst shows this server as "desk": control at http://127.0.0.1:`) || !strings.HasSuffix(got, "announced in "+dir+"\n") {
		t.Errorf("told %q", got)
	}
	s.says(t, call(`set "x" "1"`))
	names, all := hosts(t, dir)
	records, err := all.List(t.Context())
	if err != nil || strings.Join(names, " ") != "desk" || len(records) != 1 {
		t.Fatalf("hosts %v, %+v, %v", names, records, err)
	}
	r := records[0]
	if r.SourceID != "desk" || r.Scope != "mcp" || !strings.HasPrefix(r.ThreadID, "session-") || r.AgentID != "raw" || r.Kind != "codeact" || r.State != control.StateReady {
		t.Errorf("listed %+v", r)
	}
	if result, err := all.Dispose(t.Context(), r.InstanceID, patience); err != nil || result.Status != control.Disposed {
		t.Errorf("dispose: %+v, %v", result, err)
	}
	if records, err := all.List(t.Context()); err != nil || len(records) != 0 {
		t.Errorf("afterwards: %+v, %v", records, err)
	}
	if got := s.says(t, call(`print "new"`)); !strings.Contains(got, "names, imports and files of earlier calls are gone") {
		t.Errorf("the client reads %s", got)
	}
	if purge, err := all.Purge(t.Context(), r.Scope, r.ThreadID, patience); err != nil || purge.Status != control.Purged || purge.Disposed != 1 {
		t.Errorf("purge: %+v, %v", purge, err)
	}
	_ = s.to.Close()
	if err := s.ends(t); err != nil {
		t.Error(err)
	}
	if names, _ := hosts(t, dir); len(names) != 0 {
		t.Errorf("still announced: %v", names)
	}
}

func TestNobodyIsShownWithoutControl(t *testing.T) {
	dir := discovery(t)
	s := begin(t, nil)
	s.says(t, initialize)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the discovery folder: %v", err)
	}
	_ = s.to.Close()
	if err := s.ends(t); err != nil {
		t.Error(err)
	}
}

func TestAServerOverHTTPIsShownUnderItsProcess(t *testing.T) {
	dir := discovery(t)
	s := operated(t, "--http", "127.0.0.1:0")
	for end := time.After(patience); strings.Count(s.errOut.String(), "\n") < 2; {
		select {
		case <-s.errOut.wrote:
		case err := <-s.done:
			t.Fatalf("never served: %v", err)
		case <-end:
			t.Fatal("never served")
		}
	}
	if names, _ := hosts(t, dir); strings.Join(names, " ") != "mcp-"+strconv.Itoa(os.Getpid()) {
		t.Errorf("hosts %v", names)
	}
	s.signals <- os.Interrupt
	if err := s.ends(t); cli.ExitStatus(err) != cli.ExitInterrupt {
		t.Errorf("ended with %v", err)
	}
}

func TestAFolderThatIsNotPrivateIsRefusedBeforeAnyClient(t *testing.T) {
	dir := discovery(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	s := operated(t)
	select {
	case err := <-s.done:
		if !errors.Is(err, control.ErrUnsafeDirectory) || !strings.HasPrefix(err.Error(), "--control: ") || !strings.HasSuffix(err.Error(), "directory is not private: "+dir) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it is served")
	}
}
