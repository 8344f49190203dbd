package router_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func kindSpec(kind string) sandbox.Spec {
	spec := pythonSpec
	spec.Kind = kind
	return spec
}

// hangs is a step that no disposal survives.
func hangs(t *testing.T) sandboxtest.Step {
	gate := sandboxtest.NewGate()
	t.Cleanup(gate.Release)
	return held(gate)
}

func TestOnlyADisposalOfOneGenerationLeavesAKeyUnclean(t *testing.T) {
	byID := func(r *router.Router, s sandbox.Sandbox) error {
		return r.DisposeKind(context.Background(), mainKey, "python", s.ID(), time.Second)
	}
	byKind := func(r *router.Router, _ sandbox.Sandbox) error {
		return r.DisposeKind(context.Background(), mainKey, "python", "", time.Second)
	}
	whole := func(r *router.Router, _ sandbox.Sandbox) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.Dispose(ctx, mainKey)
	}
	stale := func(r *router.Router, _ sandbox.Sandbox) error {
		return r.DisposeKind(context.Background(), mainKey, "python", "an older one", time.Second)
	}
	canceled := func(r *router.Router, s sandbox.Sandbox) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return r.DisposeKind(ctx, mainKey, "python", s.ID(), time.Second)
	}
	for name, row := range map[string]struct {
		policy  router.ReclaimPolicy
		step    func(t *testing.T) sandboxtest.Step
		dispose func(*router.Router, sandbox.Sandbox) error
		code    string // of the failure; empty for none
		left    int
		unclean bool
	}{
		"by id":                         {dispose: byID},
		"by kind":                       {dispose: byKind},
		"all of the key":                {dispose: whole},
		"by an id that is gone":         {dispose: stale, left: 1},
		"by id, failing":                {step: fails, dispose: byID, code: "unreachable", left: 1, unclean: true},
		"by id, failing, keys are kept": {policy: router.ReclaimKeep, step: fails, dispose: byID, code: "unreachable", left: 1},
		"by id, hanging":                {step: hangs, dispose: byID, code: "timeout", left: 1, unclean: true},
		"by id, given up":               {dispose: canceled, code: "unknown", left: 1, unclean: true},
		"by kind, failing":              {step: fails, dispose: byKind, code: "unreachable", left: 1},
		"by kind, hanging":              {step: hangs, dispose: byKind, code: "timeout", left: 1},
		"all of the key, failing":       {step: fails, dispose: whole, code: "unreachable", left: 1},
		"all of the key, hanging":       {step: hangs, dispose: whole, code: "timeout", left: 1},
		"an error without a code":       {step: failsOddly, dispose: byID, code: "unknown", left: 1, unclean: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := snapshots()
				config := lenient(b)
				config.Reclaim.Policy = row.policy
				r := newRouter(t, config)
				s := acquire(t, r, pythonSpec)
				if row.step != nil {
					b.Script(sandboxtest.OpDispose, row.step(t))
				}
				err := row.dispose(r, s)
				if row.code == "" {
					isNil(t, "the disposal", err)
				} else if code := disposalFailure(t, err).Code; code.String() != row.code {
					t.Errorf("the failure is %s, want %s", code, row.code)
				}
				if left := b.Registered(); left != row.left {
					t.Errorf("%d sandboxes are left, want %d", left, row.left)
				}
				_, err = r.Acquire(t.Context(), mainKey, pythonSpec)
				if row.unclean {
					is(t, err, sandbox.ErrUnclean, row.code)
					// Trying again by the same id is enough.
					isNil(t, "again", r.DisposeKind(t.Context(), mainKey, "python", s.ID(), 0))
					_, err = r.Acquire(t.Context(), mainKey, pythonSpec)
				}
				isNil(t, "Acquire", err)
			})
		})
	}
}

func fails(*testing.T) sandboxtest.Step      { return failing(unreachable) }
func failsOddly(*testing.T) sandboxtest.Step { return failing(errors.New("odd")) }

