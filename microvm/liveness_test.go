package microvm

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestASandboxTellsWhatItsWorkerDoes(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	report := s.Liveness()
	if report.State != liveness.Ready || !slices.Contains(workers(t), report.ProcessID) {
		t.Errorf("before a run %+v, the workers are %v", report, workers(t))
	}
	running := make(chan error, 1)
	go func() {
		_, err := s.RunCode(context.Background(), "while True: pass", time.Hour)
		running <- err
	}()
	eventually(t, "the sandbox runs", func() bool { return s.Liveness().State == liveness.Running })
	if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-running; sandbox.Usable(err) {
		t.Errorf("the run: %v", err)
	}
	if got := s.Liveness().State; got != liveness.Exited {
		t.Errorf("after the disposal: %v", got)
	}
}

func TestASandboxIsReadyAgainAfterEveryOperation(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	ask(t, s)
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Liveness().State; got != liveness.Ready {
		t.Errorf("after a run and a reset: %v", got)
	}
	_, err := s.RunCode(t.Context(), "import os; os._exit(3)", 0)
	if err == nil {
		t.Fatal("the sandbox survived the end of its interpreter")
	}
	eventually(t, "the worker is gone", func() bool { return s.Liveness().State == liveness.Exited })
}
