package router_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// The orders of calls that the originals' CodeAct makes, as recorded.
func TestCallsMakeTheRecordedOrderOfOperations(t *testing.T) {
	scripted := errors.New("scripted")
	perCall := pythonSpec
	perCall.IsolationScope = sandbox.ScopeCall
	vouching := func() *fake {
		b := snapshots()
		b.vouches = true
		return b
	}
	for name, row := range map[string]struct {
		backend *fake
		floor   sandbox.Cleanup
		spec    sandbox.Spec
		prepare func(b *fake)
		ops     string // of two calls
	}{
		"the default: adopted and disposed of each time": {
			backend: snapshots(), floor: sandbox.CleanupDispose, spec: pythonSpec,
			ops: "acquire reset run_code dispose(id) acquire reset run_code dispose(id)",
		},
		"reset: adopted once, reset after each call": {
			backend: snapshots(), floor: sandbox.CleanupReset, spec: pythonSpec,
			ops: "acquire reset run_code reset acquire run_code reset",
		},
		"the default, with sandboxes that vouch for themselves": {
			backend: vouching(), floor: sandbox.CleanupDispose, spec: pythonSpec,
			ops: "acquire run_code dispose(id) acquire run_code dispose(id)",
		},
		"reset, with sandboxes that vouch for themselves": {
			backend: vouching(), floor: sandbox.CleanupReset, spec: pythonSpec,
			ops: "acquire run_code reset acquire run_code reset",
		},
		"reclaim, on a backend without it, is a reset": {
			backend: snapshots(), floor: sandbox.CleanupReclaim, spec: pythonSpec,
			ops: "acquire reset run_code reset acquire run_code reset",
		},
		"a reset that fails becomes a disposal": {
			backend: snapshots(), floor: sandbox.CleanupReset, spec: pythonSpec,
			prepare: func(b *fake) { b.Script(sandboxtest.OpReset, sandboxtest.Step{}, failing(scripted)) },
			ops:     "acquire reset run_code reset dispose(id) acquire reset run_code reset",
		},
		"a sandbox for each call is neither adopted nor kept": {
			backend: snapshots(), floor: sandbox.CleanupReset, spec: perCall,
			ops: "acquire run_code dispose(id) acquire run_code dispose(id)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, router.Config{Backends: []sandbox.Backend{row.backend}, MinCleanup: row.floor})
			if row.prepare != nil {
				row.prepare(row.backend)
			}
			for range 2 {
				err := r.WithSandbox(t.Context(), mainKey, row.spec, func(_ context.Context, s sandbox.Sandbox) error {
					if result, err := s.RunCode(t.Context(), "get \"secret\"\n", 0); err != nil || result.ExitCode == 0 {
						t.Errorf("a call finds what the one before left: %q, %v", result.Stdout, err)
					}
					return nil
				})
				isNil(t, "WithSandbox", err)
			}
			row.backend.wantOps(t, row.ops)
			isNil(t, "Unclean", r.Unclean(mainKey))
		})
	}
}

func TestACallWhoseProgramNeverRanNeedsNoReset(t *testing.T) {
	b := snapshots()
	b.vouches = true
	r := newRouter(t, lenient(b))
	for range 2 {
		isNil(t, "WithSandbox", r.WithSandbox(t.Context(), mainKey, pythonSpec,
			func(context.Context, sandbox.Sandbox) error { return nil }))
	}
	b.wantOps(t, "acquire acquire")
}

func TestTheErrorIsThatOfTheCallsOwnWork(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	mine := errors.New("mine")
	b.Always(sandboxtest.OpDispose, failing(unreachable))
	b.Script(sandboxtest.OpReset, sandboxtest.Step{}, failing(errors.New("no reset")))
	err := r.WithSandbox(t.Context(), mainKey, pythonSpec, func(context.Context, sandbox.Sandbox) error { return mine })
	if err != mine {
		t.Errorf("WithSandbox = %v, want the work's own error", err)
	}
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
}

