package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func free(context.Context, sandbox.Key) (func(), error) { return func() {}, nil }

func TestARecordTellsWhatTheSpecAndTheWorkerSay(t *testing.T) {
	h := newHosted()
	box, err := h.acquire("python")
	if err != nil {
		t.Fatal(err)
	}
	records := inventory(t, h.control(free, true))
	if len(records) != 1 {
		t.Fatalf("listed %+v", records)
	}
	got := records[0]
	if age := got.CreatedAt.Age(time.Now()); age > patience || got.LastActivityAt != got.CreatedAt {
		t.Errorf("created %v ago, last signal %v", age, got.LastActivityAt)
	}
	got.CreatedAt, got.LastActivityAt = 0, 0
	want := control.Record{
		SourceID: "src", Backend: "hyperlight", Scope: "tenant", ThreadID: "thread", AgentID: "agent", Kind: "python",
		InstanceID: box.ID(), State: control.StateReady, ProcessID: 777, ExecutionContract: "contract-1", EgressTargets: []string{"a.example", "b.example"},
	}
	if a, b := marshal(t, got), marshal(t, want); a != b {
		t.Errorf("listed %s\nwant   %s", a, b)
	}
}

func marshal(t *testing.T, r control.Record) string {
	t.Helper()
	text, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryStateOfAWorkerIsShown(t *testing.T) {
	h := newHosted()
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	ctl := h.control(free, true)
	for state, want := range map[liveness.State]control.State{
		liveness.Unknown: control.StateFailed, liveness.Starting: control.StateStarting, liveness.Ready: control.StateReady,
		liveness.Running: control.StateRunning, liveness.Resetting: control.StateResetting, liveness.Disposing: control.StateDisposing,
		liveness.Failed: control.StateFailed, liveness.Exited: control.StateFailed, liveness.State(99): control.StateFailed,
	} {
		h.backend.boxes()[0].become(state)
		if got := inventory(t, ctl)[0].State; got != want {
			t.Errorf("%v is shown as %s, want %s", state, got, want)
		}
	}
}

func TestOnlyWhatTheRouterAdmittedIsVisible(t *testing.T) {
	ctx := context.Background()
	h := newHosted()
	ctl := h.control(free, true)
	if _, err := h.monitor.Acquire(ctx, testKey, testSpec("python")); err != nil {
		t.Fatal(err)
	}
	if records := inventory(t, ctl); len(records) != 0 {
		t.Errorf("around the router: %+v", records)
	}
	h.plain.refuse = &sandbox.RefusalError{Reason: sandbox.ErrNotPermitted}
	if _, err := h.acquire("python"); !errors.Is(err, sandbox.ErrNotPermitted) {
		t.Fatal(err)
	}
	if records := inventory(t, ctl); len(records) != 0 {
		t.Errorf("refused by the router: %+v", records)
	}
	h.plain.refuse = nil
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	if records := inventory(t, ctl); len(records) != 1 {
		t.Errorf("admitted: %+v", records)
	}
	// What another call is refused later does not take it away.
	h.plain.refuse = sandbox.ErrNotPermitted
	if _, err := h.acquire("python"); err == nil {
		t.Fatal("not refused")
	}
	if records := inventory(t, ctl); len(records) != 1 {
		t.Errorf("after another call's refusal: %+v", records)
	}
}

func TestAnAcquireIsASignalAndAResetIsANewSandbox(t *testing.T) {
	h := newHosted()
	ctl := h.control(free, true)
	box, err := h.acquire("python")
	if err != nil {
		t.Fatal(err)
	}
	first := inventory(t, ctl)[0]
	eventually(t, func() bool { return control.At(time.Now()) > first.CreatedAt }, "the clock stands still")
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	second := inventory(t, ctl)[0]
	if second.CreatedAt != first.CreatedAt || second.LastActivityAt <= first.LastActivityAt || second.InstanceID != first.InstanceID {
		t.Errorf("after another acquire %+v, before %+v", second, first)
	}
	if err := box.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	third := inventory(t, ctl)[0]
	if third.InstanceID != box.ID() || third.CreatedAt <= first.CreatedAt || third.LastActivityAt != third.CreatedAt {
		t.Errorf("after a reset %+v, before %+v", third, first)
	}
	if result, err := ctl.Dispose(context.Background(), first.InstanceID, 0); err != nil || result.Status != control.NotFound || len(h.backend.boxes()) != 1 {
		t.Errorf("disposing of the older generation: %+v, %v", result, err)
	}
}

// A backend that obeys nobody is overtaken by the end of the operation.
func TestASandboxOfABackendThatIsStuckIsWithheldUntilItsWorkerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosted()
		ctl := h.control(free, true)
		if _, err := h.acquire("python"); err != nil {
			t.Fatal(err)
		}
		id := inventory(t, ctl)[0].InstanceID
		h.backend.set(modeStuck)
		done := make(chan control.DisposalResult, 1)
		go func() {
			result, err := ctl.Dispose(context.Background(), id, shortTime)
			if err != nil {
				t.Errorf("Dispose: %v", err)
			}
			done <- result
		}()
		eventually(t, func() bool { return len(h.backend.log()) == 1 && len(inventory(t, ctl)) == 0 }, "the sandbox is still offered")
		if !retained(t, h) {
			t.Error("the sandbox does not count any more")
		}
		close(h.backend.letGo)
		if result := <-done; result.Status != control.DisposalFailed || result.Message != timedOut {
			t.Errorf("Dispose = %+v: late, and yet %s", result, result.Status)
		}
		// Late, but observed: it is gone.
		if retained(t, h) {
			t.Error("the worker was seen to have exited, and still counts")
		}
	})
}

