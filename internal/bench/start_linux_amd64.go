package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// spares is how many workers the pool of the benchmarks keeps ready.
const spares = 4

func (s *suite) acquireSpare(ctx context.Context, n int) (Samples, error) {
	return s.pooled(ctx, n, func(*box) error { return nil })
}

func (s *suite) spare(ctx context.Context, n int) (Samples, error) {
	return s.pooled(ctx, n, func(b *box) error { return b.ask(ctx) })
}

// pooled takes sandboxes of a full pool and measures until use has returned.
func (s *suite) pooled(ctx context.Context, n int, use func(*box) error) (out Samples, err error) {
	backend, err := s.open(spares)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	if err := backend.Prepare(ctx); err != nil {
		return out, err
	}
	for range n {
		if err := settle(ctx); err != nil {
			return out, err
		}
		start := time.Now()
		b, err := s.acquire(ctx, backend)
		if err != nil {
			return out, err
		}
		err = use(b)
		out.Values = append(out.Values, MS(time.Since(start)))
		if err := errors.Join(err, b.close(ctx)); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s *suite) fresh(ctx context.Context, n int) (Samples, error) {
	return s.answers(ctx, n, func() (*microvm.Backend, func() error, error) {
		return s.backend, func() error { return nil }, nil
	})
}

// first makes a backend anew, as the first sandbox of a process needs it.
func (s *suite) first(ctx context.Context, n int) (Samples, error) {
	return s.answers(ctx, n, func() (*microvm.Backend, func() error, error) {
		b, err := s.open(0)
		return b, func() error { return b.Close() }, err
	})
}

// boot does so without a template. The template that is made counts too.
func (s *suite) boot(ctx context.Context, n int) (Samples, error) {
	dir, err := os.MkdirTemp("", "maf-sandbox-bench-")
	if err != nil {
		return Samples{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	i := 0
	return s.answers(ctx, n, func() (*microvm.Backend, func() error, error) {
		i++
		cache := filepath.Join(dir, fmt.Sprint(i))
		b, err := s.openIn(cache, 0)
		return b, func() error { return errors.Join(b.Close(), os.RemoveAll(cache)) }, err
	})
}

// answers takes n samples of how long it is from open to the first answer of a
// sandbox. Closing does not count.
func (s *suite) answers(ctx context.Context, n int, open func() (*microvm.Backend, func() error, error)) (Samples, error) {
	var out Samples
	for range n {
		start := time.Now()
		backend, stop, err := open()
		if err != nil {
			return out, err
		}
		b, err := s.acquire(ctx, backend)
		if err != nil {
			return out, errors.Join(err, stop())
		}
		err = b.ask(ctx)
		out.Values = append(out.Values, MS(time.Since(start)))
		if err := errors.Join(err, b.close(ctx), stop()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// process starts the whole program, and the native interpreter in turn.
func (s *suite) process(ctx context.Context, n int) (Samples, error) {
	if s.noNative != nil && s.config.Native != "" {
		return Samples{}, s.noNative
	}
	out := Samples{NativeName: "python3 -c", NativeShare: 0.5} // at most twice as long
	for range n {
		start := time.Now()
		cmd := exec.CommandContext(ctx, s.config.Run[0])
		cmd.Args = s.config.Run[1:]
		text, err := cmd.Output()
		out.Values = append(out.Values, MS(time.Since(start)))
		if err != nil || string(text) != "42\n" {
			return out, fmt.Errorf("the program printed %.100q: %w", text, err)
		}
		if s.noNative != nil {
			continue
		}
		start = time.Now()
		if _, err := s.native.run(ctx, answer); err != nil {
			return out, err
		}
		out.Native = append(out.Native, MS(time.Since(start)))
	}
	return out, nil
}
