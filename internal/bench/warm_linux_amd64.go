package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// warmUp is how many runs come before those that count.
const warmUp = 20

func (s *suite) warm(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(b *box) (Samples, error) {
		run := func() error { return b.ask(ctx) }
		if _, err := each(warmUp, nil, run); err != nil {
			return Samples{}, err
		}
		return each(n, nil, run)
	})
}

func (s *suite) reset(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(b *box) (Samples, error) {
		return each(n, func() error { return b.ask(ctx) }, func() error { return b.Reset(ctx) })
	})
}

func (s *suite) resetRun(ctx context.Context, n int) (Samples, error) {
	return s.with(ctx, func(b *box) (Samples, error) {
		return each(n, nil, func() error { return errors.Join(b.Reset(ctx), b.ask(ctx)) })
	})
}

func (s *suite) output(ctx context.Context, n int) (Samples, error) {
	const size = 1 << 20
	return s.with(ctx, func(b *box) (Samples, error) {
		return each(n, nil, func() error {
			res, err := b.Run(ctx, microvm.Request{Code: "import sys; _ = sys.stdout.write('x' * (1 << 20))", MaxOutput: 2 * size})
			if err == nil && len(res.Stdout) != size {
				err = fmt.Errorf("%d bytes came of %d", len(res.Stdout), size)
			}
			return err
		})
	})
}
