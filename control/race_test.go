package control_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// contested is a host whose calls and operators race for its sandboxes.
type contested struct {
	t     *testing.T
	boxes *backend
	fence fence.Fence
	calls *fence.Calls
	host  *control.Host
}

func newContested(t *testing.T, cleanup sandbox.Cleanup) *contested {
	t.Helper()
	c := &contested{t: t, boxes: newBackend()}
	monitor := control.NewMonitor(c.boxes)
	r, err := router.New(router.Config{Backends: []sandbox.Backend{monitor}, MinCleanup: cleanup})
	if err != nil {
		t.Fatal(err)
	}
	c.calls = c.fence.Calls(r)
	c.host, err = control.NewHost(control.HostConfig{
		SourceID: "s", Monitors: []*control.Monitor{monitor}, Router: r, Quiesce: c.fence.Hold,
		Purge: func(ctx context.Context, scope, thread string) (sandbox.ScopePurge, error) {
			release, err := c.fence.HoldThread(ctx, scope, thread)
			if err != nil {
				return sandbox.ScopePurge{}, err
			}
			defer release()
			return r.DisposeScope(ctx, scope, thread), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// call runs one program, whose caller may give up at any time.
func (c *contested) call(thread string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
	defer cancel()
	key := sandbox.Key{Scope: "s", ThreadID: thread, AgentID: "agent"}
	err := c.calls.WithSandbox(ctx, key, testSpec("python"), func(ctx context.Context, s sandbox.Sandbox) error {
		alive := func(when string) {
			if s.(*box).Liveness().State == liveness.Exited {
				c.t.Errorf("a call has a sandbox that is gone, %s", when)
			}
		}
		alive("as it begins")
		program := time.NewTimer(time.Duration(rand.IntN(1000)) * time.Microsecond)
		defer program.Stop()
		select {
		case <-program.C:
		case <-ctx.Done():
		}
		alive("as it ends")
		return ctx.Err()
	})
	allowed := []error{sandbox.ErrDisposed, sandbox.ErrCanceled, sandbox.ErrQueuedTimeout, context.DeadlineExceeded, context.Canceled}
	if err != nil && !slices.ContainsFunc(allowed, func(class error) bool { return errors.Is(err, class) }) {
		c.t.Errorf("a call: %v", err)
	}
}

// operate removes everything that is listed, each thing the one way or the other.
func (c *contested) operate() (disposed int) {
	for _, r := range inventory(c.t, c.host) {
		if rand.IntN(4) == 0 {
			// Others may begin as soon as it is done, and then something remains.
			if _, err := c.host.Purge(c.t.Context(), r.Scope, r.ThreadID, patience); err != nil {
				c.t.Errorf("Purge: %v", err)
			}
			continue
		}
		result, err := c.host.Dispose(c.t.Context(), r.InstanceID, patience)
		if err != nil || result.Status == control.DisposalFailed {
			c.t.Errorf("Dispose = %+v, %v", result, err)
		}
		if result.Status != control.Disposed {
			continue
		}
		disposed++
		if slices.ContainsFunc(c.boxes.boxes(), func(b *box) bool { return b.ID() == r.InstanceID }) {
			c.t.Error("what was disposed of is there")
		}
	}
	return disposed
}

// Calls acquire, run, give up and are cleaned up after, while operators dispose and
// purge: no call loses its sandbox while it runs, and what is said to be gone is.
func TestOperatorsAndCallsThatRaceHurtNobody(t *testing.T) {
	for _, cleanup := range []sandbox.Cleanup{sandbox.CleanupReset, sandbox.CleanupDispose} {
		t.Run(cleanup.String(), func(t *testing.T) {
			t.Parallel()
			c := newContested(t, cleanup)
			var callers, operators sync.WaitGroup
			var over atomic.Bool
			for i := range 6 {
				callers.Go(func() {
					for range 40 {
						c.call(fmt.Sprint("thread-", i%2))
					}
				})
			}
			var disposed atomic.Int64
			for range 3 {
				operators.Go(func() {
					for !over.Load() {
						disposed.Add(int64(c.operate()))
					}
				})
			}
			callers.Wait()
			over.Store(true)
			operators.Wait()
			if disposed.Load() == 0 {
				t.Error("the operators disposed of nothing")
			}
			for _, thread := range []string{"thread-0", "thread-1"} {
				if result, err := c.host.Purge(t.Context(), "s", thread, patience); err != nil || result.Status != control.Purged {
					t.Errorf("at the end: %+v, %v", result, err)
				}
			}
			if left := c.boxes.boxes(); len(left) != 0 {
				t.Errorf("%d sandboxes are left", len(left))
			}
		})
	}
}
