package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestASandboxThatTheRouterDoesNotKnowIsMadeCleanFirst(t *testing.T) {
	scripted := errors.New("scripted")
	for name, row := range map[string]struct {
		backend *fake
		foreign bool // a program of somebody else ran in it
		prepare func(b *fake)
		ops     string
		want    error
	}{
		"by a reset": {
			backend: snapshots(), foreign: true, ops: "acquire run_code acquire reset",
		},
		"by a reset even when it was just created, since nobody vouches": {
			backend: snapshots(), ops: "acquire reset",
		},
		"not at all when it vouches that it is fresh": {
			backend: &fake{vouches: true}, ops: "acquire",
		},
		"by a reset when it vouches for nothing any more": {
			backend: &fake{vouches: true}, foreign: true, ops: "acquire run_code acquire reset",
		},
		"by being replaced where there is no snapshot": {
			backend: newFake("memory"), foreign: true, ops: "acquire run_code acquire dispose(id) acquire",
		},
		"by being replaced when the reset fails": {
			backend: snapshots(), foreign: true,
			prepare: func(b *fake) { b.Script(sandboxtest.OpReset, failing(scripted)) },
			ops:     "acquire run_code acquire reset dispose(id) acquire",
		},
		"or refused when it cannot be replaced either": {
			backend: snapshots(), foreign: true,
			prepare: func(b *fake) {
				b.Script(sandboxtest.OpReset, failing(scripted))
				b.Script(sandboxtest.OpDispose, failing(unreachable))
			},
			ops: "acquire run_code acquire reset dispose(id)", want: sandbox.ErrUnclean,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := row.backend
			if b.Backend == nil {
				b = snapshots()
				b.vouches = true
			}
			r := newRouter(t, lenient(b))
			if row.foreign {
				s, err := b.Acquire(t.Context(), mainKey, pythonSpec)
				if err != nil {
					t.Fatal(err)
				}
				run(t, s, `set "left" "behind"`, "")
			}
			if row.prepare != nil {
				row.prepare(b)
			}
			s, err := r.Acquire(t.Context(), mainKey, pythonSpec)
			if row.want != nil {
				is(t, err, row.want, "unreachable: memory: scripted")
				is(t, r.Unclean(mainKey), row.want)
			} else if err != nil {
				t.Fatal(err)
			}
			b.wantOps(t, row.ops)
			if err != nil {
				return
			}
			if result, err := s.RunCode(t.Context(), `get "left"`, 0); err != nil || result.ExitCode == 0 {
				t.Errorf("what somebody else left is there: %q, %v", result.Stdout, err)
			}
		})
	}
}

func TestASandboxThatTheRouterKnowsIsHandedOutAsItIs(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	first := acquire(t, r, pythonSpec)
	run(t, first, `set "kept" "yes"`, "")
	second := acquire(t, r, pythonSpec)
	run(t, second, `get "kept"`, "yes")
	if first.ID() != second.ID() {
		t.Error("the second acquire gave another generation")
	}
	b.wantOps(t, "acquire reset run_code acquire run_code")

	// Another kind is another sandbox.
	other := pythonSpec
	other.Kind = "other"
	if s := acquire(t, r, other); s.ID() == first.ID() {
		t.Error("another kind got the same sandbox")
	}
	if known := r.Known(); known != 2 {
		t.Errorf("the router knows %d sandboxes, want 2", known)
	}
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
	if known := r.Known(); known != 0 {
		t.Errorf("after the disposal the router knows %d sandboxes", known)
	}
}

func TestASandboxThatWasLostIsReplacedAndAdopted(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	s := acquire(t, r, pythonSpec)
	b.Script(sandboxtest.OpRunCode, failing(&sandbox.OpError{Op: "run_code", Class: sandbox.ErrMemory}))
	_, err := s.RunCode(t.Context(), "print 1", 0)
	is(t, err, sandbox.ErrMemory)
	if again := acquire(t, r, pythonSpec); again.ID() == s.ID() {
		t.Error("the lost sandbox was handed out again")
	}
	b.wantOps(t, "acquire reset run_code acquire reset")
	if known := r.Known(); known != 1 {
		t.Errorf("the router knows %d sandboxes, want the living one", known)
	}
}