func TestACleanupThatDoesNotGoWell(t *testing.T) {
	noReset, noReclaim, bad := errors.New("no reset"), errors.New("no reclaim"), errors.New("bad")
	for name, row := range map[string]struct {
		policy   router.ReclaimPolicy
		floor    sandbox.Cleanup
		reset    error // the one after the call
		reclaim  error
		dispose  error
		condemn  error
		perCall  bool
		outcome  string // what the hook hears; empty for nothing
		unclean  bool
		finishes bool // without an error
	}{
		"a reset fails, the disposal does not":           {floor: sandbox.CleanupReset, reset: noReset, outcome: "disposed", finishes: true},
		"a reset and the disposal fail":                  {floor: sandbox.CleanupReset, reset: noReset, dispose: unreachable, outcome: "unconfirmed", unclean: true},
		"a disposal fails":                               {floor: sandbox.CleanupDispose, dispose: unreachable, outcome: "unconfirmed", unclean: true},
		"a disposal fails, but keys are kept":            {floor: sandbox.CleanupDispose, policy: router.ReclaimKeep, dispose: unreachable, outcome: "unconfirmed"},
		"a reset fails, even if sandboxes are kept":      {floor: sandbox.CleanupReset, policy: router.ReclaimKeep, reset: noReset, outcome: "disposed", finishes: true},
		"reclaiming works":                               {floor: sandbox.CleanupReclaim, finishes: true},
		"reclaiming fails":                               {floor: sandbox.CleanupReclaim, reclaim: noReclaim, outcome: "disposed", finishes: true},
		"reclaiming fails and the sandbox is kept":       {floor: sandbox.CleanupReclaim, policy: router.ReclaimKeep, reclaim: noReclaim, outcome: "kept"},
		"a call condemns its sandbox":                    {floor: sandbox.CleanupReclaim, condemn: bad, outcome: "disposed", finishes: true},
		"a call condemns its sandbox, and it stays":      {floor: sandbox.CleanupReset, condemn: bad, dispose: unreachable, outcome: "unconfirmed", unclean: true},
		"the sandbox of a single call stays":             {floor: sandbox.CleanupReset, perCall: true, dispose: unreachable, outcome: "unconfirmed"},
		"the sandbox of a single call stays and is kept": {floor: sandbox.CleanupReset, perCall: true, policy: router.ReclaimKeep, dispose: unreachable, outcome: "unconfirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFake("memory", sandbox.CapSnapshot, sandbox.CapReclaim)
			b.reclaims, b.reclaim = true, row.reclaim
			var reports []*router.CleanupError
			r := newRouter(t, router.Config{
				Backends: []sandbox.Backend{b}, MinCleanup: row.floor,
				Reclaim: router.ReclaimConfig{Policy: row.policy, OnFailure: func(ctx context.Context, failure *router.CleanupError) {
					isNil(t, "the hook's context", ctx.Err())
					reports = append(reports, failure)
				}},
			})
			spec := pythonSpec
			if row.perCall {
				spec.IsolationScope = sandbox.ScopeCall
			}
			key := r.CallKey(mainKey, spec)
			call, s := enter(t, r, key, spec)
			id := s.ID()
			if call.Backend() != "memory" || call.Key() != key || call.Cleanup() == sandbox.CleanupUnset {
				t.Errorf("the call is on %s, as %s, with cleanup %s", call.Backend(), call.Key(), call.Cleanup())
			}
			run(t, s, `print "x"`, "x")
			b.Script(sandboxtest.OpReset, failing(row.reset))
			b.Script(sandboxtest.OpDispose, failing(row.dispose))
			if row.condemn != nil {
				call.Condemn(row.condemn)
				call.Condemn(errors.New("too late"))
			}
			err := call.Finish(t.Context())
			if (err == nil) != row.finishes {
				t.Errorf("Finish = %v", err)
			}
			if unclean := r.Unclean(key); (unclean != nil) != row.unclean {
				t.Errorf("Unclean = %v", unclean)
			}
			if row.outcome == "" {
				if len(reports) != 0 {
					t.Errorf("the hook heard %v", reports)
				}
				return
			}
			if len(reports) != 1 {
				t.Fatalf("the hook heard %v, want one report", reports)
			}
			report := reports[0]
			if report.Outcome.String() != row.outcome || report.InstanceID != id || report.Key != key || report.Kind != "python" {
				t.Errorf("the hook heard %v of %s, want %s of %s", report, report.InstanceID, row.outcome, id)
			}
			for _, cause := range []error{row.reset, row.reclaim, row.condemn, row.dispose} {
				if cause != nil {
					text := cause.Error()
					if cause == row.dispose {
						text = "unreachable: memory: scripted"
					}
					is(t, report, report, text)
					if cause != row.dispose {
						is(t, report, cause)
					}
				}
			}
			if row.outcome == "disposed" && b.Registered() != 0 {
				t.Error("the sandbox is still there")
			}
		})
	}
}

