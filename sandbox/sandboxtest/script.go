package sandboxtest

import (
	"context"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Op is an operation that a test can script and that calls are recorded under.
type Op string

// The operations, as methods of [sandbox.Backend] and [sandbox.Sandbox].
const (
	OpAcquire      Op = "acquire"
	OpRunCode      Op = "run_code"
	OpReset        Op = "reset"
	OpDispose      Op = "dispose"
	OpDisposeScope Op = "dispose_scope"
	OpClose        Op = "close"
)

// Step is what one call meets before it does its work, once it has its turn.
// The zero value is nothing.
type Step struct {
	// Gate, if set, holds the call until it is released, the call's context
	// ends or the sandbox is disposed of.
	Gate *Gate
	// Err, if set, is what the call fails with instead of doing its work.
	Err error
}

// Gate holds a call and tells when the call has arrived. One gate can hold
// several calls.
type Gate struct {
	entered chan struct{}
	release chan struct{}
	arrive  sync.Once
	open    sync.Once
}

// NewGate makes a closed gate.
func NewGate() *Gate {
	return &Gate{entered: make(chan struct{}), release: make(chan struct{})}
}

// Entered is closed when the first call has arrived.
func (g *Gate) Entered() <-chan struct{} { return g.entered }

// Release lets all calls go on, now and later. It can be called again.
func (g *Gate) Release() { g.open.Do(func() { close(g.release) }) }

func (g *Gate) wait(ctx context.Context) error {
	g.arrive.Do(func() { close(g.entered) })
	select {
	case <-g.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Call is one call that a [Backend] or one of its sandboxes received.
type Call struct {
	// Op is what was called.
	Op Op
	// Key is the sandbox's; a purge has scope and thread of it, and a close nothing.
	Key sandbox.Key
	// Kind is the sandbox's, or the one that a disposal asked for.
	Kind string
	// InstanceID is the sandbox's when the call arrived, or the one that a
	// disposal asked for; empty for an acquire.
	InstanceID string
	// Code and Timeout are those of a run.
	Code    string
	Timeout time.Duration
	// Done says that the call has returned, and Err what.
	Done bool
	Err  error
}

// script is what calls shall meet and what calls there were.
type script struct {
	mu sync.Mutex
	// next are the steps of coming calls, each for one call; then always.
	next   map[Op][]Step
	always map[Op]Step
	calls  []*Call
}

func (s *script) add(op Op, steps []Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(map[Op][]Step)
	}
	s.next[op] = append(s.next[op], steps...)
}

func (s *script) set(op Op, step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.always == nil {
		s.always = make(map[Op]Step)
	}
	s.always[op] = step
}

// meet takes the step of one call and lives through it.
func (s *script) meet(ctx context.Context, op Op) error {
	s.mu.Lock()
	step := s.always[op]
	if steps := s.next[op]; len(steps) > 0 {
		step, s.next[op] = steps[0], steps[1:]
	}
	s.mu.Unlock()
	if step.Gate != nil {
		if err := step.Gate.wait(ctx); err != nil {
			return err
		}
	}
	return step.Err
}

// record notes that a call has arrived; the result notes how it ended.
func (s *script) record(call Call) func(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := &call
	s.calls = append(s.calls, kept)
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept.Done, kept.Err = true, err
	}
}

func (s *script) list() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := make([]Call, len(s.calls))
	for i, call := range s.calls {
		calls[i] = *call
	}
	return calls
}
