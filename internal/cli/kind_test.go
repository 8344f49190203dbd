package cli

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestEveryClassHasItsWord(t *testing.T) {
	for class, want := range map[error]string{
		sandbox.ErrTimeout: "timeout", sandbox.ErrQueuedTimeout: "timeout", sandbox.ErrOutputLimit: "output_limit",
		sandbox.ErrMemory: "memory", sandbox.ErrDeadlock: "deadlock", sandbox.ErrGuestCrash: "guest_crash",
		sandbox.ErrWorkerLost: "worker_lost", sandbox.ErrUnavailable: "unavailable", sandbox.ErrCanceled: "canceled",
		sandbox.ErrInternal: "internal",
	} {
		if got := Kind(fmt.Errorf("x: %w", &sandbox.OpError{Op: "run_code", Class: class})); got != want {
			t.Errorf("%v is %q, want %q", class, got, want)
		}
	}
	for _, r := range []struct {
		err  error
		want string
	}{
		{&NotRunError{errors.New("x")}, "refused"},
		{&sandbox.RefusalError{Reason: sandbox.ErrInvalid}, "refused"},
		{errors.New("x"), "internal"},
	} {
		if got := Kind(r.err); got != r.want {
			t.Errorf("%v is %q, want %q", r.err, got, r.want)
		}
	}
}

func TestPeopleHearTheDetailAndTheCauseOfAFailure(t *testing.T) {
	for _, r := range []struct {
		name string
		err  error
		want string
	}{
		{"the detail says it all", &sandbox.OpError{Op: "run_code", Class: sandbox.ErrTimeout, Detail: "time limit of 1s reached"}, "time limit of 1s reached"},
		{"with a cause", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "no machine", Cause: os.ErrPermission}, "no machine: permission denied"},
		{"a cause alone", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Cause: os.ErrPermission}, "permission denied"},
		{"causes of the same kind", &sandbox.OpError{Op: "acquire", Detail: "a", Cause: &sandbox.OpError{Op: "x", Detail: "b"}}, "a: b"},
		{"neither", &sandbox.OpError{Op: "run_code", Class: sandbox.ErrCanceled}, "run_code: canceled"},
		{"more around it", fmt.Errorf("while: %w", &sandbox.OpError{Op: "run_code", Detail: "x"}), "while: run_code: internal error: x"},
		{"nothing was run", &NotRunError{os.ErrNotExist}, "nothing was run: file does not exist"},
	} {
		if got := Explain(r.err); got != r.want {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}
