package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// errClosing is the cause of the end of operations when their server
	// closes.
	errClosing = errors.New("control server is closing")
	// errTooMany is told to clients.
	errTooMany = errors.New("too many operations are under way; try again")
)

// operations are a server's calls of its Control. A call that does not end when
// it is told to stays registered until it does: a server cannot be started
// again over what its last life may still be doing.
type operations struct {
	// most bounds those that have not ended, so that a control that never
	// answers does not gather them without end.
	most int
	// ctx ends when the server closes.
	ctx context.Context
	end context.CancelCauseFunc

	mu      sync.Mutex
	closing bool          // guarded by mu
	running int           // guarded by mu
	settled chan struct{} // closed while none is running; guarded by mu
}

func newOperations(most int) *operations {
	o := &operations{most: most, settled: make(chan struct{})}
	o.ctx, o.end = context.WithCancelCause(context.Background())
	close(o.settled)
	return o
}

// begin registers an operation, unless the server is closing or has too many.
func (o *operations) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closing:
		return errClosing
	case o.running >= o.most:
		return errTooMany
	}
	if o.running == 0 {
		o.settled = make(chan struct{})
	}
	o.running++
	return nil
}

func (o *operations) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running--; o.running == 0 {
		close(o.settled)
	}
}

// unsettled counts the operations that have not ended.
func (o *operations) unsettled() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running
}

// close refuses new operations, ends those that are running and gives them a
// moment.
func (o *operations) close() {
	o.mu.Lock()
	o.closing = true
	settled := o.settled
	o.mu.Unlock()
	o.end(errClosing)
	timer := time.NewTimer(settlement)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	}
}

// errLate says that an operation had no result when its time was over.
var errLate = errors.New("control operation timed out")

// run calls f and waits for it, up to the timeout and two short allowances:
// one in which f can give its own verdict about the timeout, one in which it
// can end after its context did. What f returns when its context has ended for
// the time is late, whatever it is: a success too.
func run[T any](o *operations, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := o.begin(); err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(o.ctx, timeout+settlement)
	ended := make(chan outcome, 1)
	go func() {
		defer o.done()
		defer cancel()
		// A fault of the host's callbacks must not end the host because an
		// operator looked.
		defer func() {
			if r := recover(); r != nil {
				ended <- outcome{err: fmt.Errorf("control operation panicked: %v", r)}
			}
		}()
		value, err := f(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			value, err = none, errors.Join(errLate, err)
		}
		ended <- outcome{value, err}
	}()
	timer := time.NewTimer(timeout + 2*settlement)
	defer timer.Stop()
	select {
	case out := <-ended:
		return out.value, out.err
	case <-timer.C:
		return none, errLate
	case <-o.ctx.Done():
	}
	// The server closes: a short wait, as for everything that is cut off.
	timer.Reset(settlement)
	select {
	case out := <-ended:
		return out.value, out.err
	case <-timer.C:
		return none, errClosing
	}
}
