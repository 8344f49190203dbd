package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

var spec = sandbox.Spec{Kind: "code", Requires: sandbox.SetOf(sandbox.CapRunCode)}

// fenced is a router over a backend in memory that keeps sandboxes.
func fenced(t *testing.T) (*sandboxtest.Backend, *router.Router) {
	t.Helper()
	b := sandboxtest.New(sandboxtest.Config{})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}, MinIsolation: sandbox.IsolationNone, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

// used runs a program to its end, so that the sandbox is not as at its start.
func used(ctx context.Context, s sandbox.Sandbox) error {
	_, err := s.RunCode(ctx, sandboxtest.CommandPrograms().Print("x"), patience)
	return err
}

// ending is how a call of the test ended.
type ending struct {
	id  string
	err error
}

// running has a call inside whose program lasts until it is stopped, and which
// then returns what then makes of its error.
func running(t *testing.T, c *fence.Calls, then func(error) error) (id string, ended <-chan ending) {
	t.Helper()
	began, end := make(chan string, 1), make(chan ending, 1)
	go func() {
		var id string
		err := c.WithSandbox(t.Context(), key, spec, func(ctx context.Context, s sandbox.Sandbox) error {
			if err := used(ctx, s); err != nil {
				return err
			}
			id = s.ID()
			began <- id
			_, err := s.RunCode(ctx, sandboxtest.CommandPrograms().Forever, patience)
			return then(err)
		})
		end <- ending{id, err}
	}()
	return wait(t, "the program runs", began), end
}

func TestAnOperatorDisposesOfTheGenerationThatRan(t *testing.T) {
	for name, r := range map[string]struct {
		then func(error) error
		want error
	}{
		"a program that is stopped":        {func(err error) error { return err }, fence.ErrStopped},
		"a call that has a result by then": {func(error) error { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, rt := fenced(t)
			var f fence.Fence
			id, ended := running(t, f.Calls(rt), r.then)
			resets := b.Count(sandboxtest.OpReset)

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			release, err := f.Hold(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.DisposeKind(ctx, key, spec.Kind, id, patience); err != nil {
				t.Fatal(err)
			}
			if n, left := b.Count(sandboxtest.OpReset), b.Registered(); n != resets || left != 0 {
				t.Errorf("the operator finds %d resets, leaves %d sandboxes", n-resets, left)
			}
			release()

			got := wait(t, "the call ends", ended)
			switch {
			case !errors.Is(got.err, r.want):
				t.Errorf("ended with %v, want %v", got.err, r.want)
			case r.want != nil && (!errors.Is(got.err, sandbox.ErrDisposed) || sandbox.Usable(got.err)):
				t.Errorf("%v leaves hope", got.err)
			}
			err = f.Calls(rt).WithSandbox(ctx, key, spec, func(_ context.Context, s sandbox.Sandbox) error {
				if s.ID() == id {
					t.Error("the next call has the sandbox that was disposed of")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever holds may think better of it: what was promised stays true.
func TestASandboxWhoseProgramWasStoppedIsGoneWhateverTheOperatorDoes(t *testing.T) {
	b, r := fenced(t)
	var f fence.Fence
	_, ended := running(t, f.Calls(r), func(err error) error { return err })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	release, err := f.HoldThread(ctx, key.Scope, key.ThreadID)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if got := wait(t, "the call ends", ended); !errors.Is(got.err, fence.ErrStopped) || b.Registered() != 0 {
		t.Errorf("ended with %v, %d sandboxes left", got.err, b.Registered())
	}
}

func TestACallWaitsForAHoldAsLongAsItsContextLasts(t *testing.T) {
	b, r := fenced(t)
	var f fence.Fence
	release, err := f.Hold(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = f.Calls(r).WithSandbox(ctx, key, spec, func(context.Context, sandbox.Sandbox) error {
		t.Error("it is let in")
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || !sandbox.Usable(err) || b.Count(sandboxtest.OpAcquire) != 0 {
		t.Errorf("got %v, %d acquires", err, b.Count(sandboxtest.OpAcquire))
	}
	if err := f.Calls(r).EnsureCanServe(sandbox.Spec{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a spec without a kind: %v", err)
	}
}
