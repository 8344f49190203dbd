package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestEveryErrorClassHasItsStatus(t *testing.T) {
	canceled := &sandbox.OpError{Class: sandbox.ErrCanceled, Detail: "canceled"}
	for _, r := range []struct {
		name   string
		err    error
		status int
		silent bool
	}{
		{"nothing", nil, 0, true},
		{"the program's own", &StatusError{7}, 7, true},
		{"usage", Usagef("bad"), 2, false},
		{"time limit", &sandbox.OpError{Class: sandbox.ErrTimeout, Detail: "m"}, 124, false},
		{"output limit", &sandbox.OpError{Class: sandbox.ErrOutputLimit, Detail: "m"}, 125, false},
		{"crash", &sandbox.OpError{Class: sandbox.ErrGuestCrash, Detail: "m"}, 125, false},
		{"canceled without a signal", canceled, 125, false},
		{"interrupt", fmt.Errorf("%w: %w", canceled, &SignalError{os.Interrupt}), 130, true},
		{"terminate", &SignalError{syscall.SIGTERM}, 143, true},
		{"hang up", &SignalError{syscall.SIGHUP}, 129, true},
		{"closed pipe", fmt.Errorf("x: %w", streams.ErrPipe), 141, true},
		{"full device", fmt.Errorf("x: %w", streams.ErrWrite), 125, false},
		{"anything", errors.New("x"), 125, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			if got := ExitStatus(r.err); got != r.status {
				t.Errorf("status %d, want %d", got, r.status)
			}
			if msg := Message(r.err); (msg == "") != r.silent {
				t.Errorf("message %q, want silent %v", msg, r.silent)
			}
		})
	}
}

func TestAMessageOfSeveralErrorsIsOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb": "a; b", "a:\nb": "a: b", "a\n": "a", "\x1b[2J": "^[[2J",
	} {
		if got := Message(errors.New(text)); got != "maf-sandbox: "+want {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}

func TestInterruptibleEndsWithTheSignalAsItsCause(t *testing.T) {
	c := make(chan os.Signal, 1)
	f := &Factory{Signals: func() (<-chan os.Signal, func()) { return c, func() {} }}
	ctx, release := f.Interruptible(context.Background())
	defer release()
	c <- syscall.SIGTERM
	<-ctx.Done()
	if got := ExitStatus(StopCause(ctx)); got != ExitTerminated {
		t.Errorf("cause %v gives %d, want %d", StopCause(ctx), got, ExitTerminated)
	}
}

func TestStopCauseIsNothingForAnOrdinaryEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	if StopCause(ctx) != nil {
		t.Error("a living context has a cause")
	}
	cancel(nil)
	if StopCause(ctx) != nil {
		t.Error("an ordinary end has a cause")
	}
}
