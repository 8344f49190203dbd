package sandboxtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func concurrencyRules() []rule {
	return []rule{
		{name: "runs of one sandbox take turns and keep their outputs apart", needs: needsRun, probe: func(f *fixture) {
			s := f.acquire()
			f.together(16, func(ctx context.Context, n int) error {
				return f.prints(ctx, s, fmt.Sprint("run ", n))
			})
		}},
		{name: "sandboxes at work at the same time do not mix", needs: needsRun, probe: func(f *fixture) {
			f.together(8, func(ctx context.Context, n int) error {
				key := mainKey()
				key.AgentID = fmt.Sprint("agent-", n)
				for range 3 {
					s, err := f.backend.Acquire(ctx, key, f.h.Spec)
					if err != nil {
						return err
					}
					mine := fmt.Sprint("value of ", n)
					if _, err := s.RunCode(ctx, f.p.Set("shared", mine), f.h.Patience); err != nil {
						return err
					}
					if result, err := s.RunCode(ctx, f.p.Get("shared"), f.h.Patience); err != nil || string(result.Stdout) != mine {
						return fmt.Errorf("the sandbox of %s says %q, %v; want %q", key, result.Stdout, err, mine)
					}
				}
				return nil
			})
			f.purged(mainKey(), 8)
		}},
		{name: "a storm of everything on one key ends with a sandbox that works", needs: needsSnapshot, probe: func(f *fixture) {
			f.together(8, func(ctx context.Context, n int) error {
				for i := range 12 {
					if err := f.gust(ctx, n+i); err != nil {
						return err
					}
				}
				return nil
			})
			f.output(f.acquire(), f.p.Print("calm"), "calm")
			f.purged(mainKey(), 1)
		}},
		{name: "closing in the middle of acquires leaves no sandbox behind", probe: func(f *fixture) {
			f.together(8, func(ctx context.Context, n int) error {
				if n == 0 {
					return f.backend.Close()
				}
				key := mainKey()
				key.AgentID = fmt.Sprint("agent-", n)
				if _, err := f.backend.Acquire(ctx, key, f.h.Spec); err != nil && !errors.Is(err, sandbox.ErrClosed) {
					return err
				}
				return nil
			})
			f.purged(mainKey(), 0)
		}},
	}
}

// gust is one operation of a storm. Losing the sandbox to another's disposal
// is fair; everything else is not.
func (f *fixture) gust(ctx context.Context, n int) error {
	s, err := f.backend.Acquire(ctx, mainKey(), f.h.Spec)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	switch n % 4 {
	case 0:
		err = s.Reset(ctx)
	case 1:
		err = f.backend.Dispose(ctx, mainKey(), sandbox.DisposeOptions{InstanceID: s.ID()})
	default:
		err = f.prints(ctx, s, fmt.Sprint("gust ", n))
	}
	if errors.Is(err, sandbox.ErrWorkerLost) && !sandbox.Usable(err) {
		return nil
	}
	return err
}

// prints runs a program and compares its output.
func (f *fixture) prints(ctx context.Context, s sandbox.Sandbox, text string) error {
	result, err := s.RunCode(ctx, f.p.Print(text), f.h.Patience)
	if err != nil {
		return err
	}
	if string(result.Stdout) != text {
		return fmt.Errorf("a program that prints %q came back with %.100q", text, result.Stdout)
	}
	return nil
}

// together does the same work n times at once and reports every error.
func (f *fixture) together(n int, work func(ctx context.Context, n int) error) {
	f.t.Helper()
	_, err := within(f, "concurrent work", func(ctx context.Context) (struct{}, error) {
		var group sync.WaitGroup
		failed := make([]error, n)
		for i := range n {
			group.Go(func() { failed[i] = work(ctx, i) })
		}
		group.Wait()
		return struct{}{}, errors.Join(failed...)
	})
	if err != nil {
		f.t.Fatalf("%v", err)
	}
}

func leakRules() []rule {
	return []rule{
		{name: "a closed backend leaves no goroutine behind", needs: needsRun, probe: func(f *fixture) {
			// What a process starts once, the fixture's own backend may start.
			f.output(f.acquire(), f.p.Print("warm"), "warm")
			f.dispose(mainKey(), sandbox.DisposeOptions{})
			label := fmt.Sprint("leak-", labels.Add(1))
			pprof.Do(context.Background(), pprof.Labels("sandboxtest", label), func(context.Context) {
				measured := newFixture(f.t, f.h)
				s := measured.acquire()
				measured.output(s, f.p.Print("work"), "work")
				_, _ = measured.tryRun(s, f.p.Forever, f.h.Short)
				measured.acquireAs(mainKey(), measured.otherKind())
				measured.dispose(mainKey(), sandbox.DisposeOptions{Kind: f.h.Spec.Kind})
				if err := measured.closes(); err != nil {
					f.t.Fatalf("Close: %v", err)
				}
			})
			f.settle(label)
		}},
	}
}

// labels numbers the leak rules of a process, which may run at the same time.
var labels atomic.Int64

// settle waits until no goroutine has the label, which goroutines inherit from
// whoever starts them.
func (f *fixture) settle(label string) {
	f.t.Helper()
	deadline := time.NewTimer(f.h.Patience)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		left := labelled(label)
		if left == "" {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			f.t.Fatalf("goroutines are left behind:\n%s", left)
		}
	}
}

// labelled are the stacks of the goroutines that have the label.
func labelled(label string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return "" // a Buffer takes everything
	}
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		lines := bufio.NewScanner(strings.NewReader(stack))
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "# labels:") && strings.Contains(lines.Text(), `"`+label+`"`) {
				found = append(found, stack)
			}
		}
	}
	return strings.Join(found, "\n\n")
}
