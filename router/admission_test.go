package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// exclusive is pythonSpec for one call at a time.
var exclusive = func() sandbox.Spec {
	spec := pythonSpec
	spec.ExclusiveAdmission = true
	return spec
}()

// line is calls that enter and end as a test says, and the order in which they
// were let in.
type line struct {
	t      *testing.T
	router *router.Router
	wg     sync.WaitGroup

	mu sync.Mutex
	in []string
	// ends has how to end each call, by name.
	ends map[string]chan struct{}
	errs map[string]error
}

func newLine(t *testing.T, r *router.Router) *line {
	return &line{t: t, router: r, ends: make(map[string]chan struct{}), errs: make(map[string]error)}
}

// come has a call come, hold its sandbox until end, and finish. It returns when
// the call is in or waits.
func (l *line) come(ctx context.Context, name string, spec sandbox.Spec, options router.CallOptions) {
	end := make(chan struct{})
	l.mu.Lock()
	l.ends[name] = end
	l.mu.Unlock()
	l.wg.Go(func() {
		err := l.router.Serve(ctx, mainKey, spec, options, func(_ context.Context, s sandbox.Sandbox) error {
			run(l.t, s, fmt.Sprintf("print %q", name), name)
			l.mu.Lock()
			l.in = append(l.in, name)
			l.mu.Unlock()
			<-end
			return nil
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.errs[name] = err
	})
	synctest.Wait()
}

func (l *line) end(names ...string) {
	for _, name := range names {
		close(l.ends[name])
		synctest.Wait()
	}
}

func (l *line) wantIn(names string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Join(l.in, " "); got != names {
		l.t.Errorf("the calls came in as %q, want %q", got, names)
	}
}

// err is how a call ended.
func (l *line) err(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err, ended := l.errs[name]
	if !ended {
		l.t.Errorf("call %s has not ended", name)
	}
	return err
}

func TestExclusiveCallsAreServedOneAfterTheOtherInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		l := newLine(t, newRouter(t, lenient(b)))
		for _, name := range []string{"a", "b", "c"} {
			l.come(t.Context(), name, exclusive, router.CallOptions{})
		}
		l.wantIn("a")
		l.end("a")
		l.wantIn("a b")
		l.end("b", "c")
		l.wantIn("a b c")
		l.wg.Wait()
		b.wantOps(t, "acquire reset run_code reset acquire run_code reset acquire run_code reset")
	})
}

func TestCallsShareASandboxAndTheLastOneCleans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		l := newLine(t, newRouter(t, lenient(b)))
		l.come(t.Context(), "a", pythonSpec, router.CallOptions{})
		l.come(t.Context(), "b", pythonSpec, router.CallOptions{})
		l.wantIn("a b")
		l.end("a")
		isNil(t, "a", l.err("a"))
		// Something has to be cleaned now: nobody enters before that.
		l.come(t.Context(), "c", pythonSpec, router.CallOptions{})
		l.wantIn("a b")
		b.wantOps(t, "acquire reset run_code acquire run_code")
		l.end("b")
		l.wantIn("a b c")
		l.end("c")
		l.wg.Wait()
		b.wantOps(t, "acquire reset run_code acquire run_code reset acquire run_code reset")
	})
}

func TestACallThatWantsTheSandboxAloneKeepsItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake("memory", sandbox.CapSnapshot)
		b.vouches = true
		l := newLine(t, newRouter(t, lenient(b)))
		l.come(t.Context(), "a", pythonSpec, router.CallOptions{})
		l.come(t.Context(), "alone", pythonSpec, router.CallOptions{Exclusive: true})
		l.come(t.Context(), "b", pythonSpec, router.CallOptions{})
		l.come(t.Context(), "c", pythonSpec, router.CallOptions{})
		l.wantIn("a")
		l.end("a")
		l.wantIn("a alone")
		l.end("alone")
		if l.mu.Lock(); len(l.in) != 4 {
			t.Errorf("in are %q, want both that share", l.in)
		}
		l.mu.Unlock()
		l.end("b", "c")
		l.wg.Wait()
	})
}

func TestOtherKeysAndKindsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, lenient(snapshots()))
		call, err := r.Enter(t.Context(), mainKey, exclusive, router.CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kind, thread := exclusive, mainKey
		kind.Kind, thread.ThreadID = "other", "other"
		isNil(t, "another kind", r.WithSandbox(t.Context(), mainKey, kind, running(t, `print "x"`, "x")))
		isNil(t, "another thread", r.WithSandbox(t.Context(), thread, exclusive, running(t, `print "x"`, "x")))
		isNil(t, "Finish", call.Finish(t.Context()))
	})
}

func TestTheWaitIsBoundedForEachCallAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := lenient(snapshots())
		config.QueueTimeout = time.Minute
		l := newLine(t, newRouter(t, config))
		for _, name := range []string{"a", "b", "c"} {
			l.come(t.Context(), name, exclusive, router.CallOptions{})
		}
		l.come(t.Context(), "hasty", exclusive, router.CallOptions{QueueTimeout: time.Second})
		time.Sleep(50 * time.Second)
		is(t, l.err("hasty"), sandbox.ErrQueuedTimeout)
		if errors.Is(l.err("hasty"), sandbox.ErrTimeout) || !sandbox.Usable(l.err("hasty")) {
			t.Errorf("a wait that ran out is %v", l.err("hasty"))
		}
		l.end("a")
		time.Sleep(50 * time.Second) // 100 s in all, 50 for b
		l.end("b")
		l.wantIn("a b c")

		l.come(t.Context(), "d", exclusive, router.CallOptions{})
		time.Sleep(61 * time.Second) // c is stuck
		is(t, l.err("d"), sandbox.ErrQueuedTimeout, "nothing was started")
		is(t, l.err("d"), context.DeadlineExceeded)
		l.end("c")
		l.wg.Wait()
	})
}

func TestEachStepOfACleanupGivesThoseWhoWaitTheirPatienceAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		config := lenient(b)
		config.QueueTimeout, config.Reclaim.Timeout = time.Minute, 40*time.Second
		l := newLine(t, newRouter(t, config))
		first, s := enter(t, l.router, mainKey, exclusive)
		b.Script(sandboxtest.OpRunCode, failing(&sandbox.OpError{Op: "run_code", Class: sandbox.ErrMemory}))
		_, err := s.RunCode(t.Context(), "", 0)
		is(t, err, sandbox.ErrMemory)
		if _, err := first.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.come(t.Context(), "next", exclusive, router.CallOptions{})
		time.Sleep(50 * time.Second)
		// The lost sandbox has nothing to wait for. The other one is reset in
		// vain for 40 s, and then disposed of for 30.
		stuck, slow := sandboxtest.NewGate(), sandboxtest.NewGate()
		b.Script(sandboxtest.OpReset, held(stuck))
		b.Script(sandboxtest.OpDispose, held(slow))
		time.AfterFunc(70*time.Second, slow.Release)
		isNil(t, "Finish", first.Finish(t.Context()))
		synctest.Wait()
		l.wantIn("next")
		l.end("next")
		l.wg.Wait()
		isNil(t, "next", l.err("next"))
	})
}

func TestEachSandboxOfACleanupIsAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newFake("one", sandbox.CapSnapshot), newFake("two", sandbox.CapSnapshot, sandbox.CapFilesIn)
		withFiles := pythonSpec
		withFiles.Requires = withFiles.Requires.With(sandbox.CapFilesIn)
		two.spoil = func(s sandbox.Sandbox) sandbox.Sandbox { return filing{s} }
		config := lenient(one, two)
		config.Selection, config.QueueTimeout, config.Reclaim.Timeout = router.SelectPerSpec, time.Minute, 40*time.Second
		l := newLine(t, newRouter(t, config))
		a, _ := enter(t, l.router, mainKey, pythonSpec)
		b, _ := enter(t, l.router, mainKey, withFiles)
		isNil(t, "Finish", a.Finish(t.Context()))
		l.come(t.Context(), "next", pythonSpec, router.CallOptions{})
		for _, backend := range []*fake{one, two} {
			slow := sandboxtest.NewGate()
			backend.Script(sandboxtest.OpReset, held(slow))
			go func() {
				<-slow.Entered()
				time.Sleep(35 * time.Second)
				slow.Release()
			}()
		}
		isNil(t, "Finish", b.Finish(t.Context())) // takes 70 s
		synctest.Wait()
		l.wantIn("next")
		l.end("next")
		l.wg.Wait()
	})
}

