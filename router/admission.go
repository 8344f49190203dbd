package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// admission lets calls in to sandboxes, in the order in which they came. Calls
// share a sandbox unless one of them wants it alone. When a call ends and
// leaves something to clean, nobody enters any more until all calls inside have
// ended and the last one has cleaned. The zero value is ready.
type admission struct {
	mu    sync.Mutex
	slots map[place]*slot
}

// slot is a place that calls are in or wait for. All of it is guarded by
// admission.mu.
type slot struct {
	inside    int
	exclusive bool // the one call inside wants the place alone
	closed    bool // there is something to clean, or it is being cleaned
	queue     []*waiter
	remains   []remains
}

type waiter struct {
	exclusive bool
	admitted  chan struct{} // closed when the call is in
	progress  chan struct{} // has room for one: a call ahead has moved
}

// errPatience is the end of the wait for one call ahead.
var errPatience = errors.New("the call ahead did not end in time")

// enter waits until the call may enter. The patience counts anew whenever a
// call ahead leaves or a step of its cleanup is done, so that a queue of calls
// that end is waited out and a stuck one is not. With an error, that of ctx or
// errPatience, the call is not inside and has left nothing; without one it is
// inside, even if ctx has just ended.
func (a *admission) enter(ctx context.Context, at place, exclusive bool, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := a.queue(at, exclusive)
	if w == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-w.admitted:
			return nil
		case <-w.progress:
			timer.Reset(patience)
		case <-timer.C:
			select {
			case <-w.progress: // at the same moment
				timer.Reset(patience)
				continue
			default:
			}
			if a.withdraw(at, w) {
				return errPatience
			}
			return nil // admitted at the same moment
		case <-ctx.Done():
			if a.withdraw(at, w) {
				return ctx.Err()
			}
			// Admitted at the same moment: by now there may be something that
			// this call has to clean when it leaves.
			return nil
		}
	}
}

// queue lets the call in, then it returns nil, or has it wait.
func (a *admission) queue(at place, exclusive bool) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.slots == nil {
		a.slots = make(map[place]*slot)
	}
	s := a.slots[at]
	if s == nil {
		s = new(slot)
		a.slots[at] = s
	}
	w := &waiter{exclusive: exclusive, admitted: make(chan struct{}), progress: make(chan struct{}, 1)}
	s.queue = append(s.queue, w)
	if s.admit(); !slices.Contains(s.queue, w) {
		return nil
	}
	return w
}

// withdraw takes the waiter out of the queue; it is false when the call was
// let in meanwhile.
func (a *admission) withdraw(at place, w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slots[at]
	i := -1
	if s != nil {
		i = slices.Index(s.queue, w)
	}
	if i < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	a.settle(at, s) // those behind may fit now
	return true
}

// leave takes the call out, together with what it leaves. When it was the last
// one inside and there is something to clean, that is returned: the caller
// cleans it and then calls reopen.
func (a *admission) leave(at place, left []remains) []remains {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slots[at]
	s.inside--
	s.exclusive = false
	s.remains = append(s.remains, left...)
	s.closed = len(s.remains) > 0
	s.tell()
	if s.closed && s.inside == 0 {
		left, s.remains = s.remains, nil
		return left
	}
	a.settle(at, s)
	return nil
}

// stepped says that a step of cleaning is done.
func (a *admission) stepped(at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots[at].tell()
}

// reopen says that everything is cleaned.
func (a *admission) reopen(at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slots[at]
	s.closed = false
	s.tell()
	a.settle(at, s)
}

// settle lets in who can enter now and drops a slot that nobody is in or wants.
func (a *admission) settle(at place, s *slot) {
	s.admit()
	if s.inside == 0 && !s.closed && len(s.queue) == 0 {
		delete(a.slots, at)
	}
}

// admit lets in those at the head of the queue who fit.
func (s *slot) admit() {
	for len(s.queue) > 0 {
		w := s.queue[0]
		if s.closed || s.exclusive || w.exclusive && s.inside > 0 {
			return
		}
		s.queue = s.queue[1:]
		s.inside++
		s.exclusive = w.exclusive
		close(w.admitted)
	}
}

// tell has every waiter's patience count anew.
func (s *slot) tell() {
	for _, w := range s.queue {
		select {
		case w.progress <- struct{}{}:
		default: // the waiter has not yet seen the last one
		}
	}
}

// queued is the error of a call that did not get its turn.
func queued(op string, err error) error {
	class := sandbox.ErrQueuedTimeout
	if errors.Is(err, context.Canceled) {
		class = sandbox.ErrCanceled
	}
	return &sandbox.OpError{
		Op: op, Class: class, Usable: true,
		Detail: "another call uses the sandbox; nothing was started", Cause: err,
	}
}
