package fence_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// patience bounds a hang; nothing is expected to come near.
const patience = 20 * time.Second

var (
	key   = sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}
	other = sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "b"}
	far   = sandbox.Key{Scope: "s", ThreadID: "u", AgentID: "a"}
)

func wait[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("never happens: %s", what)
	}
	return v
}

func enter(t *testing.T, f *fence.Fence, key sandbox.Key) (context.Context, func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	inside, leave, err := f.Enter(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return inside, leave
}

func TestAHoldStopsTheCallsOfItsKeyAndWaitsForThem(t *testing.T) {
	for name, r := range map[string]struct {
		hold func(*fence.Fence, context.Context) (func(), error)
		// whether another agent of the conversation is stopped too
		widely bool
	}{
		"a key":          {func(f *fence.Fence, ctx context.Context) (func(), error) { return f.Hold(ctx, key) }, false},
		"a conversation": {func(f *fence.Fence, ctx context.Context) (func(), error) { return f.HoldThread(ctx, "s", "t") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var f fence.Fence
			inside, leave := enter(t, &f, key)
			second, leaveSecond := enter(t, &f, other)
			apart, _ := enter(t, &f, far)
			held := make(chan func(), 1)
			go func() {
				release, err := r.hold(&f, t.Context())
				if err != nil {
					t.Error(err)
				}
				held <- release
			}()
			wait(t, "the call is stopped", inside.Done())
			if !fence.Stopped(inside) || fence.Stopped(apart) || apart.Err() != nil {
				t.Errorf("stopped with %v, the other conversation's with %v", context.Cause(inside), context.Cause(apart))
			}
			if r.widely {
				wait(t, "the other agent's call is stopped", second.Done())
			} else if second.Err() != nil {
				t.Error("another agent's call is stopped")
			}
			select {
			case <-held:
				t.Error("held while a call is inside")
			default:
			}
			leave()
			leave()
			leaveSecond()
			release := wait(t, "the hold", held)

			ctx, cancel := context.WithCancel(t.Context())
			cancelled := make(chan error, 1)
			go func() { _, _, err := f.Enter(ctx, key); cancelled <- err }()
			admitted := make(chan func(), 1)
			go func() {
				inside, leave, err := f.Enter(t.Context(), key)
				if err != nil || inside.Err() != nil {
					t.Errorf("entered with %v", err)
				}
				admitted <- leave
			}()
			cancel()
			if err := wait(t, "who gives up", cancelled); !errors.Is(err, context.Canceled) {
				t.Errorf("who gives up gets %v", err)
			}
			enter(t, &f, far)
			select {
			case <-admitted:
				t.Error("a call entered what is held")
			default:
			}
			release()
			release()
			wait(t, "the call that waited", admitted)()
		})
	}
}

func TestWhoCannotWaitForACallHoldsNothing(t *testing.T) {
	var f fence.Fence
	inside, leave := enter(t, &f, key)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if release, err := f.Hold(ctx, key); !errors.Is(err, context.Canceled) || release != nil {
		t.Errorf("got %v", err)
	}
	if !fence.Stopped(inside) {
		t.Error("the call was not stopped")
	}
	leave()
	enter(t, &f, key)
}

func TestACallThatEndsByItselfWasNotStopped(t *testing.T) {
	var f fence.Fence
	inside, leave := enter(t, &f, key)
	leave()
	if inside.Err() == nil || fence.Stopped(inside) {
		t.Errorf("ended with %v", context.Cause(inside))
	}
	ctx, cancel := context.WithCancel(t.Context())
	inside, _, err := f.Enter(ctx, key)
	cancel()
	if err != nil || inside.Err() == nil || fence.Stopped(inside) {
		t.Errorf("ended with %v, %v", context.Cause(inside), err)
	}
	if _, _, err := f.Enter(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever has given up enters: %v", err)
	}
}

// However calls and holds fall together, none is inside of what somebody holds.
func TestNoCallIsInsideOfWhatIsHeld(t *testing.T) {
	var f fence.Fence
	var inside atomic.Int32
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 8 {
		group.Go(func() {
			for range 200 {
				_, leave, err := f.Enter(ctx, key)
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				inside.Add(-1)
				leave()
			}
		})
	}
	for range 4 {
		group.Go(func() {
			for range 100 {
				release, err := f.Hold(ctx, key)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Load(); n != 0 {
					t.Errorf("%d are inside", n)
				}
				release()
			}
		})
	}
	group.Wait()
}
