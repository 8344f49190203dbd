package sandboxtest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// reclass gives errors of one class another.
func reclass(from, to error) func(*broken) {
	return onRun(func(_ string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error) {
		var failure *sandbox.OpError
		if errors.As(err, &failure) && errors.Is(failure.Class, from) {
			changed := *failure
			changed.Class = to
			err = &changed
		}
		return r, err
	})
}

// saysUsable changes what errors of a class say of the sandbox.
func saysUsable(of error, usable bool) func(*broken) {
	return onRun(func(_ string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error) {
		var failure *sandbox.OpError
		if errors.As(err, &failure) && errors.Is(failure.Class, of) {
			changed := *failure
			changed.Usable = usable
			err = &changed
		}
		return r, err
	})
}

// runsAnyway submits what never got its turn together with the next program.
func runsAnyway(class error) func(*broken) {
	return func(b *broken) {
		b.sandbox = func(s *brokenSandbox) {
			var mu sync.Mutex
			var owed []string
			s.run = func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
				mu.Lock()
				debts := owed
				owed = nil
				mu.Unlock()
				for _, debt := range debts {
					_, _ = s.Sandbox.RunCode(ctx, debt, timeout)
				}
				r, err := s.Sandbox.RunCode(ctx, code, timeout)
				if errors.Is(err, class) {
					mu.Lock()
					owed = append(owed, code)
					mu.Unlock()
				}
				return r, err
			}
		}
	}
}

func deadlineFaults() map[string]fault {
	return map[string]fault{
		"an overrun that is only a deadline": {
			fault: onRun(func(_ string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error) {
				if errors.Is(err, sandbox.ErrTimeout) {
					err = &sandbox.OpError{Op: "run_code", Class: context.DeadlineExceeded, Usable: true}
				}
				return r, err
			}),
			// A knock that overruns on a slow machine is called wrongly too.
			wide: true,
			want: []string{
				"deadlines/a program that overruns its timeout is stopped and called overrun",
				"deadlines/the context's deadline counts like the timeout",
			},
		},
		"an overrun that costs the sandbox and does not say so": {
			config: sandboxtest.Config{RetireOnOverrun: true},
			fault:  saysUsable(sandbox.ErrTimeout, true),
			want: []string{
				"deadlines/a program that overruns its timeout is stopped and called overrun",
				"deadlines/the context's deadline counts like the timeout",
			},
		},
		"an overrun that says that it cost the sandbox": {
			fault: saysUsable(sandbox.ErrTimeout, false),
			want: []string{
				"deadlines/a program that overruns its timeout is stopped and called overrun",
				"deadlines/the context's deadline counts like the timeout",
			},
		},
		"a cancellation that says that it cost the sandbox": {
			fault: saysUsable(sandbox.ErrCanceled, false),
			want: []string{
				"deadlines/canceling ends a running program",
				"deadlines/canceling in the queue submits nothing and costs nothing",
				"deadlines/a run in a context that is over submits nothing and costs nothing",
			},
		},
		"a queue that says that it cost the sandbox": {
			fault: saysUsable(sandbox.ErrQueuedTimeout, false),
			want: []string{
				"deadlines/time that runs out in the queue is told apart, and nothing was submitted",
				"deadlines/a run in a context that is over submits nothing and costs nothing",
			},
		},
		"a cancellation called overrun": {
			fault: reclass(sandbox.ErrCanceled, sandbox.ErrTimeout),
			want: []string{
				"deadlines/canceling ends a running program",
				"deadlines/canceling in the queue submits nothing and costs nothing",
				"deadlines/a run in a context that is over submits nothing and costs nothing",
			},
		},
		"a wait in the queue called overrun": {
			fault: reclass(sandbox.ErrQueuedTimeout, sandbox.ErrTimeout),
			want:  []string{"deadlines/time that runs out in the queue is told apart, and nothing was submitted"},
			wide:  true,
		},
		"what waited too long that runs anyway": {
			fault: runsAnyway(sandbox.ErrQueuedTimeout),
			want: []string{
				"deadlines/time that runs out in the queue is told apart, and nothing was submitted",
				"deadlines/a run in a context that is over submits nothing and costs nothing",
			},
		},
		"what was canceled that runs anyway": {
			hangs: true,
			fault: runsAnyway(sandbox.ErrCanceled),
			want: []string{
				"deadlines/canceling ends a running program",
				"deadlines/canceling in the queue submits nothing and costs nothing",
				"deadlines/a run in a context that is over submits nothing and costs nothing",
			},
		},
		"a program that does not notice that its sandbox is disposed of": {
			fault: onRun(func(code string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error) {
				if code == "forever" && errors.Is(err, sandbox.ErrDisposed) {
					err = nil
				}
				return r, err
			}),
			want: []string{
				"disposal/disposing ends a running program, which says that its sandbox is lost",
				"close/closing ends a running program",
			},
		},
		"a timeout that nobody keeps": {
			hangs: true,
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				if code == "forever" && timeout > 0 {
					timeout = time.Hour
				}
				return ctx, code, timeout
			}),
			want: []string{"deadlines/a program that overruns its timeout is stopped and called overrun"},
		},
		"a context's deadline that nobody keeps": {
			hangs: true,
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				if code == "forever" && timeout > time.Second {
					ctx = context.WithoutCancel(ctx)
				}
				return ctx, code, timeout
			}),
			want: []string{"deadlines/the context's deadline counts like the timeout"},
		},
		"a queue whose time does not count": {
			hangs: true,
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					var mu sync.Mutex
					s.run = func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
						mu.Lock()
						defer mu.Unlock()
						return s.Sandbox.RunCode(ctx, code, timeout)
					}
				}
			},
			want: []string{"deadlines/time that runs out in the queue is told apart, and nothing was submitted"},
			wide: true,
		},
		"a reset whose time in the queue does not count": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					s.reset = func(ctx context.Context) error {
						if ctx.Err() != nil {
							return s.Sandbox.Reset(ctx)
						}
						return s.Sandbox.Reset(context.WithoutCancel(ctx))
					}
				}
			},
			want: []string{"deadlines/a reset that waits too long in the queue changes nothing"},
		},
	}
}
