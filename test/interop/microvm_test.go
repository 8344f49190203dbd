//go:build linux && amd64

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// realHost is a host whose sandboxes are micro-VMs, or the test is skipped.
func realHost(t *testing.T, dir string) *router.Router {
	t.Helper()
	hosttest.Open(t)
	cache := t.TempDir()
	store, err := image.OpenStore(filepath.Join(cache, "images"))
	if err == nil {
		_, _, err = store.Default(context.Background(), nil)
	}
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	backend, err := microvm.New(microvm.Config{CacheDir: cache, Private: true, Engine: microvm.Engine(hosttest.Engine()), Enforcement: microvm.EnforceRlimit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Errorf("close the backend: %v", err)
		}
	})
	monitor := control.NewMonitor(backend)
	r, err := router.New(router.Config{Backends: []sandbox.Backend{monitor}, MinIsolation: backend.Isolation(), MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	host, err := control.NewHost(control.HostConfig{
		SourceID: "micro-vms", Monitors: []*control.Monitor{monitor}, Router: r,
		Quiesce: func(context.Context, sandbox.Key) (func(), error) { return func() {}, nil },
		Purge: func(ctx context.Context, scope, threadID string) (sandbox.ScopePurge, error) {
			return r.DisposeScope(ctx, scope, threadID), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, dir, "micro-vms", host)
	return r
}

func TestThePythonConsoleSeesAndEndsRealMicroVMs(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		ctx := context.Background()
		dir := shortDir(t)
		r := realHost(t, dir)
		microSpec := sandbox.Spec{Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode)}
		acquire := func(thread string) sandbox.Sandbox {
			s, err := r.Acquire(ctx, sandbox.Key{Scope: "tenant", ThreadID: thread, AgentID: "agent"}, microSpec)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		one, two := acquire("t-1"), acquire("t-2")
		// A program that runs is seen to run.
		running := make(chan error, 1)
		go func() {
			_, err := one.RunCode(ctx, "while True: pass", time.Hour)
			running <- err
		}()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for bound := time.After(patience); liveness.Of(one).State != liveness.Running; {
			select {
			case <-tick.C:
			case <-bound:
				t.Fatal("the program does not begin")
			}
		}
		listed := decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, "list").stdout)
		if len(listed) != 2 || listed[0].State != control.StateRunning || listed[1].State != control.StateReady || listed[0].InstanceID != one.ID() {
			t.Fatalf("list: %+v", listed)
		}
		for _, record := range listed {
			name, err := os.ReadFile("/proc/" + strconv.Itoa(record.ProcessID) + "/stat")
			if err != nil || record.ProcessID == os.Getpid() {
				t.Errorf("the worker %d: %q, %v", record.ProcessID, name, err)
			}
		}
		checkTexts(t, listed, func(args ...string) string {
			return mst(t, venv, dir, args...).must(t, 0, strings.Join(args, " ")).stdout
		})
		mst(t, venv, dir, "delete", one.ID(), "--yes").must(t, 0, "delete of a sandbox that runs a program")
		if err := <-running; !errors.Is(err, sandbox.ErrDisposed) {
			t.Errorf("the program: %v", err)
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(listed[0].ProcessID)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the worker is still there: %v", err)
		}
		// A reset is a new generation: the old id names nothing.
		stale := two.ID()
		if err := two.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		mst(t, venv, dir, "delete", stale, "--yes").must(t, 3, "delete of an older generation")
		purge := decode[control.PurgeResult](t, mst(t, venv, dir, "purge-thread", "--scope", "tenant", "--thread", "t-2", "--yes", "--json").must(t, 0, "purge").stdout)
		if purge.Status != control.Purged || purge.Disposed != 1 || liveness.Of(two).State != liveness.Exited {
			t.Errorf("purge: %+v", purge)
		}
		if text := mst(t, venv, dir, "list").must(t, 0, "list at the end").stdout; strings.TrimSpace(text) != "No sandboxes." {
			t.Errorf("list at the end: %q", text)
		}
		// The router serves the same conversation again.
		acquire("t-1")
	})
}

// checkTexts looks at what the commands that only look say to people, and at what
// show and watch say to programs.
func checkTexts(t *testing.T, listed []control.Record, mst func(args ...string) string) {
	t.Helper()
	words := func(text string) (lines []string) {
		for line := range strings.Lines(text) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	if got := words(mst("hosts")); len(got) != 3 || !strings.HasPrefix(got[2], fmt.Sprintf("micro-vms healthy %d http://127.0.0.1:", os.Getpid())) {
		t.Errorf("hosts as text: %q", got)
	}
	// The age is a matter of seconds.
	row := func(r control.Record) *regexp.Regexp {
		return regexp.MustCompile(fmt.Sprintf("^micro-vms microvm %s tenant/%s/agent python [0-9]+[smh] %s$", r.State, r.ThreadID, r.InstanceID))
	}
	for what, text := range map[string]string{"list": mst("list"), "watch": mst("watch", "--count", "1")} {
		got := words(text)
		if what == "watch" && (len(got) == 0 || !strings.HasPrefix(got[0], "Snapshot 1 at ")) {
			t.Errorf("watch as text: %q", got)
		}
		if n := len(got); n < 2 || !row(listed[0]).MatchString(got[n-2]) || !row(listed[1]).MatchString(got[n-1]) {
			t.Errorf("%s as text: %q", what, got)
		}
	}
	one := listed[0]
	shown := words(mst("show", one.InstanceID))
	for _, want := range []string{
		"source micro-vms", "backend microvm", "key tenant/t-1/agent", "kind python", "instance " + one.InstanceID, "state running",
		"process " + strconv.Itoa(one.ProcessID), "contract -", "egress closed",
	} {
		if !slices.Contains(shown, want) {
			t.Errorf("show as text has no %q: %q", want, shown)
		}
	}
	if r := decode[control.Record](t, mst("show", one.InstanceID, "--json")); !equal(r, one) {
		t.Errorf("show: %+v, want %+v", r, one)
	}
	type snapshot struct {
		Complete  bool
		Errors    []any
		Sandboxes []control.Record
	}
	if seen := decode[snapshot](t, mst("watch", "--jsonl", "--count", "1")); !seen.Complete || len(seen.Errors) != 0 || !slices.EqualFunc(seen.Sandboxes, listed, equal) {
		t.Errorf("watch: %+v, want %+v", seen, listed)
	}
}
