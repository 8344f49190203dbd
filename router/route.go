package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// route finds the provider that serves the spec.
func (r *Router) route(spec sandbox.Spec) (*provider, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if len(r.candidates) == 0 {
		return nil, &sandbox.RefusalError{
			Reason: sandbox.ErrNoBackend, Subject: "spec.kind", Asked: fmt.Sprintf("%q", spec.Kind),
			Allowed: "nothing while no backend is registered", Decider: hostFloor + "Backends",
		}
	}
	if err := r.denied(spec); err != nil {
		return nil, err
	}
	refusals := make([]error, 0, len(r.candidates))
	for _, p := range r.candidates {
		err := r.unserved(p, spec)
		if err == nil {
			return p, nil
		}
		refusals = append(refusals, err)
	}
	if len(refusals) == 1 {
		return nil, refusals[0]
	}
	return nil, &sandbox.RefusalError{
		Reason: sandbox.ErrNoBackend, Subject: "spec.kind", Asked: fmt.Sprintf("%q", spec.Kind),
		Allowed: "what at least one of these backends serves: " + names(r.candidates),
		Decider: "every backend, in this order", Cause: errors.Join(refusals...),
	}
}

// denied is what no backend can change.
func (r *Router) denied(spec sandbox.Spec) error {
	var problems []error
	if denied := spec.RequiredCapabilities().Intersect(r.config.DeniedCapabilities); !denied.IsEmpty() {
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrCapabilityDenied, Subject: "spec.requires", Asked: denied.String(),
			Allowed: "everything but " + r.config.DeniedCapabilities.String(), Decider: hostFloor + "DeniedCapabilities",
		})
	}
	if denied := spec.Identities().Intersect(r.config.DeniedIdentities); !denied.IsEmpty() {
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrIdentityDenied, Subject: "the identities of the spec's rules and tools", Asked: denied.String(),
			Allowed: "everything but " + r.config.DeniedIdentities.String(), Decider: hostFloor + "DeniedIdentities",
		})
	}
	return errors.Join(problems...)
}

// unserved says why this provider does not serve the spec, every reason at
// once and in the protocol's order.
func (r *Router) unserved(p *provider, spec sandbox.Spec) error {
	return errors.Join(
		r.refuseIdentity(p, spec),
		r.config.refuseFloors(p, max(r.config.MinIsolation, spec.MinIsolation)),
		p.declares.Unserved(p.decider(), r.effective(spec)),
	)
}

// refuseIdentity says why the identity that the provider attaches is beyond
// what the spec agreed to. The host's own bound is among the floors.
func (r *Router) refuseIdentity(p *provider, spec sandbox.Spec) error {
	attached := p.declares.AttachedIdentity
	if attached.Scope == sandbox.IdentityNone {
		return nil
	}
	var problems []error
	refuse := func(subject, asked, allowed string) {
		problems = append(problems, &sandbox.RefusalError{
			Reason: sandbox.ErrAttachedIdentityNotPermitted, Subject: subject,
			Asked: asked, Allowed: allowed, Decider: "the spec, for backend " + p.name,
		})
	}
	if !spec.Requires.Has(sandbox.CapAttachedIdentity) {
		refuse("spec.requires", "an attached identity, shared "+attached.Scope.String(), "none unless attached_identity is required")
		return problems[0]
	}
	if attached.Scope > spec.MaxIdentityScope {
		refuse("spec.max_identity_scope", attached.Scope.String(), "at most "+spec.MaxIdentityScope.String())
	}
	if bound := spec.MaxIdentityRetention; bound != 0 && (attached.AutoDelete == 0 || attached.AutoDelete > bound) {
		refuse("spec.max_identity_retention_seconds", durationOr(attached.AutoDelete, "no bound"), "at most "+bound.String())
	}
	if channels := spec.AuthorityChannels(); attached.Channels != channels {
		refuse("the authority channels of the spec's rules", attached.Channels.String(), channels.String())
	}
	return errors.Join(problems...)
}

func durationOr(d time.Duration, instead string) string {
	if d == 0 {
		return instead
	}
	return d.String()
}

// effective is the spec with the isolation scope under which it is served.
func (r *Router) effective(spec sandbox.Spec) sandbox.Spec {
	spec.IsolationScope = r.EffectiveIsolationScope(spec)
	return spec
}

// rung is the weakest cleanup that the provider has and the floors allow.
func (r *Router) rung(p *provider, spec sandbox.Spec) sandbox.Cleanup {
	floor := max(r.config.MinCleanup, spec.MinCleanup)
	switch {
	case r.EffectiveIsolationScope(spec) == sandbox.ScopeCall:
		return sandbox.CleanupDispose
	case floor <= sandbox.CleanupReclaim && p.has(sandbox.CapReclaim):
		return sandbox.CleanupReclaim
	case floor <= sandbox.CleanupReset && p.has(sandbox.CapSnapshot):
		return sandbox.CleanupReset
	}
	return sandbox.CleanupDispose
}

// refuseKey checks a key against the scope under which the spec is served. A
// key without a call would share what the scope keeps apart, and one with a
// call would have the cleanup take the conversation's sandbox away.
func (r *Router) refuseKey(key sandbox.Key, spec sandbox.Spec) error {
	scope := r.EffectiveIsolationScope(spec)
	if key.IsolationScope() == scope {
		return nil
	}
	refusal := misuse("key.call_id", "none", "one for each call (see Router.CallKey), since the effective isolation scope is call")
	if scope == sandbox.ScopeConversation {
		refusal.Asked = fmt.Sprintf("%.100q", key.CallID)
		refusal.Allowed = "none, since the effective isolation scope is conversation"
	}
	if r.config.MinIsolationScope > spec.IsolationScope {
		refusal.Decider = hostFloor + "MinIsolationScope"
	} else {
		refusal.Decider = "the spec, by its isolation_scope"
	}
	return refusal
}
