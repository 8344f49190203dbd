package router_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// lose has the sandbox of a program crash.
func lose(t *testing.T, b *fake, s sandbox.Sandbox) {
	t.Helper()
	b.Script(sandboxtest.OpRunCode, failing(&sandbox.OpError{Op: "run_code", Class: sandbox.ErrGuestCrash}))
	if _, err := s.RunCode(t.Context(), "", 0); sandbox.Usable(err) {
		t.Fatal("the sandbox is not lost")
	}
}

// A kept call, as that of a session, in which programs crash over and over.
func TestACallThatIsKeptDoesNotGatherTheSandboxesThatItLost(t *testing.T) {
	const crashes = 100
	b := snapshots()
	call, s := enter(t, newRouter(t, lenient(b)), mainKey, pythonSpec)
	for range crashes {
		lose(t, b, s)
		var err error
		if s, err = call.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := call.HeldGenerations(); n != 1 {
			t.Fatalf("%d generations are held", n)
		}
	}
	run(t, s, `print "x"`, "x")
	before := len(b.Calls())
	isNil(t, "Finish", call.Finish(t.Context()))
	if n := len(b.Calls()) - before; n != 1 {
		t.Errorf("the end of the call takes %d steps, want the reset of the one that lives", n)
	}
}

// unsure is a backend that cannot tell what became of sandboxes that it replaced.
type unsure struct {
	*fake
	failure error
}

func (b *unsure) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	if b.failure != nil {
		return b.failure
	}
	return b.fake.Dispose(ctx, key, options)
}

func TestALostSandboxThatIsNotConfirmedGoneStaysTheCallsToClean(t *testing.T) {
	b := &unsure{snapshots(), &sandbox.DisposalFailure{Code: sandbox.DisposalTimeout}}
	r := newRouter(t, lenient(b))
	call, s := enter(t, r, mainKey, pythonSpec)
	lose(t, b.fake, s)
	if _, err := call.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := call.HeldGenerations(); n != 2 {
		t.Errorf("%d generations are held, want the lost one and its successor", n)
	}
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "timeout")
	_, err := call.Acquire(t.Context())
	is(t, err, sandbox.ErrUnclean)
	b.failure = nil
	isNil(t, "Finish", call.Finish(t.Context())) // which disposes again
	isNil(t, "Unclean", r.Unclean(mainKey))
}

// Generations that live are not taken for lost, whoever acquires when.
func TestAcquiresOfOneCallAtATimeKeepTheSandboxThatLives(t *testing.T) {
	b := snapshots()
	call, s := enter(t, newRouter(t, lenient(b)), mainKey, pythonSpec)
	for range 20 {
		lose(t, b, s)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if _, err := call.Acquire(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var err error
		if s, err = call.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, s, `print "x"`, "x")
		if err := s.Reset(t.Context()); err != nil { // by the program
			t.Fatal(err)
		}
	}
	if n := call.HeldGenerations(); n > 2 {
		t.Errorf("%d generations are held", n)
	}
	isNil(t, "Finish", call.Finish(t.Context()))
	if left := b.Registered(); left != 1 {
		t.Errorf("%d sandboxes are left, want one", left)
	}
}

// wrapped is a decorator, which tells of the backend behind it and of nothing else.
type wrapped struct{ sandbox.Backend }

func (w wrapped) Unwrap() sandbox.Backend { return w.Backend }

func TestABackendOwnsItsSandboxBehindDecoratorsToo(t *testing.T) {
	inner := newLeasing()
	r := newRouter(t, lenient(wrapped{wrapped{inner}}))
	isNil(t, "a call", r.WithSandbox(t.Context(), mainKey, pythonSpec, running(t, `print "x"`, "x")))
	inner.wantLog(t, "admitted acquire reset reset released")
	// What is behind nothing, or nothing itself, wants nothing.
	other := newRouter(t, lenient(wrapped{snapshots()}))
	isNil(t, "a call", other.WithSandbox(t.Context(), mainKey, pythonSpec, running(t, `print "x"`, "x")))
}

func TestTheObserverHearsWhoHasASandboxAlone(t *testing.T) {
	exclusive := pythonSpec
	exclusive.ExclusiveAdmission = true
	declares := declared(sandbox.CapSnapshot)
	declares.ExclusiveAdmission = true
	for name, row := range map[string]struct {
		backend sandbox.Backend
		spec    sandbox.Spec
		options router.CallOptions
		want    bool
	}{
		"nobody":               {backend: snapshots(), spec: pythonSpec},
		"by its options":       {backend: snapshots(), spec: pythonSpec, options: router.CallOptions{Exclusive: true}, want: true},
		"by its spec":          {backend: snapshots(), spec: exclusive, want: true},
		"by the backend":       {backend: newFakeWith("memory", sandbox.IsolationMicroVM, declares), spec: pythonSpec, want: true},
		"by a lease":           {backend: newLeasing(), spec: pythonSpec, want: true},
		"by a decorated one's": {backend: wrapped{newLeasing()}, spec: pythonSpec, want: true},
	} {
		observer := new(recorder)
		config := lenient(row.backend)
		config.Observer = observer
		call, err := newRouter(t, config).Enter(t.Context(), mainKey, row.spec, row.options)
		if err != nil {
			t.Fatal(err)
		}
		isNil(t, "Finish", call.Finish(t.Context()))
		events := observer.take()
		admitted, ok := events[0].(router.CallAdmitted)
		if !ok || admitted.Exclusive != row.want {
			t.Errorf("%s: the observer heard %s", name, fmt.Sprint(events))
		}
	}
}
