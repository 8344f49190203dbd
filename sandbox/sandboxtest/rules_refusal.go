package sandboxtest

import (
	"errors"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// refuses checks that a key and spec are refused for the reason, in words, and
// that nothing came of it.
func (f *fixture) refuses(key sandbox.Key, spec sandbox.Spec, reason error) {
	f.t.Helper()
	_, err := f.tryAcquire(key, spec)
	f.is("Acquire", err, sandbox.ErrRefused, reason)
	f.explains(err)
	f.purged(key, 0)
}

func refusalRules() []rule {
	return []rule{
		{name: "a key with a blank part is refused", probe: func(f *fixture) {
			for _, key := range []sandbox.Key{
				{ThreadID: "t", AgentID: "a"}, {Scope: "s", AgentID: "a"}, {Scope: "s", ThreadID: "t"}, {Scope: " ", ThreadID: "t", AgentID: "a"},
			} {
				f.refuses(key, f.h.Spec, sandbox.ErrInvalid)
			}
		}},
		{name: "a spec that is wrong in itself is refused with every problem", probe: func(f *fixture) {
			spec := f.h.Spec
			spec.Kind = " "
			spec.Requires = spec.Requires.With(sandbox.CapReclaim)
			f.refuses(mainKey(), spec, sandbox.ErrInvalid)
			_, err := f.tryAcquire(mainKey(), spec)
			if fields := subjects(err); !fields["spec.kind"] || !fields["spec.requires"] {
				f.t.Errorf("%v does not name both spec.kind and spec.requires", err)
			}
		}},
		{name: "a capability that is not declared is refused", probe: func(f *fixture) {
			declared := f.backend.Declarations().Capabilities
			for c := range sandbox.CapReclaim {
				if c == sandbox.CapAttachedIdentity || declared.Has(c) {
					continue
				}
				spec := f.h.Spec
				spec.Requires = spec.Requires.With(c)
				f.refuses(mainKey(), spec, sandbox.ErrCapabilityNotSupported)
			}
		}},
		{name: "an egress mode that is not declared is refused", probe: func(f *fixture) {
			for mode := range sandbox.EgressUnrestricted + 1 {
				if f.backend.Declarations().EgressModes.Has(mode) {
					continue
				}
				spec := f.h.Spec
				spec.Egress, spec.EgressAllow = mode, nil
				f.refuses(mainKey(), spec, sandbox.ErrEgressNotEnforced)
			}
		}},
		{name: "an OS family that is not declared is refused", probe: func(f *fixture) {
			for _, family := range []sandbox.OSFamily{sandbox.OSPosix, sandbox.OSWindows} {
				if f.backend.Declarations().OSFamilies.Has(family) {
					continue
				}
				spec := f.h.Spec
				spec.RequiresOSFamily = family
				f.refuses(mainKey(), spec, sandbox.ErrOSFamilyNotSupported)
			}
		}},
		{name: "an isolation scope that is not declared is refused", probe: func(f *fixture) {
			for _, scope := range []sandbox.IsolationScope{sandbox.ScopeConversation, sandbox.ScopeCall} {
				if f.backend.Declarations().Serves(scope) {
					continue
				}
				spec := f.h.Spec
				spec.IsolationScope = scope
				f.refuses(mainKey(), spec, sandbox.ErrScopeNotEnforced)
			}
		}},
		{name: "wider transfers than declared are refused", probe: func(f *fixture) {
			spec := f.h.Spec
			spec.Limits.FilesIn = f.backend.Declarations().Limits.FilesIn.OrDefault()
			spec.Limits.FilesIn.MaxFiles++
			f.refuses(mainKey(), spec, sandbox.ErrTransferLimitsNotPermitted)
		}},
		{name: "a live sandbox is never used under another execution contract", probe: func(f *fixture) {
			spec := f.h.Spec
			spec.ExecutionContract = "another"
			f.changed(spec)
		}},
		{name: "a live sandbox is never used under another network policy", probe: func(f *fixture) {
			if !f.backend.Declarations().EgressModes.Has(sandbox.EgressAllowlist) {
				f.t.Skipf("the backend does not declare the egress mode allowlist")
			}
			spec := f.h.Spec
			spec.Egress = sandbox.EgressAllowlist
			spec.EgressAllow = []sandbox.EgressRule{{Host: sandbox.MustHost("conformance.example")}}
			f.changed(spec)
		}},
		{name: "what the backend says that it refuses is refused", probe: func(f *fixture) {
			if len(f.h.Refused) == 0 {
				f.t.Skipf("the harness names no further refusals")
			}
			for _, refused := range f.h.Refused {
				f.t.Run("refuses "+refused.Name, func(t T) {
					sub := *f
					sub.t = t
					sub.refuses(mainKey(), refused.Spec, refused.Reason)
				})
			}
		}},
	}
}

// changed checks that a spec is refused while the harness's own is live, and
// served after a disposal.
func (f *fixture) changed(spec sandbox.Spec) {
	f.t.Helper()
	id := f.acquire().ID()
	_, err := f.tryAcquire(mainKey(), spec)
	f.is("Acquire with another configuration", err, sandbox.ErrRefused, sandbox.ErrConfigurationChanged)
	f.explains(err)
	f.still(mainKey(), f.h.Spec, id)
	f.dispose(mainKey(), sandbox.DisposeOptions{})
	if f.acquireAs(mainKey(), spec).ID() == id {
		f.t.Fatalf("the id %q came again", id)
	}
}

// subjects are what the refusals joined in an error are about.
func subjects(err error) map[string]bool {
	found := make(map[string]bool)
	var walk func(error)
	walk = func(err error) {
		var refusal *sandbox.RefusalError
		switch e := err.(type) {
		case interface{ Unwrap() []error }:
			if errors.As(err, &refusal) && error(refusal) == err {
				found[refusal.Subject] = true
				return
			}
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return found
}
