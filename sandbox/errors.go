package sandbox

import (
	"context"
	"errors"
	"strings"
)

// class is a sentinel that is also an instance of wider ones.
type class struct {
	text  string
	wider []error
}

func newClass(text string, wider ...error) error { return &class{text, wider} }

func (c *class) Error() string   { return c.text }
func (c *class) Unwrap() []error { return c.wider }

// What can happen to an operation. Each is the class of an [OpError].
var (
	// ErrTimeout: the operation started and overran its time. It is a
	// context.DeadlineExceeded. Whether the sandbox survived, Usable tells.
	ErrTimeout = newClass("time limit reached", context.DeadlineExceeded)
	// ErrQueuedTimeout: time ran out while waiting for a turn; nothing was
	// submitted and the sandbox is as it was. It is a
	// context.DeadlineExceeded and deliberately no ErrTimeout: only one of
	// the two can be retried unchanged.
	ErrQueuedTimeout = newClass("time ran out in the queue", context.DeadlineExceeded)
	// ErrCanceled: the caller gave up. It is a context.Canceled.
	ErrCanceled = newClass("canceled", context.Canceled)
	// ErrOutputLimit: the program wrote more than it may.
	ErrOutputLimit = newClass("output limit reached")
	// ErrMemory: the memory ceiling was met.
	ErrMemory = newClass("out of memory")
	// ErrDeadlock: every thread of the program waits for another.
	ErrDeadlock = newClass("deadlock")
	// ErrWorkerLost: what ran the sandbox is gone; acquire again.
	ErrWorkerLost = newClass("worker lost")
	// ErrGuestCrash: the program brought its interpreter down. It is an
	// ErrWorkerLost.
	ErrGuestCrash = newClass("guest crashed", ErrWorkerLost)
	// ErrDisposed: the sandbox was disposed, by this caller or another. It is
	// an ErrWorkerLost.
	ErrDisposed = newClass("sandbox disposed", ErrWorkerLost)
	// ErrClosed: the backend was closed.
	ErrClosed = newClass("backend closed")
	// ErrUnavailable: this host cannot serve now, or lacks what it needs.
	ErrUnavailable = newClass("unavailable")
	// ErrInternal: a fault of the backend itself.
	ErrInternal = newClass("internal error")
)

// Why something was refused. Each is the reason of a [RefusalError], and all
// of them are ErrRefused.
var (
	// ErrRefused is any refusal: nothing was started.
	ErrRefused = newClass("refused")

	// ErrInvalid: a value means nothing, whoever is asked.
	ErrInvalid = newClass("invalid", ErrRefused)
	// ErrConfigurationChanged: a live sandbox has another network policy,
	// execution contract or resource configuration; dispose of it first.
	ErrConfigurationChanged = newClass("configuration changed", ErrRefused)
	// ErrNoBackend: no registered backend has the name or can serve.
	ErrNoBackend = newClass("no backend", ErrRefused)

	// ErrNotPermitted is any refusal by the host's policy.
	ErrNotPermitted = newClass("not permitted", ErrRefused)
	// ErrIsolationNotPermitted: the backend is below the isolation floor.
	ErrIsolationNotPermitted = newClass("isolation not permitted", ErrNotPermitted)
	// ErrCapabilityDenied: the host denies a capability.
	ErrCapabilityDenied = newClass("capability denied", ErrNotPermitted)
	// ErrIdentityDenied: the host denies an identity.
	ErrIdentityDenied = newClass("identity denied", ErrNotPermitted)
	// ErrUnclean: an earlier sandbox of the key is not confirmed gone. The
	// cause is the [DisposalFailure].
	ErrUnclean = newClass("sandbox unclean", ErrNotPermitted)
	// ErrEgressNotEnforced: the backend cannot enforce the egress asked for.
	ErrEgressNotEnforced = newClass("egress not enforced", ErrNotPermitted)
	// ErrScopeNotEnforced: the backend cannot keep the isolation scope.
	ErrScopeNotEnforced = newClass("isolation scope not enforced", ErrNotPermitted)
	// ErrTransferLimitsNotPermitted: more files or bytes than the backend moves.
	ErrTransferLimitsNotPermitted = newClass("transfer limits not permitted", ErrNotPermitted)
	// ErrAttachedIdentityNotPermitted: the backend's identity is beyond the bounds.
	ErrAttachedIdentityNotPermitted = newClass("attached identity not permitted", ErrNotPermitted)

	// ErrNotSupported is any refusal because the backend lacks something.
	ErrNotSupported = newClass("not supported", ErrRefused)
	// ErrCapabilityNotSupported: the backend lacks a capability.
	ErrCapabilityNotSupported = newClass("capability not supported", ErrNotSupported)
	// ErrOSFamilyNotSupported: the backend offers another OS family.
	ErrOSFamilyNotSupported = newClass("OS family not supported", ErrNotSupported)
)

