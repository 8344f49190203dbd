package sandboxtest

import (
	"context"
	"errors"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func disposalRules() []rule {
	return []rule{
		{name: "disposing of what is not there is no error", probe: func(f *fixture) {
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			f.dispose(mainKey(), sandbox.DisposeOptions{Kind: f.h.Spec.Kind, InstanceID: "0123456789abcdef0123456789abcdef"})
		}},
		{name: "the same instance can be disposed of twice", probe: func(f *fixture) {
			options := sandbox.DisposeOptions{Kind: f.h.Spec.Kind, InstanceID: f.acquire().ID()}
			f.dispose(mainKey(), options)
			f.dispose(mainKey(), options)
			f.purged(mainKey(), 0)
		}},
		{name: "a disposed sandbox says that it is lost", needs: needsRun, probe: func(f *fixture) {
			s := f.acquire()
			f.output(s, f.p.Print("alive"), "alive")
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			f.isLost(s)
		}},
		{name: "after a disposal acquire gives a fresh sandbox under a new id", needs: needsRun, probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			f.set(s, "old", "state")
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			fresh := f.acquire()
			if fresh.ID() == id {
				f.t.Fatalf("the id %q came again", id)
			}
			f.lacks(fresh, "old")
		}},
		{name: "the id of a replaced sandbox disposes of nothing", probe: func(f *fixture) {
			old := f.acquire().ID()
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			id := f.acquire().ID()
			f.dispose(mainKey(), sandbox.DisposeOptions{Kind: f.h.Spec.Kind, InstanceID: old})
			f.dispose(mainKey(), sandbox.DisposeOptions{InstanceID: old})
			f.still(mainKey(), f.h.Spec, id)
		}},
		{name: "the id from before a reset disposes of nothing", needs: needsSnapshot, probe: func(f *fixture) {
			s := f.acquire()
			old := s.ID()
			f.reset(s)
			id := s.ID()
			f.dispose(mainKey(), sandbox.DisposeOptions{Kind: f.h.Spec.Kind, InstanceID: old})
			f.still(mainKey(), f.h.Spec, id)
			f.output(s, f.p.Print("alive"), "alive")
		}},
		{name: "disposing of one kind spares the others", probe: func(f *fixture) {
			f.acquire()
			id := f.acquireAs(mainKey(), f.otherKind()).ID()
			f.dispose(mainKey(), sandbox.DisposeOptions{Kind: f.h.Spec.Kind})
			f.still(mainKey(), f.otherKind(), id)
			f.purged(mainKey(), 1)
		}},
		{name: "disposing of one instance spares the other kinds", probe: func(f *fixture) {
			id := f.acquireAs(mainKey(), f.otherKind()).ID()
			f.dispose(mainKey(), sandbox.DisposeOptions{InstanceID: f.acquire().ID()})
			f.still(mainKey(), f.otherKind(), id)
			f.purged(mainKey(), 1)
		}},
		{name: "disposing of a key takes all its kinds", probe: func(f *fixture) {
			f.acquire()
			f.acquireAs(mainKey(), f.otherKind())
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			f.purged(mainKey(), 0)
		}},
		{name: "disposing of a key spares every other key", probe: func(f *fixture) {
			f.acquire()
			ids := make(map[sandbox.Key]string)
			for _, other := range f.otherKeys() {
				ids[other] = f.acquireAs(other, f.h.Spec).ID()
			}
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			for other, id := range ids {
				f.still(other, f.h.Spec, id)
			}
		}},
		{name: "disposing ends a running program, which says that its sandbox is lost", needs: needsRun, probe: func(f *fixture) {
			f.whileBusy(f.p.Forever, func(s sandbox.Sandbox, _ string, occupant *pending[sandbox.ExecResult]) bool {
				f.dispose(mainKey(), sandbox.DisposeOptions{InstanceID: s.ID()})
				_, err := occupant.wait()
				f.is("a program whose sandbox was disposed of", err, sandbox.ErrWorkerLost)
				if sandbox.Usable(err) {
					f.t.Fatalf("error %v says that the sandbox is usable", err)
				}
				f.purged(mainKey(), 0)
				return true
			})
		}},
		{name: "a disposal that fails says why, and the sandbox stays registered until one succeeds", probe: func(f *fixture) {
			heal := f.failDisposals()
			options := sandbox.DisposeOptions{Kind: f.h.Spec.Kind, InstanceID: f.acquire().ID()}
			for range 2 {
				err := f.tryDispose(mainKey(), options)
				var failure *sandbox.DisposalFailure
				if !errors.As(err, &failure) || failure.Detail == "" {
					f.t.Fatalf("Dispose = %v (%T), want a DisposalFailure with a detail", err, err)
				}
			}
			heal()
			f.purged(mainKey(), 1)
			f.dispose(mainKey(), options)
			f.purged(mainKey(), 0)
		}},
		{name: "a sandbox whose disposal failed is never given out again", needs: needsRun, probe: func(f *fixture) {
			heal := f.failDisposals()
			s := f.acquire()
			id := s.ID()
			if err := f.tryDispose(mainKey(), sandbox.DisposeOptions{}); err == nil {
				f.t.Fatalf("the disposal did not fail")
			}
			f.isLost(s)
			heal()
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			if f.acquire().ID() == id {
				f.t.Fatalf("the id %q came again", id)
			}
		}},
	}
}

