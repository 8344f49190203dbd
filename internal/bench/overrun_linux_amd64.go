package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Programs that outlive their deadline. The second one's inner loop has a
// condition because CPython 3.11 lets an interrupt of "while True: pass" out of
// the try statement round it.
const (
	obedient = "while True: pass"
	stubborn = "x = 1\nwhile True:\n    try:\n        while x: x = 2\n    except BaseException: pass"
)

// overrunLimit is the time limit of a run that is to overrun. The first run of
// a fresh sandbox needs several milliseconds before the program begins.
const overrunLimit = 50 * time.Millisecond

func (s *suite) overrun(code string, obeys bool) func(context.Context, int) (Samples, error) {
	return func(ctx context.Context, n int) (out Samples, err error) {
		var b *box
		defer func() {
			if b != nil {
				err = errors.Join(err, b.close(ctx))
			}
		}()
		for range n {
			if b == nil {
				if b, err = s.acquire(ctx, s.backend); err != nil {
					return out, err
				}
				if err := b.ask(ctx); err != nil {
					return out, err
				}
			}
			start := time.Now()
			_, err := b.Run(ctx, microvm.Request{Code: code, Timeout: overrunLimit})
			passed := time.Since(start)
			if !errors.Is(err, sandbox.ErrTimeout) {
				return out, fmt.Errorf("no overrun: %w", err)
			}
			usable := sandbox.Usable(err)
			if usable != obeys {
				return out, fmt.Errorf("unexpected end of an overrun: %w", err)
			}
			out.Values = append(out.Values, MS(max(0, passed-overrunLimit)))
			if !usable {
				err := b.close(ctx)
				b = nil
				if err != nil {
					return out, err
				}
			}
		}
		return out, nil
	}
}