func TestWhatMakesAKeyCleanAgain(t *testing.T) {
	gone := func(d interface{ Err() error }) error { return d.Err() }
	for name, row := range map[string]struct {
		by   func(r *router.Router, id string) error
		want bool
	}{
		"trying everything again": {func(r *router.Router, _ string) error {
			return r.DisposeUnclean(context.Background(), mainKey, sandbox.DisposeOptions{}, 0)
		}, true},
		"trying this kind again": {func(r *router.Router, _ string) error {
			return r.DisposeUnclean(context.Background(), mainKey, sandbox.DisposeOptions{Kind: "python"}, 0)
		}, true},
		"trying this one again": {func(r *router.Router, id string) error {
			return r.DisposeKind(context.Background(), mainKey, "python", id, 0)
		}, true},
		"disposing of the kind": {func(r *router.Router, _ string) error {
			return r.DisposeKind(context.Background(), mainKey, "python", "", 0)
		}, true},
		"disposing of the key": {func(r *router.Router, _ string) error { return r.Dispose(context.Background(), mainKey) }, true},
		"purging the conversation": {func(r *router.Router, _ string) error {
			return gone(r.DisposeScope(context.Background(), mainKey.Scope, mainKey.ThreadID))
		}, true},
		"not another kind": {func(r *router.Router, _ string) error {
			return r.DisposeKind(context.Background(), mainKey, "other", "", 0)
		}, false},
		"not another generation": {func(r *router.Router, _ string) error {
			return r.DisposeKind(context.Background(), mainKey, "python", "older", 0)
		}, false},
		"not the purge of another": {func(r *router.Router, _ string) error {
			return gone(r.DisposeScope(context.Background(), mainKey.Scope, "other"))
		}, false},
		"not what a call's key selects": {func(r *router.Router, _ string) error { return r.DisposeCall(context.Background(), callKey("1"), 0) }, false},
		"not trying another kind, in words": {func(r *router.Router, _ string) error {
			err := r.DisposeUnclean(context.Background(), mainKey, sandbox.DisposeOptions{Kind: "other"}, 0)
			if !errors.Is(err, sandbox.ErrUnclean) {
				return errors.New("the key is said to be clean")
			}
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := snapshots()
			r := newRouter(t, lenient(b))
			s := acquire(t, r, pythonSpec)
			b.Script(sandboxtest.OpDispose, failing(unreachable))
			if r.DisposeKind(t.Context(), mainKey, "python", s.ID(), 0) == nil {
				t.Fatal("the disposal did not fail")
			}
			isNil(t, "the disposal", row.by(r, s.ID()))
			if err := r.Unclean(mainKey); (err == nil) != row.want {
				t.Errorf("Unclean = %v", err)
			}
		})
	}
}

func TestAllThatKeepsAKeyUncleanMustBeGone(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	var ids []string
	b.Always(sandboxtest.OpDispose, failing(unreachable))
	for _, kind := range []string{"one", "two"} {
		ids = append(ids, acquire(t, r, kindSpec(kind)).ID())
	}
	for i, kind := range []string{"one", "two"} {
		if r.DisposeKind(t.Context(), mainKey, kind, ids[i], 0) == nil {
			t.Fatal("the disposal did not fail")
		}
	}
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "memory: scripted; memory: scripted")
	b.Always(sandboxtest.OpDispose, sandboxtest.Step{})
	isNil(t, "one", r.DisposeKind(t.Context(), mainKey, "one", ids[0], 0))
	is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
	isNil(t, "all", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
	isNil(t, "Unclean", r.Unclean(mainKey))
}

func TestAMarkThatIsNewerThanADisposalSurvivesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		acquire(t, r, pythonSpec)
		r.MarkUnclean(mainKey, sandbox.DisposeOptions{}, errors.New("first"))
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDispose, held(gate))
		disposed := make(chan error)
		go func() { disposed <- r.Dispose(t.Context(), mainKey) }()
		<-gate.Entered()
		r.MarkUnclean(mainKey, sandbox.DisposeOptions{}, errors.New("second"))
		gate.Release()
		isNil(t, "Dispose", <-disposed)
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "second")
		r.MarkUnclean(mainKey, sandbox.DisposeOptions{}, nil) // knows less
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "second")
		isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
		isNil(t, "Unclean", r.Unclean(mainKey))
	})
}