func TestAnUncleanKeyIsRefusedUntilItsDisposalSucceeds(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	b.Always(sandboxtest.OpDispose, failing(unreachable))
	call, _ := enter(t, r, mainKey, pythonSpec)
	call.Condemn(nil)
	if err := call.Finish(t.Context()); err == nil {
		t.Error("Finish says nothing of the sandbox that is left")
	}
	_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
	is(t, err, sandbox.ErrUnclean, "unreachable: memory: scripted")
	_, err = r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{})
	is(t, err, sandbox.ErrUnclean)
	other := mainKey
	other.ThreadID = "other"
	if _, err := r.Acquire(t.Context(), other, pythonSpec); err != nil {
		t.Errorf("another conversation is refused too: %v", err)
	}
	if keys := r.UncleanKeys(); len(keys) != 1 || keys[0] != mainKey {
		t.Errorf("UncleanKeys = %v", keys)
	}

	failure := disposalFailure(t, r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
	if failure.Code != sandbox.DisposalUnreachable || failure.Detail != "memory: scripted" {
		t.Errorf("DisposeUnclean = %v", failure)
	}
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
	b.Always(sandboxtest.OpDispose, sandboxtest.Step{})
	isNil(t, "DisposeUnclean", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
	isNil(t, "Unclean", r.Unclean(mainKey))
	acquire(t, r, pythonSpec)
}

func TestACallEndsHoweverItsWorkEnds(t *testing.T) {
	for name, work := range map[string]func(cancel func()){
		"by a cancellation": func(cancel func()) { cancel() },
		"by a panic":        func(func()) { panic("scripted") },
		"by Goexit":         func(func()) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := snapshots()
				r := newRouter(t, lenient(b))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					_ = r.WithSandbox(ctx, mainKey, pythonSpec, func(ctx context.Context, s sandbox.Sandbox) error {
						run(t, s, `set "left" "behind"`, "")
						work(cancel)
						return ctx.Err()
					})
				})
				wg.Wait()
				b.wantOps(t, "acquire reset run_code reset")
				isNil(t, "Unclean", r.Unclean(mainKey))
				isNil(t, "the next call", r.WithSandbox(t.Context(), mainKey, pythonSpec, running(t, `print "x"`, "x")))
			})
		})
	}
}

func TestACleanupHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		config := lenient(b)
		config.Reclaim.Timeout = 5 * time.Second
		r := newRouter(t, config)
		ctx, cancel := context.WithCancel(t.Context())
		call, _ := enter(t, r, mainKey, pythonSpec)
		stuck := sandboxtest.NewGate()
		b.Script(sandboxtest.OpReset, held(stuck))
		b.Script(sandboxtest.OpDispose, held(stuck))
		cancel()
		started := time.Now()
		err := call.Finish(ctx)
		var failure *router.CleanupError
		if !errors.As(err, &failure) || failure.Disposal == nil || failure.Disposal.Code != sandbox.DisposalTimeout {
			t.Errorf("Finish = %v, want an unconfirmed disposal", err)
		}
		if took := time.Since(started); took != 10*time.Second {
			t.Errorf("a reset and a disposal that are stuck took %s, want twice the timeout", took)
		}
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "timeout")
		stuck.Release()
		isNil(t, "DisposeUnclean", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
	})
}

func TestACallCanAcquireAgainAfterItsSandboxWasLost(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	call, s := enter(t, r, mainKey, pythonSpec)
	if same, err := call.Acquire(t.Context()); err != nil || same.ID() != s.ID() {
		t.Errorf("acquiring again gave %v, %v", same, err)
	}
	b.Script(sandboxtest.OpRunCode, failing(&sandbox.OpError{Op: "run_code", Class: sandbox.ErrGuestCrash}))
	if _, err := s.RunCode(t.Context(), "", 0); sandbox.Usable(err) {
		t.Fatal("the sandbox is not lost")
	}
	again, err := call.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, again, `print "x"`, "x")
	isNil(t, "Finish", call.Finish(t.Context()))
	// The lost one is confirmed gone once another has its place; the living one is
	// reset.
	b.wantOps(t, "acquire reset acquire run_code acquire reset dispose(id) run_code reset")
	if left := b.Registered(); left != 1 {
		t.Errorf("%d sandboxes are left, want one", left)
	}
}

func TestACallEndsOnce(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	call, _ := enter(t, r, mainKey, pythonSpec)
	isNil(t, "Finish", call.Finish(t.Context()))
	isNil(t, "Finish again", call.Finish(t.Context()))
	isNil(t, "Release after Finish", call.Release(t.Context()))
	_, err := call.Acquire(t.Context())
	is(t, err, sandbox.ErrInvalid, "after the end of the call")
	b.wantOps(t, "acquire reset reset")
}

