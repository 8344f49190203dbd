package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// maxWaiting bounds the calls of one session that are under way or wait for
// their turn.
const maxWaiting = 32

var errWaiting = fmt.Errorf("%d calls of this session are under way, which is the limit: wait for their answers", maxWaiting)

// errOver is the end of a wait in a line that is over.
var errOver = errors.New("the session has ended")

// line has the calls of one session follow each other, in the order in which
// they joined. The zero value is ready; all methods may be called at the same
// time.
type line struct {
	mu sync.Mutex
	// queue has the call whose turn it is first; guarded by mu.
	queue []*place
}

// place is the place of one call in a line.
type place struct {
	line *line
	// turn is closed when the calls ahead have left.
	turn chan struct{}
	// moved has room for one: the call whose turn it was has left.
	moved chan struct{}
	// claimed says that the call has come for its turn; guarded by line.mu.
	claimed bool
}

// join puts a call at the end. The error is errWaiting; whoever has a place must
// leave it.
func (l *line) join() (*place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxWaiting {
		return nil, errWaiting
	}
	return l.add(), nil
}

// joinLast puts in whoever ends the line, for which there is always a place. Those
// that no call has come for are given up: none will.
func (l *line) joinLast() *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(p *place) bool { return !p.claimed })
	p := l.add()
	l.queue[0].begin()
	return p
}

// add puts a call at the end. Precondition: mu is held.
func (l *line) add() *place {
	p := &place{line: l, turn: make(chan struct{}), moved: make(chan struct{}, 1)}
	l.queue = append(l.queue, p)
	if len(l.queue) == 1 {
		p.begin()
	}
	return p
}

// begin gives the call its turn, if it does not have it yet. Precondition:
// line.mu is held.
func (p *place) begin() {
	select {
	case <-p.turn:
	default:
		close(p.turn)
	}
}

// claim says whether the place is still in its line.
func (p *place) claim() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.claimed = true
	return slices.Contains(p.line.queue, p)
}

// wait waits for the turn, which ends when the place is left. The wait for each
// call ahead is bounded by patience, so that calls that end are waited out and one
// that is stuck is not; zero means as long as ctx. Errors are *sandbox.OpError.
func (p *place) wait(ctx context.Context, patience time.Duration) error {
	if !p.claim() {
		return canceled(errOver)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := timer.C
	if patience == 0 {
		late = nil
	}
	for {
		select {
		case <-p.turn:
			if err := ctx.Err(); err != nil { // at the same moment
				return canceled(err)
			}
			return nil
		case <-p.moved:
			timer.Reset(patience)
		case <-late:
			select {
			case <-p.moved: // at the same moment
				timer.Reset(patience)
				continue
			default:
			}
			return &sandbox.OpError{Op: "enter", Class: sandbox.ErrQueuedTimeout, Usable: true}
		case <-ctx.Done():
			return canceled(ctx.Err())
		}
	}
}

// leave takes the call out, wherever it is. Leaving twice is leaving once.
func (p *place) leave() {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i < 0 {
		return
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	if i > 0 || len(l.queue) == 0 {
		return // those behind wait for the same call as before
	}
	l.queue[0].begin()
	for _, waiting := range l.queue {
		select {
		case waiting.moved <- struct{}{}:
		default: // it has not yet seen the last one
		}
	}
}

// canceled is the error of a caller that did not wait.
func canceled(err error) error {
	return &sandbox.OpError{Op: "enter", Class: sandbox.ErrCanceled, Usable: true, Cause: err}
}