func TestAKeyIsRefusedWhileItsCleanupByTheHostRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			policy  router.ReclaimPolicy
			refused bool
		}{
			"dispose": {router.ReclaimDispose, true},
			"keep":    {router.ReclaimKeep, false},
		} {
			b := snapshots()
			config := lenient(b)
			config.Reclaim.Policy = row.policy
			r := newRouter(t, config)
			acquire(t, r, pythonSpec)
			gate := sandboxtest.NewGate()
			b.Script(sandboxtest.OpDispose, held(gate))
			disposed := make(chan error)
			go func() { disposed <- r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0) }()
			<-gate.Entered()
			if err := r.Unclean(mainKey); (err != nil) != row.refused {
				t.Errorf("%s: Unclean = %v", name, err)
			}
			gate.Release()
			isNil(t, name, <-disposed)
			isNil(t, name, r.Unclean(mainKey))
		}
	})
}

func TestDisposalsOfOneKeyRunOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		acquire(t, r, pythonSpec)
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDispose, held(gate))
		var wg sync.WaitGroup
		wg.Go(func() { isNil(t, "the first", r.Dispose(t.Context(), mainKey)) })
		<-gate.Entered()
		wg.Go(func() { isNil(t, "the second", r.Dispose(t.Context(), mainKey)) })
		hasty := disposalFailure(t, r.DisposeKind(t.Context(), mainKey, "python", "", time.Second))
		if hasty.Code != sandbox.DisposalTimeout {
			t.Errorf("one that waited too long fails as %v", hasty)
		}
		if n := b.Count(sandboxtest.OpDispose); n != 1 {
			t.Errorf("the backend got %d disposals at once", n)
		}
		gate.Release()
		wg.Wait()
		b.wantOps(t, "acquire reset dispose dispose")
	})
}

func TestADisposalOfOneGenerationAsksTheBackendThatHandedItOut(t *testing.T) {
	one, two := newFake("one", sandbox.CapSnapshot), newFake("two", sandbox.CapSnapshot, sandbox.CapFilesIn)
	two.Backend = sandboxtest.New(sandboxtest.Config{Name: "two", Isolation: sandbox.IsolationMicroVM, Declarations: ptr(declared(sandbox.CapSnapshot))})
	r := newRouter(t, router.Config{Backends: []sandbox.Backend{one, two}, Selected: "two"})
	s := acquire(t, r, pythonSpec)
	isNil(t, "by id", r.DisposeKind(t.Context(), mainKey, "python", s.ID(), 0))
	one.wantOps(t, "")
	two.wantOps(t, "acquire reset dispose(id)")
	// An id that nobody knows, and everything else, is asked of all.
	isNil(t, "by an unknown id", r.DisposeKind(t.Context(), mainKey, "python", "unknown", 0))
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
	one.wantOps(t, "dispose(id) dispose")
}

func TestWhoeverOwesTheEndOfAGenerationIsAskedAgain(t *testing.T) {
	one, two := newFake("one"), newFake("two")
	r := newRouter(t, router.Config{Backends: []sandbox.Backend{one, two}})
	s, err := two.Acquire(t.Context(), mainKey, pythonSpec) // not by the router
	if err != nil {
		t.Fatal(err)
	}
	two.Script(sandboxtest.OpDispose, failing(unreachable))
	disposed := disposalFailure(t, r.DisposeKind(t.Context(), mainKey, "python", s.ID(), 0))
	if disposed.Detail != "two: scripted" {
		t.Errorf("DisposeKind = %v", disposed)
	}
	isNil(t, "again", r.DisposeKind(t.Context(), mainKey, "python", s.ID(), 0))
	one.wantOps(t, "dispose(id)")
	two.wantOps(t, "acquire dispose(id) dispose(id)")
	isNil(t, "Unclean", r.Unclean(mainKey))
}