// filing is a sandbox that takes files, in name.
type filing struct{ sandbox.Sandbox }

func (filing) WriteFile(context.Context, string, []byte) error { return nil }

func TestCallsThatShareAreCleanedByTheStrongestOfTheirRungs(t *testing.T) {
	strict := pythonSpec
	strict.MinCleanup = sandbox.CleanupDispose
	for name, specs := range map[string][]sandbox.Spec{
		"the strict one ends last":  {pythonSpec, strict},
		"the strict one ends first": {strict, pythonSpec},
	} {
		t.Run(name, func(t *testing.T) {
			b := snapshots()
			r := newRouter(t, lenient(b))
			first, _ := enter(t, r, mainKey, specs[0])
			last, _ := enter(t, r, mainKey, specs[1])
			isNil(t, "Finish", first.Finish(t.Context()))
			isNil(t, "Finish", last.Finish(t.Context()))
			b.wantOps(t, "acquire reset acquire dispose(id)")
		})
	}
}

func TestACallThatCondemnsASharedSandboxDoesSoForAll(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	first, _ := enter(t, r, mainKey, pythonSpec)
	last, _ := enter(t, r, mainKey, pythonSpec)
	last.Condemn(errors.New("bad"))
	isNil(t, "Finish", first.Finish(t.Context()))
	isNil(t, "Finish", last.Finish(t.Context()))
	b.wantOps(t, "acquire reset acquire dispose(id)")
}

func TestWhoGivesUpInTheQueueLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		l := newLine(t, newRouter(t, lenient(b)))
		l.come(t.Context(), "a", pythonSpec, router.CallOptions{})
		alone, giveUp := context.WithCancel(t.Context())
		l.come(alone, "alone", pythonSpec, router.CallOptions{Exclusive: true})
		l.come(t.Context(), "b", pythonSpec, router.CallOptions{})
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.come(late, "late", pythonSpec, router.CallOptions{Exclusive: true})
		l.wantIn("a")
		giveUp()
		synctest.Wait()
		is(t, l.err("alone"), sandbox.ErrCanceled)
		// What stood behind it fits now.
		l.wantIn("a b")
		time.Sleep(2 * time.Second)
		is(t, l.err("late"), sandbox.ErrQueuedTimeout)
		l.end("a", "b")
		l.wg.Wait()
		b.wantOps(t, "acquire reset run_code acquire run_code reset")
		if held := l.router.Held(); held != "" {
			t.Errorf("the router still holds %s", held)
		}
	})
}

func TestWhoHasGivenUpBeforeDoesNotEnter(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Enter(ctx, mainKey, pythonSpec, router.CallOptions{})
	is(t, err, sandbox.ErrCanceled)
	_, err = r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{QueueTimeout: -1})
	is(t, err, sandbox.ErrInvalid, "options.QueueTimeout")
	b.wantOps(t, "")
}

// endsLate is a context that ends at the very moment at which it is asked for
// the second time.
type endsLate struct {
	context.Context
	asked int
}

func (c *endsLate) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

func TestWhoGivesUpAtTheMomentOfEnteringLeavesNothing(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	_, err := r.Enter(&endsLate{Context: t.Context()}, mainKey, exclusive, router.CallOptions{})
	is(t, err, sandbox.ErrCanceled)
	isNil(t, "the next call", r.WithSandbox(t.Context(), mainKey, exclusive, running(t, `print "x"`, "x")))
}
