package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestErrorClassesAnswerForWiderOnes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err, is error
		want    bool
	}{
		{sandbox.ErrTimeout, context.DeadlineExceeded, true},
		{sandbox.ErrQueuedTimeout, context.DeadlineExceeded, true},
		{sandbox.ErrQueuedTimeout, sandbox.ErrTimeout, false},
		{sandbox.ErrTimeout, sandbox.ErrQueuedTimeout, false},
		{sandbox.ErrCanceled, context.Canceled, true},
		{sandbox.ErrCanceled, context.DeadlineExceeded, false},
		{sandbox.ErrDisposed, sandbox.ErrWorkerLost, true},
		{sandbox.ErrGuestCrash, sandbox.ErrWorkerLost, true},
		{sandbox.ErrWorkerLost, sandbox.ErrDisposed, false},
		{sandbox.ErrCapabilityNotSupported, sandbox.ErrNotSupported, true},
		{sandbox.ErrCapabilityNotSupported, sandbox.ErrNotPermitted, false},
		{sandbox.ErrCapabilityDenied, sandbox.ErrNotPermitted, true},
		{sandbox.ErrUnclean, sandbox.ErrNotPermitted, true},
		{sandbox.ErrInvalid, sandbox.ErrRefused, true},
		{sandbox.ErrConfigurationChanged, sandbox.ErrRefused, true},
		{sandbox.ErrOSFamilyNotSupported, sandbox.ErrRefused, true},
		{sandbox.ErrOutputLimit, sandbox.ErrRefused, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("around: %w", &sandbox.OpError{Class: c.err})} {
			if errors.Is(err, c.is) != c.want {
				t.Errorf("errors.Is(%v, %v) is not %t", err, c.is, c.want)
			}
		}
	}
}

func TestErrorsSayWhetherTheSandboxIsUsable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{&sandbox.RefusalError{}, true},
		{&sandbox.OpError{Usable: true}, true},
		{&sandbox.OpError{}, false},
		{fmt.Errorf("around: %w", &sandbox.OpError{Usable: true}), true},
		{errors.New("who knows"), false},
		{sandbox.ErrQueuedTimeout, false},
		{sandbox.Spec{}.Validate(), true},
	} {
		if sandbox.Usable(c.err) != c.want {
			t.Errorf("Usable(%v) is not %t", c.err, c.want)
		}
	}
}

func TestErrorsAreOneLineForPeople(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such file")
	for _, c := range []struct {
		err  error
		want string
	}{
		{&sandbox.OpError{}, "internal error"},
		{&sandbox.OpError{Op: "run_code", Class: sandbox.ErrTimeout, Detail: "after 5s", Cause: cause},
			"run_code: time limit reached: after 5s: no such file"},
		{&sandbox.RefusalError{}, "refused"},
		{&sandbox.RefusalError{Reason: sandbox.ErrEgressNotEnforced, Subject: "spec.egress", Asked: "unrestricted", Allowed: "closed", Decider: "backend microvm", Cause: cause},
			"egress not enforced: spec.egress: asked for unrestricted, allowed is closed, decided by backend microvm: no such file"},
		{&sandbox.DisposalFailure{Code: sandbox.DisposalTimeout, Detail: "after 3s"}, "timeout: after 3s"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	if err := error(&sandbox.RefusalError{Cause: cause}); !errors.Is(err, cause) || !errors.Is(err, sandbox.ErrRefused) {
		t.Error("a refusal hides its cause or its class")
	}
	if err := error(&sandbox.OpError{Cause: cause}); !errors.Is(err, cause) || !errors.Is(err, sandbox.ErrInternal) {
		t.Error("an operation's error hides its cause or its class")
	}
}

func TestDisposalFailuresFold(t *testing.T) {
	t.Parallel()
	fail := func(code sandbox.DisposalCode, detail string) *sandbox.DisposalFailure {
		return &sandbox.DisposalFailure{Code: code, Detail: detail}
	}
	for _, c := range []struct {
		name     string
		failures []*sandbox.DisposalFailure
		want     string
	}{
		{"none", nil, "<nil>"},
		{"nil ones", []*sandbox.DisposalFailure{nil, nil}, "<nil>"},
		{"one", []*sandbox.DisposalFailure{nil, fail(sandbox.DisposalRefused, "a")}, "refused: a"},
		{"the first in precedence", []*sandbox.DisposalFailure{
			fail(sandbox.DisposalUnknown, "a"), fail(sandbox.DisposalUnlisted, "b"), fail(sandbox.DisposalTimeout, "c"), fail(sandbox.DisposalRefused, "d"),
		}, "timeout: a; b; c; d"},
		{"unreachable before all", []*sandbox.DisposalFailure{fail(sandbox.DisposalTimeout, "a"), fail(sandbox.DisposalUnreachable, "b")}, "unreachable: a; b"},
		{"a code nobody knows", []*sandbox.DisposalFailure{fail(99, "a"), fail(sandbox.DisposalUnknown, "")}, "unknown: a"},
	} {
		if got := fmt.Sprint(sandbox.FoldFailures(c.failures...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAnyErrorBecomesADisposalFailure(t *testing.T) {
	t.Parallel()
	known := &sandbox.DisposalFailure{Code: sandbox.DisposalUnreachable, Detail: "gone"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "<nil>"},
		{fmt.Errorf("around: %w", known), "unreachable: gone"},
		{context.DeadlineExceeded, "timeout: context deadline exceeded"},
		{errors.New("boom"), "unknown: boom"},
	} {
		if got := fmt.Sprint(sandbox.AsDisposalFailure(c.err)); got != c.want {
			t.Errorf("%v became %s, want %s", c.err, got, c.want)
		}
	}
	if err := (sandbox.ScopePurge{Disposed: 1}).Err(); err != nil {
		t.Errorf("a clean purge is the error %v", err)
	}
	code := sandbox.DisposalTimeout
	if err := code.UnmarshalText([]byte("of_tomorrow")); err != nil || code != sandbox.DisposalUnknown {
		t.Errorf("a code of tomorrow became %s, %v", code, err)
	}
}
