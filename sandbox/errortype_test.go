package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The name of every class is read from the source, so that a class without a
// word of its own is noticed: it would be counted as another one.
func TestEveryClassOfErrorsHasAWordOfItsOwn(t *testing.T) {
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t(Err\w+)\s+= newClass`).FindAllSubmatch(source, -1)
	classes := []error{
		sandbox.ErrTimeout, sandbox.ErrQueuedTimeout, sandbox.ErrCanceled, sandbox.ErrOutputLimit, sandbox.ErrMemory,
		sandbox.ErrDeadlock, sandbox.ErrWorkerLost, sandbox.ErrGuestCrash, sandbox.ErrDisposed, sandbox.ErrClosed,
		sandbox.ErrUnavailable, sandbox.ErrInternal,
		sandbox.ErrRefused, sandbox.ErrInvalid, sandbox.ErrConfigurationChanged, sandbox.ErrNoBackend,
		sandbox.ErrNotPermitted, sandbox.ErrIsolationNotPermitted, sandbox.ErrCapabilityDenied, sandbox.ErrIdentityDenied,
		sandbox.ErrUnclean, sandbox.ErrEgressNotEnforced, sandbox.ErrScopeNotEnforced, sandbox.ErrTransferLimitsNotPermitted,
		sandbox.ErrAttachedIdentityNotPermitted, sandbox.ErrNotSupported, sandbox.ErrCapabilityNotSupported,
		sandbox.ErrOSFamilyNotSupported,
	}
	if len(declared) != len(classes) {
		t.Fatalf("errors.go declares %d classes, this test knows %d", len(declared), len(classes))
	}
	shape := regexp.MustCompile(`^[a-z_]+$`)
	words := make(map[string]error)
	for _, class := range classes {
		word := sandbox.ErrorType(class)
		if other, taken := words[word]; taken || !shape.MatchString(word) {
			t.Errorf("%v has the word %q, which %v has too", class, word, other)
		}
		words[word] = class
	}
}

func TestErrorTypeIsThatOfTheOutermostError(t *testing.T) {
	const secret = "s3cret"
	unclean := &sandbox.RefusalError{
		Reason: sandbox.ErrUnclean, Asked: secret, Cause: &sandbox.DisposalFailure{Code: sandbox.DisposalTimeout, Detail: secret},
	}
	for _, r := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"an operation", &sandbox.OpError{Class: sandbox.ErrTimeout, Detail: secret}, "timeout"},
		{"an operation without a class", &sandbox.OpError{Detail: secret}, "internal"},
		{"an operation with a cause of another class", &sandbox.OpError{Class: sandbox.ErrWorkerLost, Cause: sandbox.ErrTimeout}, "worker_lost"},
		{"an operation with a class that is wrapped", &sandbox.OpError{Class: fmt.Errorf("x: %w", sandbox.ErrMemory)}, "memory"},
		{"an operation with a foreign class", &sandbox.OpError{Class: errors.New(secret)}, sandbox.OtherError},
		{"a refusal with a disposal behind it", unclean, "unclean"},
		{"a refusal without a reason", &sandbox.RefusalError{}, "refused"},
		{"a refusal that is wrapped", fmt.Errorf("%s: %w", secret, unclean), "unclean"},
		{"several", errors.Join(errors.New(secret), unclean, sandbox.ErrTimeout), "unclean"},
		{"a disposal", &sandbox.DisposalFailure{Code: sandbox.DisposalUnreachable, Detail: secret}, "disposal_unreachable"},
		{"a context that was given up", fmt.Errorf("x: %w", context.Canceled), "canceled"},
		{"a deadline", context.DeadlineExceeded, "deadline_exceeded"},
		{"a foreign error", errors.New(secret), sandbox.OtherError},
	} {
		if got := sandbox.ErrorType(r.err); got != r.want || strings.Contains(got, secret) {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}
