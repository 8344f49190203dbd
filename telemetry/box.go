package telemetry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// box decorates a sandbox with what every sandbox can do. What only some can do
// is added by decorate.
type box struct {
	backend *Backend
	inner   sandbox.Sandbox
	labels  *labels
	hosts   map[string]bool // those that the spec lists

	lost atomic.Bool // an operation said so

	mu   sync.Mutex
	next uint64            // the number of the next run; guarded by mu
	runs []run             // those that have begun, in order; guarded by mu
	last trace.SpanContext // of the run that has ended last; guarded by mu
}

// run is a run on its way.
type run struct {
	number uint64
	span   trace.SpanContext
}

// decorated is every sandbox that a [Backend] hands out. Routers and hosts that
// want the backend's own sandbox, for what only that one can do, ask for the
// method Unwrap; what they do with it is not recorded.
type decorated interface {
	sandbox.Sandbox
	Unwrap() sandbox.Sandbox
	decoratedBy(b *Backend) bool
}

var _ decorated = (*box)(nil)

// Unwrap is the sandbox behind the decorator.
func (s *box) Unwrap() sandbox.Sandbox { return s.inner }

func (s *box) decoratedBy(b *Backend) bool { return s.backend == b }

// ID is the sandbox's.
func (s *box) ID() string { return s.inner.ID() }

// Fresh is the sandbox's; false when it does not vouch for itself, as routers
// take it.
func (s *box) Fresh() bool { return fresh(s.inner) }

func fresh(s sandbox.Sandbox) bool {
	vouches, ok := s.(interface{ Fresh() bool })
	return ok && vouches.Fresh()
}

// Liveness is the sandbox's; unknown when it does not know, as monitors take it.
func (s *box) Liveness() liveness.Report { return liveness.Of(s.inner) }

// begin begins an operation of this sandbox.
func (s *box) begin(ctx context.Context, op op) (context.Context, running) {
	ctx, r := s.backend.i.begin(ctx, op, s.labels)
	if r.recording() {
		r.set(keyInstance.String(s.inner.ID()))
	}
	return ctx, r
}

// end ends an operation of this sandbox.
func (s *box) end(ctx context.Context, r *running, outcome string, err error) {
	if err != nil {
		outcome = outcomeError
		usable := sandbox.Usable(err)
		if !usable {
			s.lost.Store(true)
		}
		if r.recording() {
			r.set(keyUsable.Bool(usable))
		}
	}
	r.endAs(ctx, outcome, err)
}

// RunCode is the sandbox's, in a span.
func (s *box) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	ctx, r := s.begin(ctx, opRun)
	if r.recording() {
		r.set(keyCode.Int(len(code)), keyTimeout.Float64(orDefault(timeout).Seconds()))
	}
	number := s.enter(r.span)
	result, err := s.inner.RunCode(ctx, code, timeout)
	s.leave(number)
	s.ran(ctx, &r, result, err)
	return result, err
}

func orDefault(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return sandbox.DefaultTimeout
	}
	return timeout
}

// ran ends a run or a command. How much was written and how it exited is said
// also beside an error.
func (s *box) ran(ctx context.Context, r *running, result sandbox.ExecResult, err error) {
	if r.recording() {
		r.set(keyStdout.Int(len(result.Stdout)), keyStderr.Int(len(result.Stderr)))
		if err == nil {
			r.set(keyExitCode.Int(result.ExitCode))
		}
	}
	outcome := outcomeOK
	if result.ExitCode != 0 {
		outcome = outcomeProgram
	}
	s.end(ctx, r, outcome, err)
}

// Reset is the sandbox's, in a span.
func (s *box) Reset(ctx context.Context) error {
	ctx, r := s.begin(ctx, opReset)
	err := s.inner.Reset(ctx)
	if err == nil && r.recording() {
		r.set(keyNext.String(s.inner.ID()))
	}
	s.end(ctx, &r, outcomeOK, err)
	return err
}

// enter notes a run, for the requests of its program.
func (s *box) enter(span trace.Span) (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.runs = append(s.runs, run{s.next, span.SpanContext()})
	return s.next
}

func (s *box) leave(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.runs, func(r run) bool { return r.number == number })
	s.last = s.runs[i].span
	s.runs = slices.Delete(s.runs, i, i+1)
}

// current is the run whose program makes requests: of several the first, since
// they take turns in the order in which they came. A request may end a little
// later than the run that was given up with it.
func (s *box) current() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return s.last
	}
	return s.runs[0].span
}
