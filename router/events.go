package router

import (
	"context"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Observer is told what a router does, for an audit or for measurements. It is
// called while the router works, in the goroutine of the caller: it must be
// quick, may be called from several goroutines at once, and must not call the
// router. What programs do, EgressObserved and HostToolCalled, comes from other
// goroutines, and the program waits for it.
type Observer interface {
	// Observe hears of one event, after it happened.
	Observe(event Event)
}

// ObserverFunc is a function as an Observer.
type ObserverFunc func(event Event)

// Observe calls the function.
func (f ObserverFunc) Observe(event Event) { f(event) }

// Event is one of the event types of this package.
type Event interface{ event() }

// SandboxAcquired is one attempt to get a sandbox, by Acquire or for a call,
// whether it was served or refused.
type SandboxAcquired struct {
	// Key is for whom.
	Key sandbox.Key
	// Spec is the spec as it was served, with the effective isolation scope.
	Spec sandbox.Spec
	// Backend is who served it, or was about to; empty when refused before one
	// was chosen. Isolation is its rung.
	Backend   string
	Isolation sandbox.Isolation
	// InstanceID is the generation; empty with an error.
	InstanceID string
	// Adoption says why it holds nothing of anybody else.
	Adoption Adoption
	// Duration is how long it took, the wait for other acquires included.
	Duration time.Duration
	// Err is why nothing was handed out; nil when a sandbox was.
	Err error
}

// CallAdmitted is a call that was let in, by Enter; one that was not is a
// SandboxAcquired with an error.
type CallAdmitted struct {
	// Key and Kind are those of the call's sandboxes, Backend is who serves it.
	Key     sandbox.Key
	Kind    string
	Backend string
	// Exclusive says that it has the sandbox alone.
	Exclusive bool
	// Wait is how long calls ahead of it, and their cleanup, held it up.
	Wait time.Duration
}

// SandboxCleaned is the cleanup of one sandbox after a call that made a
// disposal unnecessary, or the attempt at one.
type SandboxCleaned struct {
	// Key and Kind are the sandbox's, Backend is who made it.
	Key     sandbox.Key
	Kind    string
	Backend string
	// Before and After are the generations; the same unless it was reset.
	Before, After string
	// Rung is what was done: reclaim or reset.
	Rung sandbox.Cleanup
	// Skipped says that there was nothing to do: the sandbox vouched that
	// nothing had reached it.
	Skipped bool
	// Duration is how long it took.
	Duration time.Duration
	// Err is why it did not succeed.
	Err error
}

// SandboxDisposed is one backend's answer to one disposal.
type SandboxDisposed struct {
	// Key and Options are what was asked for.
	Key     sandbox.Key
	Options sandbox.DisposeOptions
	// Backend is who answered, Duration how long that took.
	Backend  string
	Duration time.Duration
	// Failure is nil when the sandboxes are confirmed gone, or there were none.
	Failure *sandbox.DisposalFailure
}

// ScopeDisposed is one backend's answer to the purge of a conversation.
type ScopeDisposed struct {
	// Scope and ThreadID are the conversation.
	Scope, ThreadID string
	// Backend is who answered, Duration how long that took.
	Backend  string
	Duration time.Duration
	// Purge is the answer.
	Purge sandbox.ScopePurge
}

// EgressObserved is what a backend saw a sandbox reach for.
type EgressObserved struct {
	// Backend is who saw it.
	Backend string
	sandbox.EgressObservation
}

// HostToolCalled is one call of a tool of the host by a program in a sandbox, as
// soon as it has ended or nobody waits for it any more. Calls that reach no
// function, such as those of unknown names, are none. Nothing in it is the
// program's or the tool's text.
type HostToolCalled struct {
	// Backend is the sandbox's.
	Backend string
	// ToolCaller is the sandbox whose program called.
	sandbox.ToolCaller
	// Tool is the name that the host gave it.
	Tool string
	// Duration is the time that the function took, or was waited for.
	Duration time.Duration
	// Outcome is how the call ended.
	Outcome ToolOutcome
}

// ToolCallEnded is one call of a tool by a model, all its cleanup included. The
// layer that offers the tool reports it ([Router.Report]); the events of the
// call's sandbox have the same key.
type ToolCallEnded struct {
	// Tool is the name by which the model called it.
	Tool string
	// Key and Kind are the sandbox's that it was for; the key is zero when the
	// call was for no conversation.
	Key  sandbox.Key
	Kind string
	// Duration is the time from the call to its end.
	Duration time.Duration
	// Failure is why it did not come to an end of its own, in one word of the
	// tool's; empty when it did, whatever its result.
	Failure string
}

func (SandboxAcquired) event() {}
func (CallAdmitted) event()    {}
func (SandboxCleaned) event()  {}
func (SandboxDisposed) event() {}
func (ScopeDisposed) event()   {}
func (EgressObserved) event()  {}
func (HostToolCalled) event()  {}
func (ToolCallEnded) event()   {}

// EgressReporter is a backend that can tell what its sandboxes reach for. New
// calls ObserveEgress once for each backend that declares ObservesEgress, with
// nil when there is no observer. The backend reports as it likes, from any
// goroutine.
type EgressReporter interface {
	// ObserveEgress has report told from now on; nil ends it.
	ObserveEgress(report func(sandbox.EgressObservation))
}

// AdmissionWatcher is a backend that wants to know which of its sandboxes the
// router lets in, such as a monitor round a backend that lists only those. When
// the router has asked the backend for a sandbox, once or twice, exactly one of
// the two is called, before the next acquire of this key and kind begins.
// Neither may call the router.
type AdmissionWatcher interface {
	// Admitted says that the sandbox is handed out under the spec.
	Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox)
	// Refused says that what Acquire of the key and kind gave, if it gave
	// anything, is not handed out.
	Refused(key sandbox.Key, kind string)
}