func TestACallThatIsReleasedCleansNothing(t *testing.T) {
	perCall := pythonSpec
	perCall.IsolationScope = sandbox.ScopeCall
	for name, row := range map[string]struct {
		key     sandbox.Key
		spec    sandbox.Spec
		condemn error
		ops     string
	}{
		"a conversation's":              {mainKey, pythonSpec, nil, "acquire reset"},
		"a conversation's, condemned":   {mainKey, pythonSpec, errors.New("bad"), "acquire reset dispose(id)"},
		"its own is disposed of anyway": {callKey("1"), perCall, nil, "acquire dispose(id)"},
	} {
		t.Run(name, func(t *testing.T) {
			b := snapshots()
			r := newRouter(t, lenient(b))
			call, _ := enter(t, r, row.key, row.spec)
			if row.condemn != nil {
				call.Condemn(row.condemn)
			}
			isNil(t, "Release", call.Release(t.Context()))
			b.wantOps(t, row.ops)
		})
	}
}

func TestTheEndOfACallCancelsItsAcquire(t *testing.T) {
	perCall := pythonSpec
	perCall.IsolationScope = sandbox.ScopeCall
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		call, err := r.Enter(t.Context(), callKey("1"), perCall, router.CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpAcquire, held(gate))
		acquired := make(chan error, 1)
		go func() {
			_, err := call.Acquire(t.Context())
			acquired <- err
		}()
		<-gate.Entered()
		isNil(t, "Finish", call.Finish(t.Context()))
		is(t, <-acquired, context.Canceled)
		// Nobody else would ask for what the backend may have begun.
		b.wantOps(t, "acquire dispose")
		if known := r.Known(); known != 0 {
			t.Errorf("the router knows %d sandboxes", known)
		}
	})
}

func TestTheEndOfACallWaitsForAnAcquireThatDoesNotObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{fake: snapshots(), gate: make(chan struct{})}
		b.vouches = true
		r := newRouter(t, router.Config{Backends: []sandbox.Backend{b}})
		call, err := r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = call.Acquire(t.Context()) })
		synctest.Wait()
		wg.Go(func() { isNil(t, "Finish", call.Finish(t.Context())) })
		synctest.Wait()
		close(b.gate)
		wg.Wait()
		b.wantOps(t, "acquire dispose(id)")
	})
}

// explosive is a sandbox whose reset panics.
type explosive struct{ sandbox.Sandbox }

func (explosive) Reset(context.Context) error { panic("scripted") }

func (explosive) Fresh() bool { return false }

func TestACleanupThatPanicsLeavesTheKeyUnclean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		acquire(t, r, pythonSpec) // so that it is known
		b.spoil = func(s sandbox.Sandbox) sandbox.Sandbox { return explosive{s} }
		call, _ := enter(t, r, mainKey, pythonSpec)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
			}()
			_ = call.Finish(t.Context())
		}()
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "the cleanup was interrupted")
		b.spoil = nil
		isNil(t, "DisposeUnclean", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
		isNil(t, "the next call", r.WithSandbox(t.Context(), mainKey, pythonSpec, running(t, `print "x"`, "x")))
	})
}

func TestACleanupWaitsForAnAcquireOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{fake: snapshots()}
		r := newRouter(t, lenient(b))
		call, _ := enter(t, r, mainKey, pythonSpec)
		// An acquire outside of calls, which is stuck.
		b.gate = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.Acquire(t.Context(), mainKey, pythonSpec) })
		synctest.Wait()
		var failure *router.CleanupError
		if err := call.Finish(t.Context()); !errors.As(err, &failure) || failure.Outcome != router.OutcomeUnconfirmed {
			t.Errorf("Finish = %v, want an unconfirmed cleanup", err)
		}
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "wait for an acquire")
		close(b.gate)
		wg.Wait()
		// What the acquire gave is not handed out: the key is unclean by now.
		b.wantOps(t, "acquire reset acquire dispose(id)")
		// That was the disposal which was missing.
		isNil(t, "Unclean", r.Unclean(mainKey))
	})
}

// slow is a backend whose acquires pass a gate, if there is one, and do not
// obey their context.
type slow struct {
	*fake
	gate chan struct{}
}

func (b *slow) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if b.gate != nil {
		<-b.gate
	}
	return b.fake.Acquire(context.WithoutCancel(ctx), key, spec)
}
