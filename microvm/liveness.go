package microvm

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

var _ liveness.Reporter = (*Sandbox)(nil)

// Liveness says what the worker is doing, for operators. Exited is what the
// kernel said of the process. Nothing is ever Starting: a sandbox is there when its
// worker has been ready, and before that nobody can ask one.
func (s *Sandbox) Liveness() liveness.Report {
	return liveness.Report{State: s.liveness(), ProcessID: s.worker.PID()}
}

func (s *Sandbox) liveness() liveness.State {
	select {
	case <-s.worker.Done():
		return liveness.Exited
	default:
	}
	if s.life.Err() == nil {
		return liveness.State(s.doing.Load())
	}
	l, ok := context.Cause(s.life).(*loss)                                      //nolint:errorlint // it is the very cause
	if ok && (l.class == sandbox.ErrDisposed || l.class == sandbox.ErrClosed) { //nolint:errorlint // these very values
		return liveness.Disposing
	}
	return liveness.Failed
}

// does notes what the sandbox does until the returned function is called.
func (s *Sandbox) does(what liveness.State) func() {
	s.doing.Store(uint32(what))
	return func() { s.doing.Store(uint32(liveness.Ready)) }
}
