package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// CleanupError is a cleanup after a call that did not go as it should. With
// OutcomeDisposed nothing is left all the same.
type CleanupError struct {
	// Key and Kind are the sandbox's, Backend is who made it.
	Key     sandbox.Key
	Kind    string
	Backend string
	// InstanceID is the generation that had to be cleaned.
	InstanceID string
	// Rung is what should have happened.
	Rung sandbox.Cleanup
	// Outcome is what became of the sandbox.
	Outcome Outcome
	// Reason is why the rung did not succeed, or why the sandbox was
	// condemned; nil when it was to be disposed of anyway.
	Reason error
	// Disposal is why it is not confirmed gone; nil when it is, or was kept.
	Disposal *sandbox.DisposalFailure
}

// Error is one line: the sandbox, what should have happened, why it did not,
// and what became of the sandbox.
func (e *CleanupError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s the %q sandbox of %s", e.Rung, e.Kind, e.Key)
	if e.Reason != nil {
		fmt.Fprintf(&b, ": %v", e.Reason)
	}
	fmt.Fprintf(&b, ": %s", e.Outcome)
	if e.Disposal != nil {
		fmt.Fprintf(&b, ": %v", e.Disposal)
	}
	return b.String()
}

// Unwrap gives the reason and the failure of the disposal.
func (e *CleanupError) Unwrap() []error {
	var causes []error
	if e.Reason != nil {
		causes = append(causes, e.Reason)
	}
	if e.Disposal != nil {
		causes = append(causes, e.Disposal)
	}
	return causes
}

// remains is what a call leaves in one sandbox.
type remains struct {
	provider  *provider
	contract  string
	sandbox   sandbox.Sandbox // nil for whatever the backend has
	id        string          // when it was acquired
	rung      sandbox.Cleanup
	condemned error
}

// current is the generation that is to be cleaned: the program of a call may
// have reset it.
func (m remains) current() string {
	if m.sandbox == nil {
		return m.id
	}
	return cmp.Or(m.sandbox.ID(), m.id)
}

// fold has each generation once, under its strongest rung.
func fold(left []remains) []remains {
	type generation struct {
		provider *provider
		id       string
	}
	seen := make(map[generation]int)
	var folded []remains
	for _, m := range left {
		at := generation{m.provider, m.current()}
		i, again := seen[at]
		if !again {
			seen[at] = len(folded)
			folded = append(folded, m)
			continue
		}
		folded[i].rung = max(folded[i].rung, m.rung)
		if folded[i].condemned == nil {
			folded[i].condemned = m.condemned
		}
	}
	return folded
}

// leave takes a call out and, when it was the last one inside, cleans. The
// error is that of Finish. It releases the call's lease before anybody enters: a
// call with one is alone inside, so that what there is to clean is its own.
func (r *Router) leave(ctx context.Context, at place, left []remains, release func()) error {
	if len(left) == 0 {
		left = r.leaveNothing(at, release)
	} else {
		left = r.admission.leave(at, left)
	}
	if left == nil {
		return nil
	}
	var unclean []error
	failures := r.clean(ctx, at, fold(left), release)
	for _, failure := range failures {
		if failure.Outcome != OutcomeDisposed {
			unclean = append(unclean, failure)
		}
		if report := r.config.Reclaim.OnFailure; report != nil {
			report(context.WithoutCancel(ctx), failure)
		}
	}
	return errors.Join(unclean...)
}

// leaveNothing takes a call out that left nothing itself, and gives what others
// left. The call is out even if the release panics.
func (r *Router) leaveNothing(at place, release func()) (left []remains) {
	defer func() { left = r.admission.leave(at, nil) }()
	release()
	return nil
}

// clean cleans every generation, releases the call's lease and then lets others
// in.
func (r *Router) clean(ctx context.Context, at place, left []remains, release func()) (failures []*CleanupError) {
	done := 0
	defer r.admission.reopen(at)
	defer release()
	defer func() {
		// Only a panic on the way leaves some; they must not be handed out.
		for _, m := range left[done:] {
			failure := &sandbox.DisposalFailure{Detail: m.provider.name + ": the cleanup was interrupted"}
			r.suspect(at.key, failure, target{m.provider, m.disposal(at)})
		}
	}()
	for _, m := range left {
		if failure := r.cleanOne(ctx, at, m); failure != nil {
			failures = append(failures, failure)
		}
		done++
		r.admission.stepped(at)
	}
	return failures
}

// disposal are the options that reach exactly this generation.
func (m remains) disposal(at place) sandbox.DisposeOptions {
	return sandbox.DisposeOptions{Kind: at.kind, InstanceID: m.current()}
}

// cleanOne reclaims or resets, and disposes where that does not succeed or is
// not enough.
func (r *Router) cleanOne(ctx context.Context, at place, m remains) *CleanupError {
	failure := &CleanupError{
		Key: at.key, Kind: at.kind, Backend: m.provider.name, InstanceID: m.current(), Rung: m.rung, Reason: m.condemned,
	}
	// An acquire outside of calls must not meet the sandbox half-way.
	leave, err := r.acquires.take(context.WithoutCancel(ctx), at, r.config.Reclaim.Timeout)
	if err != nil {
		failure.Outcome, failure.Disposal = OutcomeUnconfirmed, coded(m.provider, fmt.Errorf("wait for an acquire: %w", err))
		r.suspect(at.key, failure.Disposal, target{m.provider, m.disposal(at)})
		return failure
	}
	defer leave()

	if m.condemned == nil && m.rung != sandbox.CleanupDispose {
		failure.Reason = r.tidy(ctx, at, m)
		switch {
		case failure.Reason == nil:
			return nil
		case m.rung == sandbox.CleanupReclaim && r.config.Reclaim.Policy == ReclaimKeep:
			failure.Outcome = OutcomeKept
			return failure
		}
		// Whoever waits has patience for one step, not for all of them.
		r.admission.stepped(at)
	}
	failure.Disposal = r.remove(ctx, m.provider, at.key, m.disposal(at))
	if failure.Disposal != nil {
		failure.Outcome = OutcomeUnconfirmed
	} else if failure.Reason == nil {
		return nil
	}
	return failure
}

// tidy reclaims or resets the sandbox, which stays known.
func (r *Router) tidy(ctx context.Context, at place, m remains) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Reclaim.Timeout)
	defer cancel()
	started := time.Now()
	event := SandboxCleaned{
		Key: at.key, Kind: at.kind, Backend: m.provider.name, Before: m.current(), Rung: m.rung, Skipped: isFresh(m.sandbox),
	}
	switch {
	case event.Skipped:
	case m.rung == sandbox.CleanupReset:
		event.Err = m.sandbox.Reset(ctx)
	default:
		// Every sandbox is checked for what its backend declares.
		event.Err = m.sandbox.(sandbox.Reclaimer).Reclaim(ctx)
	}
	event.After, event.Duration = m.current(), time.Since(started)
	if event.Err == nil {
		r.known.remember(at.key, spot{m.provider, at.kind}, instance{event.After, m.contract, m.sandbox})
	}
	r.observe(event)
	return event.Err
}
