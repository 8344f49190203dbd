package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// memory makes sandboxes, warms them up and resets them, and looks at what each
// worker has, with its share of the supervisor.
func (s *suite) memory(ctx context.Context, n int) (out Samples, err error) {
	err = s.crowd(ctx, n, func(b *box) error { return errors.Join(b.ask(ctx), b.Reset(ctx)) }, func() error {
		supervisor, workers, err := family(n)
		if err != nil {
			return err
		}
		share, err := proportional(supervisor)
		if err != nil {
			return err
		}
		for _, pid := range workers {
			one, err := proportional(pid)
			if err != nil {
				return err
			}
			out.Values = append(out.Values, one+share/float64(n))
		}
		return nil
	})
	return out, err
}

// family finds the child of this process that has n children.
func family(n int) (parent int, children []int, err error) {
	all, err := descendants()
	if err != nil {
		return 0, nil, err
	}
	of := map[int][]int{}
	for _, p := range all {
		of[p.parent] = append(of[p.parent], p.pid)
	}
	for _, p := range all {
		if len(of[p.pid]) == n {
			return p.pid, of[p.pid], nil
		}
	}
	return 0, nil, fmt.Errorf("there is no supervisor with %d workers", n)
}

// live looks at what the machine has less with n sandboxes than without, and
// gives it for 1,000. All answer, and all answer again when all are there.
func (s *suite) live(ctx context.Context, n int) (out Samples, err error) {
	before, err := available()
	if err != nil {
		return out, err
	}
	err = s.crowd(ctx, n, func(b *box) error { return b.ask(ctx) }, func() error {
		after, err := available()
		if err == nil {
			out.Values = append(out.Values, max(0, before-after)*1000/float64(n))
		}
		return err
	})
	return out, err
}

// crowd makes n sandboxes in a backend of their own, calls prepare with each,
// look when all are there, and has each answer once more.
func (s *suite) crowd(ctx context.Context, n int, prepare func(*box) error, look func() error) (err error) {
	backend, err := s.open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	boxes, err := s.many(ctx, backend, n, prepare)
	if err == nil {
		err = look()
	}
	if err != nil {
		return err
	}
	for i, b := range boxes {
		if err := b.ask(ctx); err != nil {
			return fmt.Errorf("sandbox %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

// atOnce is how many acquires are under way at the same time.
const atOnce = 100

// parallel takes n acquires, a hundred at a time, from as many spare workers as
// a pool can have.
func (s *suite) parallel(ctx context.Context, n int) (out Samples, err error) {
	backend, err := s.open(microvm.MaxPool)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	if err := backend.Prepare(ctx); err != nil {
		return out, err
	}
	for done := 0; done < n; done += atOnce {
		if err := settle(ctx); err != nil {
			return out, err
		}
		var mu sync.Mutex
		took := make([]float64, 0, atOnce)
		start := time.Now()
		boxes, err := s.many(ctx, backend, atOnce, func(*box) error {
			passed := MS(time.Since(start))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, passed)
			return nil
		})
		if err != nil {
			return out, err
		}
		out.Values = append(out.Values, took...)
		for _, b := range boxes {
			if err := errors.Join(b.ask(ctx), b.close(ctx)); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// many acquires n sandboxes, up to a hundred at once, and calls use with each.
func (s *suite) many(ctx context.Context, backend *microvm.Backend, n int, use func(*box) error) ([]*box, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	boxes := make([]*box, n)
	tokens := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i := range boxes {
		tokens <- struct{}{}
		group.Go(func() {
			defer func() { <-tokens }()
			b, err := s.acquire(ctx, backend)
			if err == nil {
				boxes[i], err = b, use(b)
			}
			if err != nil {
				cancel(fmt.Errorf("sandbox %d of %d: %w", i+1, n, err))
			}
		})
	}
	group.Wait()
	return boxes, context.Cause(ctx)
}
