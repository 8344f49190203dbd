package control_test

import (
	"context"
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

var (
	_ router.AdmissionWatcher = (*control.Monitor)(nil)
	_ router.EgressReporter   = (*control.Monitor)(nil)
)

// routed is a host with the router of this repository.
func routed(t *testing.T) *hosted {
	t.Helper()
	h := &hosted{backend: newBackend()}
	h.monitor = control.NewMonitor(h.backend)
	r, err := router.New(router.Config{Backends: []sandbox.Backend{h.monitor}, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	h.router = r
	return h
}

func TestTheRouterGivesEveryMeasuredOutcome(t *testing.T) {
	checkDisposals(t, func() *hosted { return routed(t) })
	checkPurges(t, func() *hosted { return routed(t) })
}

// A backend may have ended the worker and not the rest. What it failed to clear
// away, an operator can have it try again.
func TestAFailedDisposalOfAWorkerThatIsGoneCanBeRepeated(t *testing.T) {
	h := routed(t)
	ctl := h.control(free, true)
	box, err := h.acquire("python")
	if err != nil {
		t.Fatal(err)
	}
	h.backend.boxes()[0].become(liveness.Exited)
	for _, tt := range []struct {
		mode    string
		status  control.DisposalStatus
		listed  int
		unclean bool
	}{
		{modeFail, control.DisposalFailed, 1, true},
		{modeOK, control.Disposed, 0, false},
	} {
		h.backend.set(tt.mode)
		if result, err := ctl.Dispose(t.Context(), box.ID(), patience); err != nil || result.Status != tt.status {
			t.Errorf("Dispose = %+v, %v, want %s", result, err, tt.status)
		}
		if records := inventory(t, ctl); len(records) != tt.listed {
			t.Errorf("after %s: %+v", tt.status, records)
		}
		if err := h.router.(*router.Router).Unclean(testKey); (err != nil) != tt.unclean {
			t.Errorf("after %s the key: %v", tt.status, err)
		}
	}
}

func TestWhatACallUsesIsVisible(t *testing.T) {
	h := routed(t)
	ctl := h.control(free, true)
	err := h.router.(*router.Router).WithSandbox(context.Background(), testKey, testSpec("python"), func(_ context.Context, s sandbox.Sandbox) error {
		if records := inventory(t, ctl); len(records) != 1 || records[0].InstanceID != s.ID() {
			t.Errorf("during the call: %+v", records)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if records := inventory(t, ctl); len(records) != 1 {
		t.Errorf("after the call: %+v", records)
	}
	odd := testSpec("odd")
	odd.MinIsolation = sandbox.IsolationVM
	if _, err := h.router.Acquire(context.Background(), testKey, odd); !errors.Is(err, sandbox.ErrNotPermitted) {
		t.Fatal(err)
	}
	if records := inventory(t, ctl); len(records) != 1 {
		t.Errorf("after a refusal: %+v", records)
	}
}

// reporting is a backend that tells what its sandboxes reach for.
type reporting struct {
	*backend
	report func(sandbox.EgressObservation)
}

func (r *reporting) ObserveEgress(report func(sandbox.EgressObservation)) { r.report = report }

func TestAMonitorPassesOnWhatSandboxesReachFor(t *testing.T) {
	seen := 0
	count := func(sandbox.EgressObservation) { seen++ }
	inner := &reporting{backend: newBackend()}
	control.NewMonitor(inner).ObserveEgress(count)
	control.NewMonitor(newBackend()).ObserveEgress(count) // which has nothing to tell
	inner.report(sandbox.EgressObservation{})
	if seen != 1 {
		t.Errorf("%d observations", seen)
	}
}
