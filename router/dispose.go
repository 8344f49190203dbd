package router

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// suspect refuses the key until the targets are confirmed gone, unless the
// host's policy is to keep what is left.
func (r *Router) suspect(key sandbox.Key, failure *sandbox.DisposalFailure, targets ...target) {
	if r.config.Reclaim.Policy == ReclaimDispose {
		r.ledger.mark(key, failure, targets...)
	}
}

// remove disposes of one sandbox on the router's own account: whatever becomes
// of the caller, within the host's time for each step. A failure leaves the key
// unclean.
func (r *Router) remove(ctx context.Context, p *provider, key sandbox.Key, options sandbox.DisposeOptions) *sandbox.DisposalFailure {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Reclaim.Timeout)
	defer cancel()
	leave, err := r.disposals.take(ctx, key, r.config.Reclaim.Timeout)
	if err != nil {
		failure := coded(p, fmt.Errorf("wait for another disposal of the key: %w", err))
		r.suspect(key, failure, target{p, options})
		return failure
	}
	defer leave()
	failure := r.ask(ctx, p, key, options)
	if failure != nil {
		r.suspect(key, failure, target{p, options})
	}
	return failure
}

// ask has one provider dispose, tells the observer, and forgets what is
// confirmed gone. Precondition: the key's turn of disposals is held.
func (r *Router) ask(ctx context.Context, p *provider, key sandbox.Key, options sandbox.DisposeOptions) *sandbox.DisposalFailure {
	// What is marked from here on may be about something newer.
	claims := r.ledger.claims(key, p, options)
	started := time.Now()
	failure := coded(p, p.backend.Dispose(ctx, key, options))
	r.observe(SandboxDisposed{
		Key: key, Options: options, Backend: p.name, Duration: time.Since(started), Failure: failure,
	})
	if failure == nil {
		r.ledger.retire(key, claims)
	}
	// A call's key is never acquired again, so that nothing would ever drop
	// its entry.
	if failure == nil || key.CallID != "" {
		r.known.forget(p, key, options)
	}
	return failure
}

// coded is a backend's failure with its name before the detail.
func coded(p *provider, err error) *sandbox.DisposalFailure {
	failure := sandbox.AsDisposalFailure(err)
	if failure == nil {
		return nil
	}
	return &sandbox.DisposalFailure{Code: failure.Code, Detail: p.name + ": " + failure.Detail}
}

// failed is a failure as an error that is nil when there is none.
func failed(failure *sandbox.DisposalFailure) error {
	if failure == nil {
		return nil
	}
	return failure
}

// Dispose makes every sandbox of the key go away, all kinds on all backends.
// Nil means that they are confirmed gone; otherwise it is a
// *sandbox.DisposalFailure that folds what every backend said. A failure does
// not make a clean key unclean: nothing says that there was a sandbox at all.
// Hosts see to it that no call is using the key.
func (r *Router) Dispose(ctx context.Context, key sandbox.Key) error {
	return failed(r.sweep(ctx, key, sandbox.DisposeOptions{}, r.providers, false))
}

// DisposeKind makes the sandboxes of one kind of the key go away, within the
// timeout, which counts the wait for other disposals of the key; zero means
// the timeout of reclaims. With an instance id it is that generation on the
// backend that handed it out: an id that is not there any more is a no-op and
// never selects the replacement, and a failure leaves the key unclean. The
// error is as that of Dispose, or a refusal of the arguments.
func (r *Router) DisposeKind(ctx context.Context, key sandbox.Key, kind, instanceID string, timeout time.Duration) error {
	if kind == "" {
		return misuse("kind", "none", "a kind; Dispose is for all of them")
	}
	ctx, cancel, err := r.bounded(ctx, timeout)
	if err != nil {
		return err
	}
	defer cancel()
	options := sandbox.DisposeOptions{Kind: kind, InstanceID: instanceID}
	return failed(r.sweep(ctx, key, options, r.serving(key, options), instanceID != ""))
}

// DisposeCall makes the sandboxes of a call go away, on the backends that can
// have sandboxes of calls. It is for hosts that mint call keys themselves and
// do not use Enter. A failure refuses nothing: a call's key has no next
// acquire, and the purge of its conversation reaches what is left. Timeout and
// error are as those of DisposeKind.
func (r *Router) DisposeCall(ctx context.Context, key sandbox.Key, timeout time.Duration) error {
	if key.CallID == "" {
		return misuse("key.call_id", "none", "the key of a call; Dispose is for conversations")
	}
	serving := slices.DeleteFunc(slices.Clone(r.candidates), func(p *provider) bool {
		return !p.declares.Serves(sandbox.ScopeCall)
	})
	if len(serving) == 0 {
		// A backend that does not know calls may find the conversation's
		// sandbox under this key.
		return &sandbox.RefusalError{
			Reason: sandbox.ErrScopeNotEnforced, Subject: "key.call_id", Asked: "the sandboxes of one call",
			Allowed: "keys of conversations, since no backend serves single calls", Decider: "every backend",
		}
	}
	ctx, cancel, err := r.bounded(ctx, timeout)
	if err != nil {
		return err
	}
	defer cancel()
	return failed(r.sweep(ctx, key, sandbox.DisposeOptions{}, serving, false))
}

// bounded gives ctx the timeout.
func (r *Router) bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if timeout < 0 {
		return nil, nil, misuse("timeout", timeout.String(), "zero for the timeout of reclaims, or more")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, r.config.Reclaim.Timeout))
	return ctx, cancel, nil
}

