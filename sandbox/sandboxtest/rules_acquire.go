package sandboxtest

import (
	"context"
	"reflect"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

var (
	needsRun      = sandbox.SetOf(sandbox.CapRunCode)
	needsSnapshot = sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot)
)

func acquireRules() []rule {
	return []rule{
		{name: "a backend tells its name, isolation and declarations, the same every time", probe: func(f *fixture) {
			b := f.backend
			if b.Name() == "" || b.Isolation() == sandbox.IsolationUnset {
				f.t.Errorf("name %q, isolation %q: neither may be empty", b.Name(), b.Isolation())
			}
			if b.Declarations().EgressModes.IsEmpty() {
				f.t.Errorf("no egress mode is declared: no spec could be served")
			}
			if !reflect.DeepEqual(b.Declarations(), b.Declarations()) {
				f.t.Errorf("declarations differ from call to call")
			}
		}},
		{name: "a sandbox has an id and can do all that is declared", probe: func(f *fixture) {
			s := f.acquire()
			if s.ID() == "" {
				f.t.Errorf("the id is empty")
			}
			if missing := sandbox.Missing(s, f.backend.Declarations().Capabilities); !missing.IsEmpty() {
				f.t.Errorf("declared, but not implemented by %T: %s", s, missing)
			}
		}},
		{name: "acquiring a key again gives the same sandbox", probe: func(f *fixture) {
			first := f.acquire()
			id := first.ID()
			if again := f.acquire(); again.ID() != id {
				f.t.Fatalf("acquire gave %q, then %q", id, again.ID())
			}
			f.purged(mainKey(), 1)
		}},
		{name: "acquiring a key again keeps what ran before", needs: needsRun, probe: func(f *fixture) {
			f.set(f.acquire(), "kept", "yes")
			f.has(f.acquire(), "kept", "yes")
		}},
		{name: "acquiring a key from many sides at once creates one sandbox", probe: func(f *fixture) {
			const sides = 8
			calls := make([]*pending[sandbox.Sandbox], sides)
			for i := range calls {
				calls[i] = start(f, "Acquire", func(ctx context.Context) (sandbox.Sandbox, error) {
					return f.backend.Acquire(ctx, mainKey(), f.h.Spec)
				})
			}
			ids := make(map[string]bool)
			for _, call := range calls {
				s, err := call.wait()
				if err != nil {
					f.t.Fatalf("Acquire: %v", err)
				}
				ids[s.ID()] = true
			}
			if len(ids) != 1 {
				f.t.Fatalf("%d different sandboxes for one key", len(ids))
			}
			f.purged(mainKey(), 1)
		}},
		{name: "every part of a key makes another sandbox", probe: func(f *fixture) {
			ids := map[string]string{f.acquire().ID(): "the first key"}
			for part, other := range f.otherKeys() {
				f.distinct(ids, "another "+part, f.acquireAs(other, f.h.Spec))
			}
			for n := range 2 {
				if callKey, spec, ok := f.call(n); ok {
					f.distinct(ids, "call "+callKey.CallID, f.acquireAs(callKey, spec))
				}
			}
		}},
		{name: "another kind is another sandbox of the same key", probe: func(f *fixture) {
			ids := map[string]string{f.acquire().ID(): "the first kind"}
			f.distinct(ids, "another kind", f.acquireAs(mainKey(), f.otherKind()))
			f.purged(mainKey(), 2)
		}},
		{name: "sandboxes share nothing", needs: needsRun, probe: func(f *fixture) {
			f.set(f.acquire(), "secret", "mine")
			for _, other := range f.otherKeys() {
				f.lacks(f.acquireAs(other, f.h.Spec), "secret")
			}
			f.lacks(f.acquireAs(mainKey(), f.otherKind()), "secret")
			f.has(f.acquire(), "secret", "mine")
		}},
		{name: "acquiring in a context that is over creates nothing", probe: func(f *fixture) {
			_, err := within(f, "Acquire", func(ctx context.Context) (sandbox.Sandbox, error) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return f.backend.Acquire(ctx, mainKey(), f.h.Spec)
			})
			f.is("Acquire in a canceled context", err, sandbox.ErrCanceled, context.Canceled)
			f.purged(mainKey(), 0)
		}},
	}
}

// distinct checks that a sandbox's id is new among those seen, and adds it.
func (f *fixture) distinct(ids map[string]string, what string, s sandbox.Sandbox) {
	f.t.Helper()
	if other, taken := ids[s.ID()]; taken {
		f.t.Fatalf("%s has the sandbox of %s", what, other)
	}
	ids[s.ID()] = what
}