// RefusalError says no before anything was started, so that a sandbox that
// existed can still be used.
type RefusalError struct {
	// Reason is one of the refusals of this package; ErrRefused when nil.
	Reason error
	// Subject is the field or thing in question, such as
	// "spec.egress_allow[2].host".
	Subject string
	// Asked is what was asked for.
	Asked string
	// Allowed is what would have been accepted.
	Allowed string
	// Decider is who decides: the protocol, a backend, or the host's policy.
	Decider string
	// Cause is the error behind the refusal, if any.
	Cause error
}

// Error is one line: the reason, what was asked, what is allowed, who decides.
func (e *RefusalError) Error() string {
	var b strings.Builder
	b.WriteString(e.reason().Error())
	if e.Subject != "" {
		b.WriteString(": " + e.Subject)
	}
	separator := ": "
	for _, part := range [...]struct{ label, text string }{
		{"asked for ", e.Asked}, {"allowed is ", e.Allowed}, {"decided by ", e.Decider},
	} {
		if part.text != "" {
			b.WriteString(separator + part.label + part.text)
			separator = ", "
		}
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap gives the reason and the cause.
func (e *RefusalError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.reason()}
	}
	return []error{e.reason(), e.Cause}
}

// SandboxUsable is true: nothing was started.
func (*RefusalError) SandboxUsable() bool { return true }

func (e *RefusalError) reason() error {
	if e.Reason == nil {
		return ErrRefused
	}
	return e.Reason
}

// protocol is the decider of what is wrong in itself.
const protocol = "the sandbox protocol"

func invalid(subject, asked, allowed string) *RefusalError {
	return &RefusalError{Reason: ErrInvalid, Subject: subject, Asked: asked, Allowed: allowed, Decider: protocol}
}

// OpError says how an operation on a sandbox ended other than by its result.
type OpError struct {
	// Op is the operation: "acquire", "run_code", "reset", "exec" and so on.
	Op string
	// Class is one of this package's errors of operations; ErrInternal when
	// nil.
	Class error
	// Usable says whether the sandbox can be used for the next operation. If
	// not, acquiring the same key gives another one.
	Usable bool
	// Detail is one line for people: what happened and what to do.
	Detail string
	// Cause is the error behind it, if any.
	Cause error
}

// Error is one line: the operation, the class, the detail and the cause.
func (e *OpError) Error() string {
	parts := make([]string, 0, 4)
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	parts = append(parts, e.class().Error())
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the class and the cause.
func (e *OpError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.class()}
	}
	return []error{e.class(), e.Cause}
}

// SandboxUsable says whether the sandbox can be used for the next operation.
func (e *OpError) SandboxUsable() bool { return e.Usable }

func (e *OpError) class() error {
	if e.Class == nil {
		return ErrInternal
	}
	return e.Class
}

// Usable says whether a sandbox can be used after an operation on it returned
// err: always after nil and after a refusal, and as an OpError says. An error
// that does not say is taken for the end of the sandbox.
func Usable(err error) bool {
	if err == nil {
		return true
	}
	var says interface{ SandboxUsable() bool }
	return errors.As(err, &says) && says.SandboxUsable()
}