func ptr[T any](value T) *T { return &value }

func TestADisposalAsksEveryBackendAndFoldsWhatTheySay(t *testing.T) {
	one, two := newFake("one"), newFake("two")
	r := newRouter(t, router.Config{Backends: []sandbox.Backend{one, two}})
	acquireFrom(t, one, mainKey)
	acquireFrom(t, two, mainKey)
	one.Script(sandboxtest.OpDispose, failing(&sandbox.DisposalFailure{Code: sandbox.DisposalRefused, Detail: "no"}))
	two.Script(sandboxtest.OpDispose, failing(unreachable))
	failure := disposalFailure(t, r.Dispose(t.Context(), mainKey))
	if failure.Code != sandbox.DisposalUnreachable || failure.Detail != "one: no; two: scripted" {
		t.Errorf("Dispose = %v", failure)
	}
	isNil(t, "again", r.Dispose(t.Context(), mainKey))
}

func acquireFrom(t *testing.T, b sandbox.Backend, key sandbox.Key) {
	t.Helper()
	if _, err := b.Acquire(t.Context(), key, pythonSpec); err != nil {
		t.Fatal(err)
	}
}

func TestAPurgeReachesEveryBackendAndCounts(t *testing.T) {
	one, two := newFake("one"), newFake("two")
	observer := new(recorder)
	r := newRouter(t, router.Config{Backends: []sandbox.Backend{one, two}, Observer: observer})
	agent, other := mainKey, mainKey
	agent.AgentID, other.ThreadID = "second", "other"
	for _, key := range []sandbox.Key{mainKey, agent, other} {
		acquireFrom(t, one, key)
	}
	acquireFrom(t, two, mainKey)
	two.Script(sandboxtest.OpDisposeScope, failing(&sandbox.DisposalFailure{Code: sandbox.DisposalUnlisted, Detail: "no list"}))
	purge := r.DisposeScope(t.Context(), mainKey.Scope, mainKey.ThreadID)
	if purge.Disposed != 2 || purge.Undisposed == nil || purge.Undisposed.Error() != "unlisted: two: no list" {
		t.Errorf("the purge is %+v", purge)
	}
	var told []string
	for _, event := range observer.take() {
		if scope, ok := event.(router.ScopeDisposed); ok {
			told = append(told, scope.Backend)
		}
	}
	if len(told) != 2 {
		t.Errorf("the observer heard of %q", told)
	}
	purge = r.DisposeScope(t.Context(), mainKey.Scope, mainKey.ThreadID)
	if purge.Disposed != 1 || purge.Undisposed != nil {
		t.Errorf("the second purge is %+v", purge)
	}
	if left := one.Registered() + two.Registered(); left != 1 {
		t.Errorf("%d sandboxes are left, want the other conversation's", left)
	}
}

func TestAPurgeForgetsWhatItReached(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	acquire(t, r, pythonSpec)
	purge := r.DisposeScope(t.Context(), mainKey.Scope, mainKey.ThreadID)
	if purge.Disposed != 1 || r.Known() != 0 {
		t.Errorf("the purge is %+v, and the router knows %d sandboxes", purge, r.Known())
	}
}

