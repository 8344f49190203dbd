package supervise

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// maxAsked bounds the workers that are asked for at one time. Whoever waits
	// for more than that waits here.
	maxAsked = 256
	// maxFailures is how many spare workers may fail one after the other until
	// more are waited for with the next call.
	maxFailures = 3
	// refillDelay is how long after a worker was taken another is asked for, if
	// nobody waits: starting one would compete with the first call of the one
	// that was taken. With two processors and no delay that call took 0.75 ms
	// instead of 0.15.
	refillDelay = 2 * time.Millisecond
)

// answer is what comes of waiting for a worker.
type answer struct {
	worker *Worker
	err    error
}

// pool matches workers with those who wait for one. Workers that are ready are
// kept in the host itself, so that taking one needs nobody's help. It is part of
// a Supervisor and guarded by its mu.
type pool struct {
	spare   int
	waiting []chan answer // each takes one answer; empty unless idle is
	idle    []*Worker
	// asked are the calls that the supervisor has not answered. Any answer does
	// for any who waits.
	asked    []uint64
	next     uint64
	failures int // of workers that nobody waited for, since the last Acquire
	refill   *time.Timer
	closed   bool
}

// wanted is how many workers should have been asked for.
func (p *pool) wanted() int {
	n := len(p.waiting)
	if p.failures < maxFailures {
		n += max(0, p.spare-len(p.idle))
	}
	if p.closed {
		n = 0
	}
	return min(n, maxAsked)
}

// abandon forgets everything and gives those that wait.
func (p *pool) abandon() []chan answer {
	if p.refill != nil {
		p.refill.Stop()
	}
	waiting := p.waiting
	p.waiting, p.idle, p.asked, p.closed = nil, nil, nil, true
	return waiting
}

// Acquire gets a worker that is ready and nobody has used. The error is a
// *StartError if none could be started, ErrSupervisor if there is no supervisor.
func (s *Supervisor) Acquire(ctx context.Context) (*Worker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		return nil, s.gone(ctx)
	}
	s.pool.failures = 0
	if w := s.take(); w != nil {
		s.mu.Unlock()
		return w, nil
	}
	got := make(chan answer, 1)
	s.pool.waiting = append(s.pool.waiting, got)
	s.adjust()
	s.mu.Unlock()
	select {
	case a := <-got:
		return a.worker, a.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.pool.waiting, got); at >= 0 {
		s.pool.waiting = slices.Delete(s.pool.waiting, at, at+1)
		s.adjust()
		return nil, ctx.Err()
	}
	select {
	case a := <-got:
		if a.worker != nil {
			s.place(a.worker)
		}
	default: // the supervisor is lost
	}
	return nil, ctx.Err()
}

// take gives the spare worker that was last made ready, whose memory is most
// likely still in the caches.
func (s *Supervisor) take() *Worker {
	p := &s.pool
	for len(p.idle) > 0 {
		last := len(p.idle) - 1
		w := p.idle[last]
		p.idle = p.idle[:last]
		if w.ended() {
			w.abandon() // what ended it will be told
			continue
		}
		if p.refill == nil {
			p.refill = time.AfterFunc(refillDelay, s.replenish)
		}
		return w
	}
	return nil
}

func (s *Supervisor) replenish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool.refill = nil
	s.adjust()
}

// adjust asks for as many workers as are wanted, or takes back what was asked.
func (s *Supervisor) adjust() {
	p := &s.pool
	for n := p.wanted(); len(p.asked) < n; {
		p.next++
		p.asked = append(p.asked, p.next)
		s.send(message{Kind: kindAcquire, Call: p.next})
	}
	for n := p.wanted(); len(p.asked) > n && !p.closed; {
		last := len(p.asked) - 1
		s.send(message{Kind: kindCancel, Call: p.asked[last]})
		p.asked = p.asked[:last]
	}
}

// answered strikes off a call and says whether it was one.
func (p *pool) answered(call uint64) bool {
	at := slices.Index(p.asked, call)
	if at < 0 {
		return false
	}
	p.asked = slices.Delete(p.asked, at, at+1)
	return true
}

// granted takes over a worker and the files that came with it.
func (s *Supervisor) granted(m message, files []*os.File) {
	w, err := newWorker(s, m, files)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.send(message{Kind: kindRelease, Worker: m.Worker})
		s.refused(m.Call, err)
		return
	}
	s.pool.answered(m.Call)
	s.workers[m.Worker] = w
	s.place(w)
}

// place gives a worker to who has waited longest, or keeps it.
func (s *Supervisor) place(w *Worker) {
	p := &s.pool
	switch {
	case len(p.waiting) > 0:
		p.waiting[0] <- answer{worker: w}
		p.waiting = p.waiting[1:]
	case len(p.idle) < p.spare && !p.closed:
		p.idle = append(p.idle, w)
	default:
		w.abandon()
	}
	s.adjust()
}

// refused tells who has waited longest why there is no worker.
func (s *Supervisor) refused(call uint64, why error) {
	p := &s.pool
	if !p.answered(call) {
		return // it was taken back
	}
	if len(p.waiting) > 0 {
		p.waiting[0] <- answer{err: why}
		p.waiting = p.waiting[1:]
	} else {
		p.failures++
	}
	s.adjust()
}

// unusable replaces a spare worker that has ended.
func (s *Supervisor) unusable(w *Worker) {
	p := &s.pool
	at := slices.Index(p.idle, w)
	if at < 0 {
		return
	}
	p.idle = slices.Delete(p.idle, at, at+1)
	p.failures++
	w.abandon()
	s.adjust()
}

// gone waits for the supervisor's end, which has begun.
func (s *Supervisor) gone(ctx context.Context) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrSupervisor, ctx.Err())
	}
}
