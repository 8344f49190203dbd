package router

import (
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Observer is told what a router does, for an audit or for measurements. It is
// called while the router works, in the goroutine of the caller: it must be
// quick, may be called from several goroutines at once, and must not call the
// router.
type Observer interface {
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
	Key     sandbox.Key
	Kind    string
	Backend string
	// Before and After are the generations; the same unless it was reset.
	Before, After string
	// Rung is what was done: reclaim or reset.
	Rung sandbox.Cleanup
	// Skipped says that there was nothing to do: the sandbox vouched that
	// nothing had reached it.
	Skipped  bool
	Duration time.Duration
	// Err is why it did not succeed.
	Err error
}

// SandboxDisposed is one backend's answer to one disposal.
type SandboxDisposed struct {
	Key sandbox.Key
	// Options are what was asked for.
	Options  sandbox.DisposeOptions
	Backend  string
	Duration time.Duration
	// Failure is nil when the sandboxes are confirmed gone, or there were none.
	Failure *sandbox.DisposalFailure
}

// ScopeDisposed is one backend's answer to the purge of a conversation.
type ScopeDisposed struct {
	Scope, ThreadID string
	Backend         string
	Duration        time.Duration
	Purge           sandbox.ScopePurge
}

// EgressObserved is what a backend saw a sandbox reach for.
type EgressObserved struct {
	Backend string
	sandbox.EgressObservation
}

func (SandboxAcquired) event() {}
func (CallAdmitted) event()    {}
func (SandboxCleaned) event()  {}
func (SandboxDisposed) event() {}
func (ScopeDisposed) event()   {}
func (EgressObserved) event()  {}

// EgressReporter is a backend that can tell what its sandboxes reach for. New
// calls ObserveEgress once for each backend that declares ObservesEgress, with
// nil when there is no observer. The backend reports as it likes, from any
// goroutine.
type EgressReporter interface {
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