// CallAdmitter is a backend that wants to own a sandbox for the length of each
// call, such as one that shares it with other programs of the machine. Calls that
// it serves are exclusive, whatever spec and options say. It is asked after the
// call's turn has come and before anything is acquired.
//
// A decorator of a backend cannot be one for some backends and not for others. It
// has the method Unwrap() sandbox.Backend instead, by which the router finds the
// one behind it.
type CallAdmitter interface {
	// AdmitCall reserves the sandbox of the key and the spec's kind. It must
	// return when ctx ends, which is when the caller gives up or has waited as
	// long as for a call ahead. After an error nothing is reserved, and the call
	// is refused with that error, or as queued when ctx ended.
	AdmitCall(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (CallLease, error)
}

// admitterOf is a backend, or the first one behind it, that is a CallAdmitter; nil
// when none is.
func admitterOf(b sandbox.Backend) CallAdmitter {
	for b != nil {
		if admitter, ok := b.(CallAdmitter); ok {
			return admitter
		}
		decorator, ok := b.(interface{ Unwrap() sandbox.Backend })
		if !ok {
			return nil
		}
		b = decorator.Unwrap()
	}
	return nil
}

// CallLease is what a call holds of a backend that is a [CallAdmitter].
type CallLease interface {
	// Context marks the context of what the call itself asks of the backend: its
	// acquires, and the reset, reclaim and disposals of its cleanup.
	Context(ctx context.Context) context.Context
	// Release ends the lease. It is called exactly once, however the call ends,
	// when its cleanup is done and before the next call's turn. It must not call
	// the router.
	Release()
}

// Report tells the observer of what a layer above the router did, such as a
// ToolCallEnded. The router has no other use for it.
func (r *Router) Report(event Event) { r.observe(event) }

func (r *Router) observe(event Event) {
	if r.config.Observer != nil {
		r.config.Observer.Observe(event)
	}
}

func (r *Router) observeEgress() {
	for _, p := range r.providers {
		reporter, ok := p.backend.(EgressReporter)
		if !ok || !p.declares.ObservesEgress {
			continue
		}
		if r.config.Observer == nil {
			reporter.ObserveEgress(nil)
			continue
		}
		reporter.ObserveEgress(func(seen sandbox.EgressObservation) { r.observe(EgressObserved{p.name, seen}) })
	}
}
