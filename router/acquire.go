package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Voucher is a sandbox that can vouch for its generation. A backend need not
// know this package: a method of this name is enough.
type Voucher interface {
	// Fresh says that nothing of any caller, no code, no command and no file,
	// has reached this generation. Such a sandbox is handed out, and after a
	// call left, without a reset.
	Fresh() bool
}

func isFresh(s sandbox.Sandbox) bool {
	v, ok := s.(Voucher)
	return ok && v.Fresh()
}

// Acquire gets or creates the sandbox of the key and the spec's kind, outside
// any call: nothing is cleaned up until the host disposes of it. Most hosts
// want WithSandbox.
//
// A refusal is a sandbox.RefusalError: of the spec as by EnsureCanServe,
// sandbox.ErrUnclean while an earlier sandbox of the key is not confirmed gone,
// sandbox.ErrInvalid for a key that does not fit the isolation scope, and
// sandbox.ErrConfigurationChanged for another execution contract than the live
// sandbox has. A sandbox that the router did not hand out before is made clean
// first. Acquires of the same key and kind take turns.
func (r *Router) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return r.acquire(ctx, key, spec, nil)
}

// acquisition is one Acquire on its way.
type acquisition struct {
	router   *Router
	key      sandbox.Key
	spec     sandbox.Spec // as it is served
	provider *provider
	adoption Adoption
}

func (a *acquisition) spot() spot { return spot{a.provider, a.spec.Kind} }

// isKnown says whether a sandbox is the one that the router handed out last.
func (a *acquisition) isKnown(s sandbox.Sandbox) bool {
	known, ok := a.router.known.at(a.key, a.spot())
	return ok && same(known.sandbox, s)
}

func (a *acquisition) remember(s sandbox.Sandbox, how Adoption) {
	a.router.known.remember(a.key, a.spot(), instance{s.ID(), a.spec.ExecutionContract, s})
	a.adoption = how
}

// acquire is Acquire, and a call's with the provider that it was admitted to.
func (r *Router) acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec, admitted *provider) (sandbox.Sandbox, error) {
	started := time.Now()
	a := &acquisition{router: r, key: key, spec: r.effective(spec), provider: admitted}
	s, err := a.run(ctx, spec)
	if err != nil {
		r.refused(started, key, a.spec, a.provider, err)
		return nil, err
	}
	if r.config.Observer != nil {
		r.observe(SandboxAcquired{
			Key: key, Spec: a.spec.Clone(), Backend: a.provider.name, Isolation: a.provider.isolation,
			InstanceID: s.ID(), Adoption: a.adoption, Duration: time.Since(started),
		})
	}
	return s, nil
}

// refused tells the observer that nothing was handed out.
func (r *Router) refused(started time.Time, key sandbox.Key, spec sandbox.Spec, p *provider, err error) {
	if r.config.Observer == nil {
		return
	}
	event := SandboxAcquired{Key: key, Spec: r.effective(spec).Clone(), Duration: time.Since(started), Err: err}
	if p != nil {
		event.Backend, event.Isolation = p.name, p.isolation
	}
	r.observe(event)
}

// admissible chooses the provider, or says why no backend needs to be asked.
func (r *Router) admissible(key sandbox.Key, spec sandbox.Spec) (*provider, error) {
	if err := errors.Join(key.Validate(), spec.Validate()); err != nil {
		return nil, err
	}
	if err := r.ledger.refusal(key); err != nil {
		return nil, err
	}
	p, err := r.route(spec)
	if err != nil {
		return nil, err
	}
	return p, r.refuseKey(key, spec)
}

func (a *acquisition) run(ctx context.Context, asked sandbox.Spec) (sandbox.Sandbox, error) {
	r := a.router
	if a.provider == nil {
		p, err := r.admissible(a.key, asked)
		if err != nil {
			return nil, err
		}
		a.provider = p
	}
	leave, err := r.acquires.take(ctx, place{a.key, a.spec.Kind}, r.config.QueueTimeout)
	if err != nil {
		return nil, queued("acquire", err)
	}
	defer leave()
	// Whoever had the turn before may have left the key unclean.
	if err := r.ledger.refusal(a.key); err != nil {
		return nil, err
	}
	s, err := a.serve(ctx)
	if watcher, ok := a.provider.backend.(AdmissionWatcher); ok {
		if err == nil {
			watcher.Admitted(a.key, a.spec, s)
		} else {
			watcher.Refused(a.key, a.spec.Kind)
		}
	}
	return s, err
}

