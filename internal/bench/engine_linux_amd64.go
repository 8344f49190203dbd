package bench

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
)

// The engine in this process, without worker and supervisor: the difference is
// what the process around a sandbox costs.

func (s *suite) engineWarm(ctx context.Context, n int) (Samples, error) {
	return s.inProcess(ctx, func(t *engine.Template) (Samples, error) {
		return withMachine(ctx, t, func(vm *engine.VM) (Samples, error) {
			run := func() error { return askEngine(ctx, vm) }
			if _, err := each(warmUp, nil, run); err != nil {
				return Samples{}, err
			}
			return each(n, nil, run)
		})
	})
}

func (s *suite) engineResetRun(ctx context.Context, n int) (Samples, error) {
	return s.inProcess(ctx, func(t *engine.Template) (Samples, error) {
		return withMachine(ctx, t, func(vm *engine.VM) (Samples, error) {
			return each(n, nil, func() error { return errors.Join(vm.Reset(ctx), askEngine(ctx, vm)) })
		})
	})
}

func (s *suite) engineFresh(ctx context.Context, n int) (Samples, error) {
	return s.inProcess(ctx, func(t *engine.Template) (Samples, error) {
		var vm *engine.VM
		closeLast := func() error {
			if vm == nil {
				return nil
			}
			return vm.Close()
		}
		out, err := each(n, closeLast, func() (err error) {
			if vm, err = t.New(ctx); err != nil {
				return err
			}
			return askEngine(ctx, vm)
		})
		return out, errors.Join(err, closeLast())
	})
}

// inProcess calls f with a template.
func (s *suite) inProcess(ctx context.Context, f func(*engine.Template) (Samples, error)) (out Samples, err error) {
	p, err := kvmvm.New()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	t, err := engine.Open(ctx, engine.Config{
		Image: s.config.Image, Cache: filepath.Join(s.config.CacheDir, "templates"), Platform: p, Progress: s.config.Progress,
	})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return f(t)
}

// withMachine calls f with a machine that has answered once.
func withMachine(ctx context.Context, t *engine.Template, f func(*engine.VM) (Samples, error)) (Samples, error) {
	vm, err := t.New(ctx)
	if err != nil {
		return Samples{}, err
	}
	var out Samples
	if err = askEngine(ctx, vm); err == nil {
		out, err = f(vm)
	}
	return out, errors.Join(err, vm.Close())
}

func askEngine(ctx context.Context, vm *engine.VM) error {
	res, err := vm.Run(ctx, engine.Request{Code: []byte(answer)})
	return checkAnswer(res.Stdout, res.Stderr, err)
}