// still checks that acquire gives the sandbox with this id.
func (f *fixture) still(key sandbox.Key, spec sandbox.Spec, id string) {
	f.t.Helper()
	if now := f.acquireAs(key, spec).ID(); now != id {
		f.t.Fatalf("the sandbox of %s, %s was %q and is %q", key, spec.Kind, id, now)
	}
}

// failDisposals has disposals fail until the returned function is called, at
// the latest after the rule.
func (f *fixture) failDisposals() (heal func()) {
	f.t.Helper()
	if f.h.FailDisposals == nil {
		f.t.Skipf("the harness cannot have disposals fail")
	}
	heal = f.h.FailDisposals(f.backend)
	f.t.Cleanup(heal)
	return heal
}

// sibling is another backend value over the same sandboxes.
func (f *fixture) sibling() *fixture {
	f.t.Helper()
	if f.h.Sibling == nil {
		f.t.Skipf("the harness has no second backend value over the same sandboxes")
	}
	other := *f
	other.backend = f.h.Sibling(f.t, f.backend)
	f.t.Cleanup(func() { f.close(other.backend) })
	return &other
}

func purgeRules() []rule {
	return []rule{
		{name: "purging where nothing is finds nothing", probe: func(f *fixture) { f.purged(mainKey(), 0) }},
		{name: "a purge takes all agents, kinds and calls of the conversation and counts them", probe: func(f *fixture) {
			want := f.populate()
			f.purged(mainKey(), want)
			f.purged(mainKey(), 0)
		}},
		{name: "a purge spares other threads and other scopes", probe: func(f *fixture) {
			others := f.otherKeys()
			delete(others, "agent")
			ids := make(map[sandbox.Key]string)
			for _, other := range others {
				ids[other] = f.acquireAs(other, f.h.Spec).ID()
			}
			f.acquire()
			f.purge(mainKey().Scope, mainKey().ThreadID)
			for other, id := range ids {
				f.still(other, f.h.Spec, id)
			}
		}},
		{name: "a purged sandbox says that it is lost", needs: needsRun, probe: func(f *fixture) {
			s := f.acquire()
			f.purge(mainKey().Scope, mainKey().ThreadID)
			f.isLost(s)
		}},
		{name: "a purge reaches sandboxes that another backend value made", probe: func(f *fixture) {
			other := f.sibling()
			other.acquire()
			f.purged(mainKey(), 1)
			other.purged(mainKey(), 0)
		}},
		{name: "a purge that fails says why and can be repeated", probe: func(f *fixture) {
			want := f.populate()
			heal := f.failDisposals()
			purge := f.purge(mainKey().Scope, mainKey().ThreadID)
			if purge.Undisposed == nil || purge.Undisposed.Detail == "" || purge.Disposed != 0 {
				f.t.Fatalf("DisposeScope = %d disposed, failure %v; want 0 and a failure with a detail", purge.Disposed, purge.Undisposed)
			}
			heal()
			f.purged(mainKey(), want)
		}},
	}
}