// serve gets a sandbox from the backend and makes sure that it may be used.
// Precondition: the turn of the place is held.
func (a *acquisition) serve(ctx context.Context) (sandbox.Sandbox, error) {
	s, err := a.create(ctx)
	if err != nil {
		return nil, err
	}
	known, ok := a.router.known.at(a.key, a.spot())
	ok = ok && known.id == s.ID()
	switch {
	case ok && known.contract != a.spec.ExecutionContract:
		return nil, &sandbox.RefusalError{
			Reason: sandbox.ErrConfigurationChanged, Subject: "spec.execution_contract",
			Asked:   fmt.Sprintf("%.100q", a.spec.ExecutionContract),
			Allowed: fmt.Sprintf("what the live sandbox is used under (%.100q), until it is disposed", known.contract),
			Decider: "package router",
		}
	case ok:
		a.adoption = AdoptionKnown
		return s, nil
	case a.spec.IsolationScope == sandbox.ScopeCall:
		a.remember(s, AdoptionOwnCall)
		return s, nil
	case isFresh(s):
		a.remember(s, AdoptionFresh)
		return s, nil
	}
	return a.adopt(ctx, s)
}

// create asks the backend, and disposes of what it gave when that must not be
// used at all.
func (a *acquisition) create(ctx context.Context) (sandbox.Sandbox, error) {
	s, err := a.provider.backend.Acquire(ctx, a.key, a.router.told(a.spec, a.provider))
	if err != nil {
		return nil, err
	}
	if err := broken(s, a.provider); err != nil {
		options := sandbox.DisposeOptions{Kind: a.spec.Kind}
		if s != nil {
			options.InstanceID = s.ID()
		}
		return nil, a.discard(ctx, options, err)
	}
	return s, a.closed(ctx, s)
}

// closed disposes of the sandbox when its key became unclean meanwhile.
func (a *acquisition) closed(ctx context.Context, s sandbox.Sandbox) error {
	err := a.router.ledger.refusal(a.key)
	if err == nil {
		return nil
	}
	return a.discard(ctx, sandbox.DisposeOptions{Kind: a.spec.Kind, InstanceID: s.ID()}, err)
}

// discard disposes of what must not be used, and says why. A disposal that
// fails leaves the key unclean.
func (a *acquisition) discard(ctx context.Context, options sandbox.DisposeOptions, reason error) error {
	if failure := a.router.remove(ctx, a.provider, a.key, options); failure != nil {
		return errors.Join(reason, fmt.Errorf("dispose of what was created: %w", failure))
	}
	return reason
}

// broken says what a backend that declared it did not keep.
func broken(s sandbox.Sandbox, p *provider) error {
	detail := ""
	switch {
	case s == nil:
		detail = "the backend gave no sandbox and no error"
	case s.ID() == "":
		detail = "the backend gave a sandbox without an id"
	default:
		if missing := sandbox.Missing(s, p.declares.Capabilities); !missing.IsEmpty() {
			detail = "the backend gave a sandbox that lacks what it declares: " + missing.String()
		}
	}
	if detail == "" {
		return nil
	}
	return &sandbox.OpError{Op: "acquire", Class: sandbox.ErrInternal, Detail: p.decider() + ": " + detail}
}

// adopt makes an unknown sandbox clean before anything reaches it: by a reset,
// else by disposing of it and creating another.
//
// When the caller gives up on the way, nothing is remembered, so that whoever
// acquires next begins again. A sandbox that the router handed out, whose program
// has reset it and now keeps it busy, is not disposed of for that.
func (a *acquisition) adopt(ctx context.Context, s sandbox.Sandbox) (sandbox.Sandbox, error) {
	if a.provider.has(sandbox.CapSnapshot) {
		resetCtx, cancel := context.WithTimeout(ctx, a.router.config.Reclaim.Timeout)
		err := s.Reset(resetCtx)
		cancel()
		if err == nil {
			if err := a.closed(ctx, s); err != nil {
				return nil, err
			}
			a.remember(s, AdoptionReset)
			return s, nil
		}
		if ctx.Err() != nil || errors.Is(err, sandbox.ErrQueuedTimeout) && a.isKnown(s) {
			return nil, err
		}
	}
	old := s.ID()
	options := sandbox.DisposeOptions{Kind: a.spec.Kind, InstanceID: old}
	if failure := a.router.remove(ctx, a.provider, a.key, options); failure != nil {
		return nil, uncleanError(a.key, failure)
	}
	s, err := a.create(ctx)
	if err != nil {
		return nil, err
	}
	if s.ID() == old {
		failure := &sandbox.DisposalFailure{
			Code: sandbox.DisposalUnknown, Detail: a.provider.name + ": disposed, and then handed out again",
		}
		a.router.suspect(a.key, failure, target{a.provider, options})
		return nil, uncleanError(a.key, failure)
	}
	a.remember(s, AdoptionReplaced)
	return s, nil
}
