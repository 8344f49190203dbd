package sandboxtest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// broken is a backend that breaks one rule: each field, if set, takes the
// place of a method.
type broken struct {
	*sandboxtest.Backend
	t testing.TB

	name         func() string
	declarations func() sandbox.Declarations
	acquire      func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error)
	dispose      func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error
	purge        func(ctx context.Context, scope, threadID string) sandbox.ScopePurge
	close        func() error
	sandbox      func(s *brokenSandbox)

	mu sync.Mutex
	// wrapped are the sandboxes given out, so that each has one wrapper.
	wrapped map[sandbox.Sandbox]*brokenSandbox
}

func (b *broken) Name() string {
	if b.name != nil {
		return b.name()
	}
	return b.Backend.Name()
}

func (b *broken) Declarations() sandbox.Declarations {
	if b.declarations != nil {
		return b.declarations()
	}
	return b.Backend.Declarations()
}

func (b *broken) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	acquire := b.Backend.Acquire
	if b.acquire != nil {
		acquire = b.acquire
	}
	s, err := acquire(ctx, key, spec)
	if err != nil || b.sandbox == nil {
		return s, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wrapped[s]
	if w == nil {
		w = &brokenSandbox{Sandbox: s}
		b.sandbox(w)
		if b.wrapped == nil {
			b.wrapped = make(map[sandbox.Sandbox]*brokenSandbox)
		}
		b.wrapped[s] = w
	}
	return w, nil
}

func (b *broken) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	if b.dispose != nil {
		return b.dispose(ctx, key, options)
	}
	return b.Backend.Dispose(ctx, key, options)
}

func (b *broken) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	if b.purge != nil {
		return b.purge(ctx, scope, threadID)
	}
	return b.Backend.DisposeScope(ctx, scope, threadID)
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Backend.Close()
}

// brokenSandbox is a sandbox that breaks one rule.
type brokenSandbox struct {
	sandbox.Sandbox
	id    func() string
	run   func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error)
	reset func(ctx context.Context) error
}

func (s *brokenSandbox) ID() string {
	if s.id != nil {
		return s.id()
	}
	return s.Sandbox.ID()
}

func (s *brokenSandbox) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	if s.run != nil {
		return s.run(ctx, code, timeout)
	}
	return s.Sandbox.RunCode(ctx, code, timeout)
}

func (s *brokenSandbox) Reset(ctx context.Context) error {
	if s.reset != nil {
		return s.reset(ctx)
	}
	return s.Sandbox.Reset(ctx)
}

// onRun has every result pass through a function.
func onRun(change func(code string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error)) func(*broken) {
	return func(b *broken) {
		b.sandbox = func(s *brokenSandbox) {
			s.run = func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
				r, err := s.Sandbox.RunCode(ctx, code, timeout)
				return change(code, r, err)
			}
		}
	}
}

// onCall has every run's arguments pass through a function.
func onCall(change func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration)) func(*broken) {
	return func(b *broken) {
		b.sandbox = func(s *brokenSandbox) {
			s.run = func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
				return s.Sandbox.RunCode(change(ctx, code, timeout))
			}
		}
	}
}

// onAcquire has every acquire's arguments pass through a function.
func onAcquire(change func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec)) func(*broken) {
	return func(b *broken) {
		b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
			return b.Backend.Acquire(change(ctx, key, spec))
		}
	}
}

// brokenHarness is a harness whose backends are broken.
func brokenHarness(t testing.TB, config sandboxtest.Config, fault func(*broken)) sandboxtest.Harness {
	t.Helper()
	memory := sandboxtest.MemoryHarness(config)
	h := memory
	h.Refused = []sandboxtest.RefusedSpec{{
		Name:   "a file capability",
		Spec:   sandbox.DefaultSpec("conformance"),
		Reason: sandbox.ErrCapabilityNotSupported,
	}}
	h.Patience = 10 * time.Second
	h.Short = 20 * time.Millisecond
	wrap := func(inner sandbox.Backend) sandbox.Backend {
		backend, ok := inner.(*sandboxtest.Backend)
		if !ok {
			t.Errorf("%T is no backend in memory", inner)
		}
		b := &broken{Backend: backend, t: t}
		fault(b)
		return b
	}
	unwrap := func(b sandbox.Backend) sandbox.Backend {
		if w, ok := b.(*broken); ok {
			return w.Backend
		}
		return b
	}
	h.New = func(t sandboxtest.T) sandbox.Backend { return wrap(memory.New(t)) }
	h.Sibling = func(t sandboxtest.T, first sandbox.Backend) sandbox.Backend {
		return wrap(memory.Sibling(t, unwrap(first)))
	}
	h.FailDisposals = func(b sandbox.Backend) func() { return memory.FailDisposals(unwrap(b)) }
	return h
}

func TestTheSuiteFindsEachBrokenRule(t *testing.T) {
	if testing.Short() {
		t.Skip("some seventy runs of the suite: without -short")
	}
	t.Parallel()
	all := faults()
	// Most of a suite's time is waiting for a short timeout, so that many can
	// run at once even on one processor.
	const together = 12
	turn := make(chan struct{}, together)
	results := make(map[string]chan *recorder)
	for name, c := range all {
		result := make(chan *recorder, 1)
		results[name] = result
		h := brokenHarness(t, c.config, c.fault)
		if c.hangs {
			h.Patience = 500 * time.Millisecond
		}
		go func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			result <- conform(h)
		}()
	}
	untested, failed, skipped := conform(brokenHarness(t, sandboxtest.Config{}, func(*broken) {})).rules()
	if len(failed)+len(skipped) > 0 {
		t.Fatalf("without a fault these failed: %q, and these were skipped: %q", failed, skipped)
	}
	for name, c := range all {
		untested = difference(untested, c.want)
		t.Run(name, func(t *testing.T) {
			r := <-results[name]
			_, failed, _ := r.rules()
			if missing := difference(c.want, failed); len(missing) > 0 || len(c.want) == 0 {
				t.Errorf("not found by:\n  %s\nbut by:\n  %s", strings.Join(missing, "\n  "), strings.Join(failed, "\n  "))
			}
			if unexpected := difference(failed, c.want); len(unexpected) > 0 && !c.wide && !c.hangs {
				t.Errorf("found also by:\n  %s%s", strings.Join(unexpected, "\n  "), r.why())
			}
		})
	}
	if len(untested) > 0 {
		t.Errorf("no fault shows that these rules can fail:\n  %s", strings.Join(untested, "\n  "))
	}
}

func difference(all, without []string) []string {
	known := make(map[string]bool)
	for _, name := range without {
		known[name] = true
	}
	var rest []string
	for _, name := range all {
		if !known[name] {
			rest = append(rest, name)
		}
	}
	return rest
}

// revive runs a program in whatever sandbox the main key has now, when the one
// that was asked is lost.
func (b *broken) revive(s *brokenSandbox) func(context.Context, string, time.Duration) (sandbox.ExecResult, error) {
	return func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
		r, err := s.Sandbox.RunCode(ctx, code, timeout)
		if !errors.Is(err, sandbox.ErrWorkerLost) || code == "forever" {
			return r, err
		}
		again, err := b.Backend.Acquire(ctx, sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"},
			sandbox.Spec{Kind: "revived", Requires: sandbox.SetOf(sandbox.CapRunCode)})
		if err != nil {
			return r, err
		}
		return again.RunCode(ctx, code, timeout)
	}
}
