package sandbox

import (
	"context"
	"errors"
)

// OtherError is the [ErrorType] of an error that has no class of its own. It is
// OpenTelemetry's word for that.
const OtherError = "_OTHER"

// ErrorType is the class of an error in one stable word, such as "timeout",
// "worker_lost", "isolation_not_permitted" or "disposal_unreachable": for logs,
// metrics and traces, where an error's own text has no place, since it may
// repeat what a program or its worker said. The word is that of the outermost
// error of this package, OtherError if there is none, and empty for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	if word := errorType(err); word != "" {
		return word
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case errors.Is(err, context.Canceled):
		return errorWord(ErrCanceled)
	}
	return OtherError
}

// errorType looks at the error before its causes, where errors.As for several
// types could not tell which comes first.
func errorType(err error) string {
	switch e := err.(type) { //nolint:errorlint // each layer in turn
	case *class:
		return errorWord(e)
	case *OpError:
		return errorType(e.class())
	case *RefusalError:
		return errorType(e.reason())
	case *DisposalFailure:
		return "disposal_" + e.Code.String()
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return errorType(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if word := errorType(inner); word != "" {
				return word
			}
		}
	}
	return ""
}

// errorWord is the word of a class. It is no map, which would be made at the
// start of every program, workers included.
func errorWord(class error) string {
	switch class { //nolint:errorlint // these very values
	case ErrTimeout:
		return "timeout"
	case ErrQueuedTimeout:
		return "queued_timeout"
	case ErrCanceled:
		return "canceled"
	case ErrOutputLimit:
		return "output_limit"
	case ErrMemory:
		return "memory"
	case ErrDeadlock:
		return "deadlock"
	case ErrWorkerLost:
		return "worker_lost"
	case ErrGuestCrash:
		return "guest_crash"
	case ErrDisposed:
		return "disposed"
	case ErrClosed:
		return "closed"
	case ErrUnavailable:
		return "unavailable"
	case ErrInternal:
		return "internal"
	}
	return refusalWord(class)
}

func refusalWord(reason error) string {
	switch reason { //nolint:errorlint // these very values
	case ErrInvalid:
		return "invalid"
	case ErrConfigurationChanged:
		return "configuration_changed"
	case ErrNoBackend:
		return "no_backend"
	case ErrNotPermitted:
		return "not_permitted"
	case ErrIsolationNotPermitted:
		return "isolation_not_permitted"
	case ErrCapabilityDenied:
		return "capability_denied"
	case ErrIdentityDenied:
		return "identity_denied"
	case ErrUnclean:
		return "unclean"
	case ErrEgressNotEnforced:
		return "egress_not_enforced"
	case ErrScopeNotEnforced:
		return "scope_not_enforced"
	case ErrTransferLimitsNotPermitted:
		return "transfer_limits_not_permitted"
	case ErrAttachedIdentityNotPermitted:
		return "attached_identity_not_permitted"
	case ErrNotSupported:
		return "not_supported"
	case ErrCapabilityNotSupported:
		return "capability_not_supported"
	case ErrOSFamilyNotSupported:
		return "os_family_not_supported"
	}
	return "refused"
}
