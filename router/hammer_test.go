package router_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// Many calls, disposals and cancellations on few keys: no call ever finds what
// another left, one that wants its sandbox alone is alone, and in the end
// nothing is left.
func TestManyCallsAtOnceNeverMeet(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	const workers, rounds, threads = 16, 60, 3
	b := snapshots()
	b.vouches = true
	config := lenient(b)
	var cleanups atomic.Int64
	config.Reclaim.OnFailure = func(context.Context, *router.CleanupError) { cleanups.Add(1) }
	config.Observer = new(recorder)
	r := newRouter(t, config)
	var alone [threads]atomic.Int64

	work := func(random *rand.Rand, name string) {
		thread := random.IntN(threads)
		key := mainKey
		key.ThreadID = fmt.Sprint("thread-", thread)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		switch random.IntN(8) {
		case 0:
			go cancel()
		case 1:
			b.Script(sandboxtest.OpReset, failing(errors.New("scripted")))
		case 2:
			_ = r.Dispose(ctx, key)
			return
		case 3:
			_ = r.DisposeUnclean(ctx, key, sandbox.DisposeOptions{}, 0)
			return
		case 4:
			b.Script(sandboxtest.OpDispose, failing(unreachable))
		}
		spec := exclusive
		err := r.WithSandbox(ctx, key, spec, func(ctx context.Context, s sandbox.Sandbox) error {
			if n := alone[thread].Add(1); n != 1 {
				t.Errorf("%d calls are in a sandbox that each wants alone", n)
			}
			defer alone[thread].Add(-1)
			result, err := s.RunCode(ctx, "get \"left\"\n", time.Minute)
			if err == nil && result.ExitCode == 0 {
				t.Errorf("%s finds what %s left", name, result.Stdout)
			}
			_, err = s.RunCode(ctx, fmt.Sprintf("set \"left\" %q\n", name), time.Minute)
			return err
		})
		known := errors.Is(err, sandbox.ErrUnclean) || errors.Is(err, sandbox.ErrWorkerLost) ||
			errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrUnavailable)
		if err != nil && !known {
			t.Errorf("%s: %v", name, err)
		}
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for round := range rounds {
				work(random, fmt.Sprintf("%d.%d", worker, round))
			}
		})
	}
	wg.Wait()

	b.Always(sandboxtest.OpDispose, sandboxtest.Step{})
	for left := workers * rounds; left > 0 && b.Registered() > 0; left-- {
		for thread := range threads {
			r.DisposeScope(t.Context(), mainKey.Scope, fmt.Sprint("thread-", thread))
		}
	}
	if left, known := b.Registered(), r.Known(); left != 0 || known != 0 {
		t.Errorf("%d sandboxes are left, and the router knows %d", left, known)
	}
	if keys := r.UncleanKeys(); len(keys) != 0 {
		t.Errorf("unclean are %v", keys)
	}
	// The cancels above may still be on their way.
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines before, %d now", goroutines, now)
	}
	if cleanups.Load() == 0 {
		t.Error("no cleanup failed: the test does not test what it should")
	}
}

// Calls that share a sandbox use it at the same time, and nobody cleans it
// under them.
func TestManyCallsThatShareAreNotCleanedUnderEachOther(t *testing.T) {
	b := snapshots()
	b.vouches = true
	r := newRouter(t, lenient(b))
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for round := range 50 {
				name := fmt.Sprintf("%d.%d", worker, round)
				err := r.WithSandbox(t.Context(), mainKey, pythonSpec, func(ctx context.Context, s sandbox.Sandbox) error {
					id := s.ID()
					run(t, s, fmt.Sprintf("set %q %q\n", name, name), "")
					runtime.Gosched()
					run(t, s, fmt.Sprintf("get %q\n", name), name)
					if s.ID() != id {
						t.Errorf("the sandbox of %s was reset in its call", name)
					}
					return nil
				})
				isNil(t, name, err)
			}
		})
	}
	wg.Wait()
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))
}