// serving are the providers that can hold what the options select: those that
// handed this generation out or still owe its end, else all.
func (r *Router) serving(key sandbox.Key, options sandbox.DisposeOptions) []*provider {
	if options.InstanceID == "" {
		return r.providers
	}
	holders := r.known.holders(key, options.Kind, options.InstanceID)
	for _, claim := range r.ledger.claims(key, nil, options) {
		if !slices.Contains(holders, claim.provider) {
			holders = append(holders, claim.provider)
		}
	}
	if len(holders) == 0 {
		return r.providers
	}
	return holders
}

// sweep disposes on each of the providers, whether or not one of them fails.
// With suspect, a failure leaves the key unclean.
func (r *Router) sweep(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions, on []*provider, suspect bool) *sandbox.DisposalFailure {
	var failures []*sandbox.DisposalFailure
	fail := func(p *provider, failure *sandbox.DisposalFailure) {
		if failure == nil {
			return
		}
		failures = append(failures, failure)
		if suspect {
			r.suspect(key, failure, target{p, options})
		}
	}
	leave, err := r.disposals.take(ctx, key, math.MaxInt64)
	if err != nil {
		for _, p := range on {
			fail(p, coded(p, fmt.Errorf("wait for another disposal of the key: %w", err)))
		}
		return sandbox.FoldFailures(failures...)
	}
	defer leave()
	for _, p := range on {
		fail(p, r.ask(ctx, p, key, options))
	}
	return sandbox.FoldFailures(failures...)
}

// Unclean is nil for a key that can be acquired, and else the refusal that
// Acquire gives: an earlier sandbox is not confirmed gone.
func (r *Router) Unclean(key sandbox.Key) error { return r.ledger.refusal(key) }

// UncleanKeys are the keys that are refused, in no order.
func (r *Router) UncleanKeys() []sandbox.Key { return r.ledger.list() }

// MarkUnclean refuses the key until what the options select is confirmed gone
// on every backend: for a host that knows more than the router does. It is
// ignored for the key of a call, which has no next acquire. The reason may be
// nil.
func (r *Router) MarkUnclean(key sandbox.Key, options sandbox.DisposeOptions, reason error) {
	targets := make([]target, 0, len(r.providers))
	for _, p := range r.serving(key, options) {
		targets = append(targets, target{p, options})
	}
	r.ledger.mark(key, sandbox.AsDisposalFailure(reason), targets...)
}

// DisposeUnclean tries again to dispose of everything that keeps the key
// unclean and that the options cover; the zero options cover all. For a key
// that is clean it disposes of what the options select and refuses the key
// meanwhile. Nil means that the key can be acquired again. Timeout and error
// are as those of DisposeKind; the refusal of a key that other targets still
// keep unclean is a *sandbox.RefusalError.
func (r *Router) DisposeUnclean(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions, timeout time.Duration) error {
	if key.CallID != "" {
		return misuse("key.call_id", fmt.Sprintf("%.100q", key.CallID), "the key of a conversation; DisposeCall is for calls")
	}
	ctx, cancel, err := r.bounded(ctx, timeout)
	if err != nil {
		return err
	}
	defer cancel()
	if len(r.ledger.claims(key, nil, options)) == 0 && r.config.Reclaim.Policy == ReclaimDispose {
		r.MarkUnclean(key, options, nil)
	}
	claims := r.ledger.claims(key, nil, options)
	if len(claims) == 0 {
		return failed(r.sweep(ctx, key, options, r.serving(key, options), false))
	}
	var failures []*sandbox.DisposalFailure
	for _, claim := range claims {
		failures = append(failures, r.sweep(ctx, key, claim.options, []*provider{claim.provider}, true))
	}
	return cmp.Or(failed(sandbox.FoldFailures(failures...)), r.ledger.refusal(key))
}

// DisposeScope makes every sandbox of a conversation go away: all agents,
// kinds and calls on all backends, whoever acquired them. What a backend
// confirms is not unclean any more. Hosts see to it that no call of the
// conversation is running. Only ctx bounds it.
func (r *Router) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	total := 0
	var failures []*sandbox.DisposalFailure
	for _, p := range r.providers {
		purge := r.purge(ctx, p, scope, threadID)
		total += purge.Disposed
		failures = append(failures, purge.Undisposed)
	}
	return sandbox.ScopePurge{Disposed: total, Undisposed: sandbox.FoldFailures(failures...)}
}

func (r *Router) purge(ctx context.Context, p *provider, scope, threadID string) sandbox.ScopePurge {
	owed := make(map[sandbox.Key][]claim)
	for _, key := range r.ledger.list() {
		if key.Scope == scope && key.ThreadID == threadID {
			owed[key] = r.ledger.claims(key, p, sandbox.DisposeOptions{})
		}
	}
	started := time.Now()
	purge := p.backend.DisposeScope(ctx, scope, threadID)
	purge.Undisposed = coded(p, purge.Err())
	r.observe(ScopeDisposed{
		Scope: scope, ThreadID: threadID, Backend: p.name, Duration: time.Since(started), Purge: purge,
	})
	if purge.Undisposed != nil {
		return purge
	}
	r.known.forgetScope(p, scope, threadID)
	for key, claims := range owed {
		r.ledger.retire(key, claims)
	}
	return purge
}

// WithScope serves one conversation: it runs f and then purges the
// conversation, however f ends and whether or not ctx has ended by then. The
// purge has the timeout of reclaims. The error is that of f.
func (r *Router) WithScope(ctx context.Context, scope, threadID string, f func(ctx context.Context) error) (purge sandbox.ScopePurge, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Reclaim.Timeout)
		defer cancel()
		purge = r.DisposeScope(ctx, scope, threadID)
	}()
	return sandbox.ScopePurge{}, f(ctx)
}