func TestAWithheldSandboxCountsThoughItsPlaceHasAnother(t *testing.T) {
	ctx := context.Background()
	h := newHosted()
	ctl := h.control(free, true)
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	old := h.backend.boxes()[0]
	h.backend.set(modeRaise)
	if result, err := ctl.Dispose(ctx, old.ID(), 0); err != nil || result.Status != control.DisposalFailed {
		t.Fatalf("Dispose = %+v, %v", result, err)
	}
	// The backend forgets it without a word, and the router admits another.
	h.backend.set(modeNoExit)
	if err := h.backend.Dispose(ctx, testKey, sandbox.DisposeOptions{}); err != nil {
		t.Fatal(err)
	}
	h.plain.unclean = nil
	h.backend.set(modeOK)
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	records := inventory(t, ctl)
	if len(records) != 1 || records[0].InstanceID == old.ID() {
		t.Errorf("listed %+v", records)
	}
	result, err := ctl.Purge(ctx, testKey.Scope, testKey.ThreadID, 0)
	if err != nil || result.Status != control.PurgePartial || result.Disposed != 1 {
		t.Errorf("Purge = %+v, %v: a worker is left", result, err)
	}
	old.become(liveness.Exited)
	if result, err := ctl.Purge(ctx, testKey.Scope, testKey.ThreadID, 0); err != nil || result.Status != control.Purged {
		t.Errorf("Purge = %+v, %v", result, err)
	}
}

func TestAMonitorIsTheBackendThatItWraps(t *testing.T) {
	inner := sandboxtest.New(sandboxtest.Config{Name: "inner"})
	m := control.NewMonitor(inner)
	if m.Name() != "inner" || m.Isolation() != inner.Isolation() || m.Unwrap() != sandbox.Backend(inner) ||
		m.Declarations().Capabilities != inner.Declarations().Capabilities {
		t.Errorf("the monitor is %s, %v", m.Name(), m.Isolation())
	}
	if err := m.Close(); err != nil || inner.Count(sandboxtest.OpClose) != 1 {
		t.Errorf("Close: %v", err)
	}
}

func TestAMonitorKeepsThePromisesOfABackend(t *testing.T) {
	harness := sandboxtest.MemoryHarness(sandboxtest.Config{})
	inner := harness.New
	harness.New = func(t sandboxtest.T) sandbox.Backend { return control.NewMonitor(inner(t)) }
	if heal := harness.FailDisposals; heal != nil {
		harness.FailDisposals = func(b sandbox.Backend) func() { return heal(b.(*control.Monitor).Unwrap()) }
	}
	if sibling := harness.Sibling; sibling != nil {
		harness.Sibling = func(t sandboxtest.T, first sandbox.Backend) sandbox.Backend {
			return control.NewMonitor(sibling(t, first.(*control.Monitor).Unwrap()))
		}
	}
	sandboxtest.RunConformance(t, harness)
}

func TestTheHostReleasesWhatItQuiesced(t *testing.T) {
	ctx := context.Background()
	for _, tt := range []struct {
		name    string
		quiesce func(ctx context.Context) error // after which the work is fenced
		timeout time.Duration
		status  control.DisposalStatus
		fails   error
		calls   int
	}{
		{"used", func(context.Context) error { return nil }, patience, control.Disposed, nil, 1},
		{"fails", func(context.Context) error { return errSecret }, patience, "", errSecret, 0},
		{"too late", func(ctx context.Context) error { <-ctx.Done(); return nil }, shortTime, control.DisposalFailed, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHosted()
				if _, err := h.acquire("python"); err != nil {
					t.Fatal(err)
				}
				var events []string
				ctl := h.control(func(ctx context.Context, key sandbox.Key) (func(), error) {
					events = append(events, "enter "+key.String())
					err := tt.quiesce(ctx)
					return func() { events = append(events, "release") }, err
				}, true)
				result, err := ctl.Dispose(ctx, inventory(t, ctl)[0].InstanceID, tt.timeout)
				if result.Status != tt.status || !errors.Is(err, tt.fails) {
					t.Errorf("Dispose = %+v, %v", result, err)
				}
				if want := []string{"enter tenant/thread/agent", "release"}; !slices.Equal(events, want) {
					t.Errorf("events %v, want %v", events, want)
				}
				if calls := h.backend.log(); len(calls) != tt.calls {
					t.Errorf("the backend got %v", calls)
				}
			})
		})
	}
}