func TestAConversationIsPurgedHoweverItEnds(t *testing.T) {
	mine := errors.New("mine")
	b := snapshots()
	r := newRouter(t, lenient(b))
	ctx, cancel := context.WithCancel(t.Context())
	purge, err := r.WithScope(ctx, mainKey.Scope, mainKey.ThreadID, func(context.Context) error {
		acquire(t, r, pythonSpec)
		cancel()
		return mine
	})
	if err != mine || purge.Disposed != 1 || purge.Undisposed != nil {
		t.Errorf("WithScope = %+v, %v", purge, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = r.WithScope(t.Context(), mainKey.Scope, mainKey.ThreadID, func(context.Context) error {
			acquire(t, r, pythonSpec)
			panic("scripted")
		})
	}()
	if left := b.Registered(); left != 0 {
		t.Errorf("%d sandboxes are left", left)
	}
}

func TestTheSandboxesOfACallAreDisposedOfWhereCallsAreServed(t *testing.T) {
	conversations := declared()
	conversations.IsolationScopes = sandbox.Set[sandbox.IsolationScope]{}
	shared := newFakeWith("shared", sandbox.IsolationMicroVM, conversations)
	calls := newFake("calls")
	perCall := pythonSpec
	perCall.IsolationScope = sandbox.ScopeCall

	r := newRouter(t, router.Config{Backends: []sandbox.Backend{shared, calls}, Selection: router.SelectPerSpec})
	if _, err := r.Acquire(t.Context(), callKey("1"), perCall); err != nil {
		t.Fatal(err)
	}
	calls.Script(sandboxtest.OpDispose, failing(unreachable))
	if failure := disposalFailure(t, r.DisposeCall(t.Context(), callKey("1"), 0)); failure.Detail != "calls: scripted" {
		t.Errorf("DisposeCall = %v", failure)
	}
	isNil(t, "Unclean", r.Unclean(callKey("1")))
	if known := r.Known(); known != 0 {
		t.Errorf("the router remembers %d sandboxes of calls that are over", known)
	}
	isNil(t, "DisposeCall", r.DisposeCall(t.Context(), callKey("1"), 0))
	shared.wantOps(t, "")
	calls.wantOps(t, "acquire dispose dispose")

	r = newRouter(t, lenient(shared))
	is(t, r.DisposeCall(t.Context(), callKey("1"), 0), sandbox.ErrScopeNotEnforced, "no backend serves single calls")
	shared.wantOps(t, "")
}

func TestDisposalsRefuseWhatTheyCannotMean(t *testing.T) {
	b := snapshots()
	r := newRouter(t, lenient(b))
	all := sandbox.DisposeOptions{}
	is(t, r.DisposeKind(t.Context(), mainKey, "", "", 0), sandbox.ErrInvalid, "kind")
	is(t, r.DisposeKind(t.Context(), mainKey, "python", "", -1), sandbox.ErrInvalid, "timeout")
	is(t, r.DisposeCall(t.Context(), mainKey, 0), sandbox.ErrInvalid, "key.call_id")
	is(t, r.DisposeCall(t.Context(), callKey("1"), -1), sandbox.ErrInvalid, "timeout")
	is(t, r.DisposeUnclean(t.Context(), callKey("1"), all, 0), sandbox.ErrInvalid, "key.call_id")
	is(t, r.DisposeUnclean(t.Context(), mainKey, all, -1), sandbox.ErrInvalid, "timeout")
	r.MarkUnclean(callKey("1"), all, nil)
	isNil(t, "a call's key", r.Unclean(callKey("1")))
	b.wantOps(t, "")
}

func TestADisposalThatDoesNotGetItsTurnLeavesTheKeyUnclean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		r := newRouter(t, lenient(b))
		call, _ := enter(t, r, mainKey, pythonSpec)
		call.Condemn(errors.New("bad"))
		stuck := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDispose, held(stuck))
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Dispose(t.Context(), mainKey) })
		<-stuck.Entered()
		var failure *router.CleanupError
		if err := call.Finish(t.Context()); !errors.As(err, &failure) || failure.Disposal.Code != sandbox.DisposalTimeout {
			t.Errorf("Finish = %v, want a time-out", err)
		}
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean, "wait for another disposal of the key")
		stuck.Release()
		wg.Wait()
		// The disposal that was ahead began before the mark.
		is(t, r.Unclean(mainKey), sandbox.ErrUnclean)
		isNil(t, "DisposeUnclean", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
		isNil(t, "Unclean", r.Unclean(mainKey))
	})
}