func TestALiveSandboxKeepsItsExecutionContract(t *testing.T) {
	b := snapshots()
	// The backend in memory refuses this itself; here it forgets to.
	same := func(spec sandbox.Spec) sandbox.Spec { spec.ExecutionContract = "same"; return spec }
	r := newRouter(t, lenient(&forgetful{b, same}))
	acquire(t, r, contract("first"))
	_, err := r.Acquire(t.Context(), mainKey, contract("second"))
	is(t, err, sandbox.ErrConfigurationChanged, `"second"`, `"first"`, "package router")

	// A reset by the router does not end the contract, a disposal does.
	err = r.WithSandbox(t.Context(), mainKey, contract("first"), running(t, `print "x"`, "x"))
	isNil(t, "WithSandbox", err)
	_, err = r.Acquire(t.Context(), mainKey, contract("second"))
	is(t, err, sandbox.ErrConfigurationChanged)
	acquire(t, r, contract("first"))
	isNil(t, "DisposeKind", r.DisposeKind(t.Context(), mainKey, "python", "", 0))
	acquire(t, r, contract("second"))
}

// forgetful changes specs on their way to the backend.
type forgetful struct {
	*fake
	change func(sandbox.Spec) sandbox.Spec
}

func (b *forgetful) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return b.fake.Acquire(ctx, key, b.change(spec))
}

type nameless struct{ sandbox.Sandbox }

func (nameless) ID() string { return "" }

func TestASandboxThatBreaksTheProtocolIsDisposedOf(t *testing.T) {
	for name, row := range map[string]struct {
		backend *fake
		spoil   func(sandbox.Sandbox) sandbox.Sandbox
		says    string
		ops     string
	}{
		"no sandbox": {snapshots(), func(sandbox.Sandbox) sandbox.Sandbox { return nil }, "no sandbox", "acquire dispose"},
		"no id":      {snapshots(), func(s sandbox.Sandbox) sandbox.Sandbox { return nameless{s} }, "without an id", "acquire dispose"},
		"a declared capability is missing": {
			newFake("memory", sandbox.CapReclaim), func(s sandbox.Sandbox) sandbox.Sandbox { return s }, "reclaim", "acquire dispose(id)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := row.backend
			b.spoil = row.spoil
			r := newRouter(t, lenient(b))
			_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
			is(t, err, sandbox.ErrInternal, "backend memory", row.says)
			b.wantOps(t, row.ops)
			if left := b.Registered(); left != 0 {
				t.Errorf("%d sandboxes are left", left)
			}
			isNil(t, "Unclean", r.Unclean(mainKey))

			b.Script(sandboxtest.OpDispose, failing(unreachable))
			_, err = r.Acquire(t.Context(), mainKey, pythonSpec)
			is(t, err, sandbox.ErrInternal, "unreachable")
			is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
		})
	}
}

func TestAKeyThatBecomesUncleanDuringTheCreateGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpAcquire, held(gate))
		acquired := make(chan error)
		go func() {
			_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
			acquired <- err
		}()
		<-gate.Entered()
		r.MarkUnclean(mainKey, sandbox.DisposeOptions{Kind: "other"}, errors.New("seen by the host"))
		gate.Release()
		is(t, <-acquired, sandbox.ErrUnclean, "seen by the host")
		b.wantOps(t, "acquire dispose(id)")
		if left := b.Registered(); left != 0 {
			t.Errorf("%d sandboxes are left", left)
		}
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
	})
}

func TestAKeyThatBecomesUncleanDuringTheAdoptionGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpReset, held(gate))
		acquired := make(chan error)
		go func() {
			_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
			acquired <- err
		}()
		<-gate.Entered()
		r.MarkUnclean(mainKey, sandbox.DisposeOptions{Kind: "other"}, errors.New("seen by the host"))
		gate.Release()
		is(t, <-acquired, sandbox.ErrUnclean, "seen by the host")
		b.wantOps(t, "acquire reset dispose(id)")
	})
}

func TestConcurrentAcquiresAdoptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpReset, held(gate))
		var wg sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			wg.Go(func() {
				s, err := r.Acquire(t.Context(), mainKey, pythonSpec)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = s.ID()
			})
		}
		synctest.Wait()
		if n := b.Count(sandboxtest.OpAcquire); n != 1 {
			t.Errorf("during the adoption the backend got %d acquires", n)
		}
		gate.Release()
		wg.Wait()
		if n := b.Count(sandboxtest.OpReset); n != 1 {
			t.Errorf("%d resets, want one", n)
		}
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("the acquires gave different generations: %q", ids)
		}
	})
}

func TestWhoGivesUpDuringAnAdoptionLeavesItToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpReset, held(gate))
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan error)
		go func() {
			_, err := r.Acquire(ctx, mainKey, pythonSpec)
			acquired <- err
		}()
		<-gate.Entered()
		cancel()
		is(t, <-acquired, context.Canceled)
		isNil(t, "Unclean", r.Unclean(mainKey))
		if known := r.Known(); known != 0 {
			t.Errorf("the router knows %d sandboxes", known)
		}
		acquire(t, r, pythonSpec)
		b.wantOps(t, "acquire reset acquire reset")
	})
}

func TestAnAcquireWaitsForItsTurnOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		config := lenient(b)
		config.QueueTimeout = time.Minute
		r := newRouter(t, config)
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpAcquire, held(gate))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.Acquire(t.Context(), mainKey, pythonSpec) })
		<-gate.Entered()

		_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
		is(t, err, sandbox.ErrQueuedTimeout)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.Acquire(ctx, mainKey, pythonSpec)
		is(t, err, sandbox.ErrCanceled)
		if !sandbox.Usable(err) {
			t.Error("the queue cost a sandbox")
		}
		gate.Release()
		wg.Wait()
		b.wantOps(t, "acquire reset")
	})
}

func TestABackendThatHandsOutWhatItDisposedOfIsNotTrusted(t *testing.T) {
	b := newFake("memory")
	fixed := &sameAgain{id: "again"}
	b.spoil = func(s sandbox.Sandbox) sandbox.Sandbox { fixed.Sandbox = s; return fixed }
	r := newRouter(t, lenient(b))
	_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
	is(t, err, sandbox.ErrUnclean, "handed out again")
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
}

type sameAgain struct {
	sandbox.Sandbox
	id string
}

func (s *sameAgain) ID() string { return s.id }

// watched is a backend that lists what the router has let in.
type watched struct {
	*fake
	mu  sync.Mutex
	log []string
}

func (b *watched) Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf("in %s %s %t", key, spec.Kind, s.ID() != ""))
}

func (b *watched) Refused(key sandbox.Key, kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf("out %s %s", key, kind))
}

func TestABackendLearnsWhichOfItsSandboxesWereLetIn(t *testing.T) {
	b := &watched{fake: snapshots()}
	r := newRouter(t, lenient(b))
	acquire(t, r, contract("a")) // in
	_, err := r.Acquire(t.Context(), mainKey, contract("b"))
	is(t, err, sandbox.ErrConfigurationChanged) // out
	_, err = r.Acquire(t.Context(), mainKey, sandbox.Spec{})
	is(t, err, sandbox.ErrInvalid) // the backend was not asked
	err = r.WithSandbox(t.Context(), mainKey, contract("a"), running(t, `print "x"`, "x"))
	isNil(t, "WithSandbox", err) // in
	want := []string{"in tenant/thread/agent python true", "out tenant/thread/agent python", "in tenant/thread/agent python true"}
	if !slices.Equal(b.log, want) {
		t.Errorf("the backend heard %q, want %q", b.log, want)
	}
}

var _ router.AdmissionWatcher = (*watched)(nil)

func TestWhoWaitedForAnAcquireThatLeftTheKeyUncleanIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake("memory")
		r := newRouter(t, lenient(b))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDispose, sandboxtest.Step{Gate: gate, Err: unreachable})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
				is(t, err, sandbox.ErrUnclean, "scripted")
			})
		}
		synctest.Wait()
		gate.Release()
		wg.Wait()
		b.wantOps(t, "acquire dispose(id)")
	})
}
