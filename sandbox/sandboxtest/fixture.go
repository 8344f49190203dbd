package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// fixture is one backend under one rule. Its methods end the rule when what
// they stand for goes wrong, so that a probe reads as the rule's story.
type fixture struct {
	t       T
	h       Harness
	p       Programs
	backend sandbox.Backend
}

func newFixture(t T, h Harness) *fixture {
	t.Helper()
	f := &fixture{t: t, h: h, p: h.Programs, backend: h.New(t)}
	t.Cleanup(func() { f.close(f.backend) })
	return f
}

// close ends a backend after the rule. What Close owes is the matter of the
// close suite; here it only must not hang.
func (f *fixture) close(b sandbox.Backend) {
	_, _ = within(f, "Close", func(context.Context) (struct{}, error) { return struct{}{}, b.Close() })
}

// within makes a call that must end in the harness's patience.
func within[R any](f *fixture, what string, call func(ctx context.Context) (R, error)) (R, error) {
	f.t.Helper()
	return start(f, what, call).wait()
}

// pending is a call in the background.
type pending[R any] struct {
	f      *fixture
	what   string
	cancel context.CancelFunc
	ended  chan struct{}
	result R
	err    error
}

// start makes a call in the background. Its context ends with the patience, or
// by cancel.
func start[R any](f *fixture, what string, call func(ctx context.Context) (R, error)) *pending[R] {
	ctx, cancel := context.WithTimeout(context.Background(), f.h.Patience)
	p := &pending[R]{f: f, what: what, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(p.ended)
		p.result, p.err = call(ctx)
	}()
	return p
}

// wait waits for the call. It must be called from the rule's goroutine.
func (p *pending[R]) wait() (R, error) {
	p.f.t.Helper()
	// Twice the patience: a call that keeps its context's deadline is reported
	// by its own error.
	timer := time.NewTimer(2 * p.f.h.Patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.f.t.Fatalf("%s does not return", p.what)
	}
	return p.result, p.err
}

// over says whether the call has returned.
func (p *pending[R]) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// mainKey is the key of most rules.
func mainKey() sandbox.Key {
	return sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}
}

func (f *fixture) tryAcquire(key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	f.t.Helper()
	return within(f, "Acquire", func(ctx context.Context) (sandbox.Sandbox, error) {
		return f.backend.Acquire(ctx, key, spec)
	})
}

func (f *fixture) acquireAs(key sandbox.Key, spec sandbox.Spec) sandbox.Sandbox {
	f.t.Helper()
	s, err := f.tryAcquire(key, spec)
	if err != nil || s == nil {
		f.t.Fatalf("Acquire(%s, %s) = %v, %v", key, spec.Kind, s, err)
	}
	return s
}

func (f *fixture) acquire() sandbox.Sandbox {
	f.t.Helper()
	return f.acquireAs(mainKey(), f.h.Spec)
}

// tryRun runs a program; ctx is what ends with the patience.
func (f *fixture) tryRun(s sandbox.Sandbox, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	f.t.Helper()
	return within(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
		return s.RunCode(ctx, code, timeout)
	})
}

// run runs a program that must end by itself.
func (f *fixture) run(s sandbox.Sandbox, code string) sandbox.ExecResult {
	f.t.Helper()
	result, err := f.tryRun(s, code, f.h.Patience)
	if err != nil {
		f.t.Fatalf("RunCode(%.60q): %v", code, err)
	}
	return result
}

// output runs a program that must succeed and print exactly this.
func (f *fixture) output(s sandbox.Sandbox, code, want string) {
	f.t.Helper()
	result := f.run(s, code)
	if string(result.Stdout) != want || result.ExitCode != 0 {
		f.t.Fatalf("RunCode(%.60q) printed %.100q and exited with %d (stderr %.200q), want %.100q and 0",
			code, result.Stdout, result.ExitCode, result.Stderr, want)
	}
}

// set stores a text, and has checks that it is there.
func (f *fixture) set(s sandbox.Sandbox, name, value string) {
	f.t.Helper()
	f.output(s, f.p.Set(name, value), "")
}

func (f *fixture) has(s sandbox.Sandbox, name, value string) {
	f.t.Helper()
	f.output(s, f.p.Get(name), value)
}

// lacks checks that nothing is stored under the name.
func (f *fixture) lacks(s sandbox.Sandbox, name string) {
	f.t.Helper()
	if result := f.run(s, f.p.Get(name)); result.ExitCode == 0 {
		f.t.Fatalf("%q is there and says %.100q, want nothing under this name", name, result.Stdout)
	}
}