// populate acquires sandboxes of several agents, kinds and calls in the
// conversation of the main key and counts them.
func (f *fixture) populate() int {
	f.t.Helper()
	f.acquire()
	f.acquireAs(mainKey(), f.otherKind())
	f.acquireAs(f.otherKeys()["agent"], f.h.Spec)
	count := 3
	for n := range 2 {
		if key, spec, ok := f.call(n); ok {
			f.acquireAs(key, spec)
			count++
		}
	}
	return count
}

func closeRules() []rule {
	return []rule{
		{name: "closing disposes of the backend's sandboxes", needs: needsRun, probe: func(f *fixture) {
			s := f.acquire()
			if err := f.closes(); err != nil {
				f.t.Fatalf("Close: %v", err)
			}
			f.isLostOrClosed(s)
		}},
		{name: "a closed backend acquires nothing and says why", probe: func(f *fixture) {
			if err := f.closes(); err != nil {
				f.t.Fatalf("Close: %v", err)
			}
			_, err := f.tryAcquire(mainKey(), f.h.Spec)
			f.is("Acquire after Close", err, sandbox.ErrClosed)
		}},
		{name: "closing again is no error, nor is disposing afterwards", probe: func(f *fixture) {
			f.acquire()
			for range 2 {
				if err := f.closes(); err != nil {
					f.t.Fatalf("Close: %v", err)
				}
			}
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			f.purged(mainKey(), 0)
		}},
		{name: "closing spares the sandboxes of another backend value", needs: needsRun, probe: func(f *fixture) {
			other := f.sibling()
			s := other.acquire()
			if err := f.closes(); err != nil {
				f.t.Fatalf("Close: %v", err)
			}
			other.output(s, f.p.Print("alive"), "alive")
			other.still(mainKey(), f.h.Spec, s.ID())
		}},
		{name: "closing that cannot dispose of everything says so and can be repeated", probe: func(f *fixture) {
			heal := f.failDisposals()
			f.acquire()
			if err := f.closes(); err == nil {
				f.t.Fatalf("Close says nothing of a sandbox that it could not dispose of")
			}
			heal()
			if err := f.closes(); err != nil {
				f.t.Fatalf("the second Close: %v", err)
			}
		}},
		{name: "closing ends a running program", needs: needsRun, probe: func(f *fixture) {
			f.whileBusy(f.p.Forever, func(_ sandbox.Sandbox, _ string, occupant *pending[sandbox.ExecResult]) bool {
				if err := f.closes(); err != nil {
					f.t.Fatalf("Close: %v", err)
				}
				_, err := occupant.wait()
				if err == nil || errors.Is(err, context.DeadlineExceeded) || sandbox.Usable(err) {
					f.t.Fatalf("a program whose backend was closed ended with %v", err)
				}
				return true
			})
		}},
	}
}

func (f *fixture) closes() error {
	f.t.Helper()
	_, err := within(f, "Close", func(context.Context) (struct{}, error) { return struct{}{}, f.backend.Close() })
	return err
}

// isLostOrClosed checks that a sandbox of a closed backend runs nothing.
func (f *fixture) isLostOrClosed(s sandbox.Sandbox) {
	f.t.Helper()
	_, err := f.tryRun(s, f.p.Print("ghost"), f.h.Patience)
	if !errors.Is(err, sandbox.ErrWorkerLost) && !errors.Is(err, sandbox.ErrClosed) || sandbox.Usable(err) {
		f.t.Fatalf("running in a sandbox of a closed backend: %v", err)
	}
}
