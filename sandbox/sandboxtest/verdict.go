package sandboxtest

import (
	"context"
	"errors"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// ended is what an operation says whose context is over: err is the context's
// error, and started tells whether the operation had its turn. What started
// may have changed anything.
func ended(op Op, err error, started bool) *sandbox.OpError {
	class := sandbox.ErrCanceled
	if errors.Is(err, context.DeadlineExceeded) {
		class = sandbox.ErrQueuedTimeout
		if started {
			class = sandbox.ErrTimeout
		}
	}
	return &sandbox.OpError{Op: string(op), Class: class, Usable: !started}
}

// classify gives a scripted error the shape that the protocol asks for. What
// has it already is left as it is.
func classify(op Op, err error) error {
	var failure *sandbox.OpError
	var refusal *sandbox.RefusalError
	switch {
	case errors.As(err, &failure), errors.As(err, &refusal):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ended(op, err, true)
	case errors.Is(err, sandbox.ErrWorkerLost):
		return &sandbox.OpError{Op: string(op), Class: sandbox.ErrWorkerLost, Cause: err}
	}
	return &sandbox.OpError{Op: string(op), Class: sandbox.ErrInternal, Cause: err}
}

// asLost says that the sandbox is gone, whatever the error said.
func asLost(err error) error {
	if !sandbox.Usable(err) {
		return err
	}
	return &sandbox.OpError{Op: string(OpReset), Class: sandbox.ErrWorkerLost, Cause: err}
}

// verdict is what a run says, given what its interpreter returned. A run that
// cost the sandbox ends it here.
func (s *box) verdict(ctx context.Context, full bool, err error) error {
	switch {
	case err == nil && !full:
		return nil
	case !s.alive():
		return s.lost(OpRunCode)
	}
	var failure error
	switch over := ctx.Err(); {
	case full:
		failure = &sandbox.OpError{Op: string(OpRunCode), Class: sandbox.ErrOutputLimit, Usable: !s.backend.config.RetireOnOverrun}
	case over != nil && errors.Is(err, over):
		stopped := ended(OpRunCode, over, true)
		stopped.Usable = !s.backend.config.RetireOnOverrun
		failure = stopped
	default:
		failure = classify(OpRunCode, err)
	}
	if !sandbox.Usable(failure) {
		s.lose(sandbox.ErrWorkerLost)
	}
	return failure
}