func (f *fixture) tryReset(s sandbox.Sandbox) error {
	f.t.Helper()
	_, err := within(f, "Reset", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Reset(ctx) })
	return err
}

func (f *fixture) reset(s sandbox.Sandbox) {
	f.t.Helper()
	if err := f.tryReset(s); err != nil {
		f.t.Fatalf("Reset: %v", err)
	}
}

func (f *fixture) tryDispose(key sandbox.Key, options sandbox.DisposeOptions) error {
	f.t.Helper()
	_, err := within(f, "Dispose", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.backend.Dispose(ctx, key, options)
	})
	return err
}

func (f *fixture) dispose(key sandbox.Key, options sandbox.DisposeOptions) {
	f.t.Helper()
	if err := f.tryDispose(key, options); err != nil {
		f.t.Fatalf("Dispose(%s, %+v): %v", key, options, err)
	}
}

func (f *fixture) purge(scope, threadID string) sandbox.ScopePurge {
	f.t.Helper()
	purge, _ := within(f, "DisposeScope", func(ctx context.Context) (sandbox.ScopePurge, error) {
		return f.backend.DisposeScope(ctx, scope, threadID), nil
	})
	return purge
}

// purged checks how many sandboxes a purge of a conversation finds.
func (f *fixture) purged(key sandbox.Key, want int) {
	f.t.Helper()
	if purge := f.purge(key.Scope, key.ThreadID); purge.Disposed != want || purge.Undisposed != nil {
		f.t.Fatalf("DisposeScope(%q, %q) = %d disposed, failure %v; want %d and none",
			key.Scope, key.ThreadID, purge.Disposed, purge.Undisposed, want)
	}
}

// is checks the class of an error.
func (f *fixture) is(what string, err error, classes ...error) {
	f.t.Helper()
	for _, class := range classes {
		if !errors.Is(err, class) {
			f.t.Fatalf("%s: error is %v (%T), want one that is %q", what, err, err, class)
		}
	}
}

func (f *fixture) isNot(what string, err error, class error) {
	f.t.Helper()
	if errors.Is(err, class) {
		f.t.Fatalf("%s: error %v is %q too, and should not be", what, err, class)
	}
}

// aftermath checks that what an error says of its sandbox is so: one that is
// usable works under its old id and answers acquire; one that is not answers
// nothing, and acquire gives another.
func (f *fixture) aftermath(s sandbox.Sandbox, id string, err error) {
	f.t.Helper()
	if sandbox.Usable(err) {
		if s.ID() != id {
			f.t.Fatalf("after %v: the sandbox said to be usable has another id", err)
		}
		f.output(s, f.p.Print("alive"), "alive")
		if again := f.acquire(); again.ID() != id {
			f.t.Fatalf("after %v: acquire gave another sandbox, though the first is said to be usable", err)
		}
		return
	}
	f.isLost(s)
	again := f.acquire()
	if again.ID() == id {
		f.t.Fatalf("after %v: acquire gave the id of the lost sandbox again", err)
	}
	f.output(again, f.p.Print("alive"), "alive")
}

// isLost checks that a sandbox says that it is gone.
func (f *fixture) isLost(s sandbox.Sandbox) {
	f.t.Helper()
	result, err := f.tryRun(s, f.p.Print("ghost"), f.h.Patience)
	if err == nil {
		f.t.Fatalf("a lost sandbox ran a program and printed %.100q", result.Stdout)
	}
	f.is("running in a lost sandbox", err, sandbox.ErrWorkerLost)
	if sandbox.Usable(err) {
		f.t.Fatalf("running in a lost sandbox: error %v says that the sandbox is usable", err)
	}
}

// otherKeys are keys that differ from mainKey() in one part each.
func (f *fixture) otherKeys() map[string]sandbox.Key {
	base := mainKey()
	scope, thread, agent := base, base, base
	scope.Scope, thread.ThreadID, agent.AgentID = "tenant-2", "thread-2", "agent-2"
	return map[string]sandbox.Key{"scope": scope, "thread": thread, "agent": agent}
}

// otherKind is the harness's spec under another kind.
func (f *fixture) otherKind() sandbox.Spec {
	spec := f.h.Spec
	spec.Kind += "-2"
	return spec
}

// call is the key and the spec of one call; ok says whether the backend serves
// the scope.
func (f *fixture) call(n int) (key sandbox.Key, spec sandbox.Spec, ok bool) {
	key, spec = mainKey(), f.h.Spec
	key.CallID = fmt.Sprintf("call-%d", n)
	spec.IsolationScope = sandbox.ScopeCall
	return key, spec, f.backend.Declarations().Serves(sandbox.ScopeCall)
}
