package microvm

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
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

// lingering is a process that has been told to end, and whose end nobody has seen
// until gone is closed.
type lingering struct {
	process
	gone chan struct{}
}

func (l *lingering) Abandon()              {}
func (l *lingering) Ended() bool           { return false }
func (l *lingering) Done() <-chan struct{} { return l.gone }
func (l *lingering) Release(ctx context.Context) error {
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestASandboxTellsOfEveryStateOfItsLife(t *testing.T) {
	running, resetting := make(chan struct{}), make(chan struct{})
	// sandboxOf is one whose worker answers a run and a reset when it is let.
	sandboxOf := func(t *testing.T) (*Backend, *Sandbox, *lingering) {
		t.Helper()
		b := fakeBackend(t, &fakeSystem{serve: answers(func(w *fakeWorker, f wire.Frame) {
			switch f.Kind {
			case wire.KindRun:
				<-running
			case wire.KindReset:
				<-resetting
			}
			good(w, f)
		})}, Config{})
		s, err := b.Get(t.Context(), key(), spec())
		if err != nil {
			t.Fatal(err)
		}
		slow := &lingering{s.worker, make(chan struct{})}
		s.worker = slow
		return b, s, slow
	}
	becomes := func(t *testing.T, s *Sandbox, want liveness.State) {
		t.Helper()
		eventually(t, "the sandbox is "+want.String(), func() bool { return s.Liveness() == liveness.Report{State: want, ProcessID: 4242} })
	}
	t.Run("used, reset and disposed of", func(t *testing.T) {
		b, s, worker := sandboxOf(t)
		becomes(t, s, liveness.Ready)
		done := make(chan error, 1)
		go func() { _, err := s.RunCode(context.Background(), "x", time.Minute); done <- err }()
		becomes(t, s, liveness.Running)
		close(running)
		if err := <-done; err != nil {
			t.Error(err)
		}
		becomes(t, s, liveness.Ready)
		go func() { done <- s.Reset(context.Background()) }()
		becomes(t, s, liveness.Resetting)
		close(resetting)
		if err := <-done; err != nil {
			t.Error(err)
		}
		becomes(t, s, liveness.Ready)
		go func() { done <- b.Dispose(context.Background(), key(), sandbox.DisposeOptions{}) }()
		becomes(t, s, liveness.Disposing)
		close(worker.gone)
		if err := <-done; err != nil {
			t.Error(err)
		}
		becomes(t, s, liveness.Exited)
	})
	t.Run("lost", func(t *testing.T) {
		_, s, worker := sandboxOf(t)
		// What breaks the protocol is of no use, and its end is not yet seen.
		s.lose(sandbox.ErrWorkerLost, wire.ErrProtocol)
		becomes(t, s, liveness.Failed)
		close(worker.gone)
		becomes(t, s, liveness.Exited)
	})
	t.Run("closed", func(t *testing.T) {
		b, s, worker := sandboxOf(t)
		done := make(chan error, 1)
		go func() { done <- b.Close() }()
		becomes(t, s, liveness.Disposing)
		close(worker.gone)
		if err := <-done; err != nil {
			t.Error(err)
		}
		becomes(t, s, liveness.Exited)
	})
}