func TestAHostThatGivesUpIsNotToldOfATimeOut(t *testing.T) {
	h := newHosted()
	if _, err := h.acquire("python"); err != nil {
		t.Fatal(err)
	}
	entered := make(chan struct{})
	ctl := h.control(func(ctx context.Context, _ sandbox.Key) (func(), error) {
		close(entered)
		return nil, untilEnd(ctx)
	}, true)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-entered
		cancel()
	}()
	if result, err := ctl.Dispose(ctx, inventory(t, ctl)[0].InstanceID, patience); !errors.Is(err, context.Canceled) || result.Status != "" {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	if _, err := ctl.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v", err)
	}
}

func TestAPurgeCallbackThatFailsIsAnError(t *testing.T) {
	h := newHosted()
	host, err := control.NewHost(control.HostConfig{
		SourceID: "src", Monitors: []*control.Monitor{h.monitor}, Router: h.router,
		Purge: func(context.Context, string, string) (sandbox.ScopePurge, error) {
			return sandbox.ScopePurge{Disposed: 3}, errSecret
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := host.Purge(context.Background(), "s", "t", 0); !errors.Is(err, errSecret) || result.Status != "" {
		t.Errorf("Purge = %+v, %v", result, err)
	}
}

func TestAHostConfigurationReportsAllItsProblems(t *testing.T) {
	for _, config := range []control.HostConfig{{}, {Monitors: []*control.Monitor{nil}}} {
		_, err := control.NewHost(config)
		if !errors.Is(err, control.ErrConfig) {
			t.Fatalf("NewHost: %v", err)
		}
		for _, want := range []string{"source id", "monitors", "router"} {
			if !slices.ContainsFunc(err.(interface{ Unwrap() []error }).Unwrap(), func(e error) bool { return strings.Contains(e.Error(), want) }) {
				t.Errorf("%q says nothing about %q", err, want)
			}
		}
	}
}

// detour has exact disposals go another way than through one monitored backend.
type detour func(ctx context.Context, id string)

func (d detour) DisposeKind(ctx context.Context, _ sandbox.Key, _, id string, _ time.Duration) error {
	d(ctx, id)
	return nil
}

func TestADisposalIsJudgedByWhatTheMonitorsSaw(t *testing.T) {
	exact := func(id string) sandbox.DisposeOptions { return sandbox.DisposeOptions{Kind: "python", InstanceID: id} }
	for _, tt := range []struct {
		name    string
		dispose func(h *hosted) func(ctx context.Context, id string)
		status  control.DisposalStatus
		message string
	}{
		{"nothing happened", func(*hosted) func(context.Context, string) {
			return func(context.Context, string) {}
		}, control.DisposalFailed, kept},
		{"gone without a receipt", func(h *hosted) func(context.Context, string) {
			return func(ctx context.Context, _ string) { h.monitor.DisposeScope(ctx, testKey.Scope, testKey.ThreadID) }
		}, control.DisposalFailed, "Disposal completed without a matching backend receipt."},
		{"a receipt for every kind is not for this one", func(h *hosted) func(context.Context, string) {
			return func(ctx context.Context, _ string) { _ = h.monitor.Dispose(ctx, testKey, sandbox.DisposeOptions{}) }
		}, control.DisposalFailed, "Disposal completed without a matching backend receipt."},
		{"gone before", func(h *hosted) func(context.Context, string) {
			return func(ctx context.Context, id string) {
				h.monitor.DisposeScope(ctx, testKey.Scope, testKey.ThreadID)
				_ = h.monitor.Dispose(ctx, testKey, exact(id))
			}
		}, control.NotFound, gone},
		{"replaced", func(h *hosted) func(context.Context, string) {
			return func(ctx context.Context, id string) {
				h.monitor.DisposeScope(ctx, testKey.Scope, testKey.ThreadID)
				_ = h.monitor.Dispose(ctx, testKey, exact(id))
				_, _ = h.acquire("python")
			}
		}, control.NotFound, changed},
		{"disposed of and replaced", func(h *hosted) func(context.Context, string) {
			return func(ctx context.Context, id string) {
				_ = h.monitor.Dispose(ctx, testKey, exact(id))
				_, _ = h.acquire("python")
			}
		}, control.Disposed, "Sandbox disposed."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHosted()
			if _, err := h.acquire("python"); err != nil {
				t.Fatal(err)
			}
			host, err := control.NewHost(control.HostConfig{
				SourceID: "src", Monitors: []*control.Monitor{h.monitor}, Quiesce: free,
				Router: detour(tt.dispose(h)),
			})
			if err != nil {
				t.Fatal(err)
			}
			result, err := host.Dispose(context.Background(), inventory(t, host)[0].InstanceID, 0)
			if err != nil || result.Status != tt.status || result.Message != tt.message {
				t.Errorf("Dispose = %+v, %v, want %s: %s", result, err, tt.status, tt.message)
			}
		})
	}
}
