package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// attempts is how often a rule tries again when the machine was too slow to
// bring about what the rule is about.
const attempts = 5

// occupy runs a program in the background and returns once others have to wait
// for it. It is nil when the program ended before that could be seen.
func (f *fixture) occupy(s sandbox.Sandbox, code string) *pending[sandbox.ExecResult] {
	f.t.Helper()
	occupant := start(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
		return s.RunCode(ctx, code, f.h.Patience)
	})
	f.t.Cleanup(occupant.cancel)
	for !occupant.over() {
		_, err := f.tryRun(s, f.p.Print("knock"), f.h.Short)
		switch {
		case errors.Is(err, sandbox.ErrQueuedTimeout):
			return occupant
		case errors.Is(err, sandbox.ErrTimeout):
			// The knock itself was slow: the sandbox may be lost.
			occupant.cancel()
			_, _ = occupant.wait()
		case err != nil:
			f.t.Fatalf("waiting for a turn: %v", err)
		}
	}
	return nil
}

// whileBusy gives the probe an occupied sandbox, again and again until it says
// that it saw what it wanted, the occupant still being there. Each attempt has
// a name of its own, to store something under.
func (f *fixture) whileBusy(code string, probe func(s sandbox.Sandbox, attempt string, occupant *pending[sandbox.ExecResult]) bool) {
	f.t.Helper()
	for n := range attempts {
		s := f.acquire()
		if occupant := f.occupy(s, code); occupant != nil && probe(s, fmt.Sprint("attempt", n), occupant) {
			return
		}
	}
	f.t.Fatalf("in %d attempts no run was seen waiting for another", attempts)
}

// late says that something got its turn after all, so that it says nothing of
// waiting: the occupant ended before it.
func late(err error) bool {
	return err == nil || errors.Is(err, sandbox.ErrTimeout) && !errors.Is(err, sandbox.ErrQueuedTimeout)
}

// overrun runs a program that cannot end, until the error is one of a program
// that had started.
func (f *fixture) overrun(s sandbox.Sandbox, run func() (sandbox.ExecResult, error)) {
	f.t.Helper()
	id := s.ID()
	for range attempts {
		_, err := run()
		if errors.Is(err, sandbox.ErrQueuedTimeout) {
			f.aftermath(s, id, err)
			continue
		}
		f.is("a program that overran", err, sandbox.ErrTimeout, context.DeadlineExceeded)
		f.isNot("a program that overran", err, context.Canceled)
		f.aftermath(s, id, err)
		return
	}
	f.t.Fatalf("in %d attempts a program alone in its sandbox never got its turn", attempts)
}

func deadlineRules() []rule {
	return needing(needsRun, []rule{
		{name: "a program that overruns its timeout is stopped and called overrun", probe: func(f *fixture) {
			s := f.acquire()
			f.overrun(s, func() (sandbox.ExecResult, error) {
				return within(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
					// Only the timeout can end it.
					return s.RunCode(context.WithoutCancel(ctx), f.p.Forever, f.h.Short)
				})
			})
		}},
		{name: "the context's deadline counts like the timeout", probe: func(f *fixture) {
			s := f.acquire()
			f.overrun(s, func() (sandbox.ExecResult, error) {
				return within(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
					ctx, cancel := context.WithTimeout(ctx, f.h.Short)
					defer cancel()
					// Only the context can end it.
					return s.RunCode(ctx, f.p.Forever, 10*f.h.Patience)
				})
			})
		}},
		{name: "canceling ends a running program", probe: func(f *fixture) {
			f.whileBusy(f.p.Forever, func(s sandbox.Sandbox, _ string, occupant *pending[sandbox.ExecResult]) bool {
				id := s.ID()
				occupant.cancel()
				_, err := occupant.wait()
				f.is("a canceled program", err, sandbox.ErrCanceled, context.Canceled)
				f.isNot("a canceled program", err, context.DeadlineExceeded)
				f.aftermath(s, id, err)
				return true
			})
		}},
		{name: "time that runs out in the queue is told apart, and nothing was submitted", probe: func(f *fixture) {
			f.whileBusy(f.p.Busy(f.h.Busy), func(s sandbox.Sandbox, attempt string, occupant *pending[sandbox.ExecResult]) bool {
				id := s.ID()
				_, err := f.tryRun(s, f.p.Set(attempt, "ran"), f.h.Short)
				if late(err) {
					return false
				}
				f.is("a run that never got its turn", err, sandbox.ErrQueuedTimeout, context.DeadlineExceeded)
				f.isNot("a run that never got its turn", err, sandbox.ErrTimeout)
				f.intact(s, id, err, occupant)
				f.lacks(s, attempt)
				return true
			})
		}},
		{name: "canceling in the queue submits nothing and costs nothing", probe: func(f *fixture) {
			f.whileBusy(f.p.Busy(f.h.Busy), func(s sandbox.Sandbox, attempt string, occupant *pending[sandbox.ExecResult]) bool {
				id := s.ID()
				waiting := start(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
					return s.RunCode(ctx, f.p.Set(attempt, "ran"), f.h.Patience)
				})
				waiting.cancel()
				_, err := waiting.wait()
				if late(err) || occupant.over() {
					return false
				}
				f.is("a run canceled in the queue", err, sandbox.ErrCanceled, context.Canceled)
				f.intact(s, id, err, occupant)
				f.lacks(s, attempt)
				return true
			})
		}},
		{name: "a run in a context that is over submits nothing and costs nothing", probe: func(f *fixture) {
			s := f.acquire()
			id := s.ID()
			for _, c := range []struct {
				what  string
				over  func(context.Context) (context.Context, context.CancelFunc)
				class error
			}{
				{"canceled", context.WithCancel, sandbox.ErrCanceled},
				{"past its deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithDeadline(ctx, time.Unix(1, 0))
				}, sandbox.ErrQueuedTimeout},
			} {
				_, err := within(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
					ctx, cancel := c.over(ctx)
					cancel()
					return s.RunCode(ctx, f.p.Set("ran", "yes"), f.h.Patience)
				})
				f.is("a run in a context "+c.what, err, c.class)
				if !sandbox.Usable(err) {
					f.t.Fatalf("a run in a context %s: %v says that the sandbox is lost", c.what, err)
				}
				f.lacks(s, "ran")
				f.aftermath(s, id, err)
			}
		}},
		{name: "a reset that waits too long in the queue changes nothing", needs: needsSnapshot, probe: func(f *fixture) {
			f.whileBusy(f.p.Busy(f.h.Busy), func(s sandbox.Sandbox, _ string, occupant *pending[sandbox.ExecResult]) bool {
				id := s.ID()
				_, err := within(f, "Reset", func(ctx context.Context) (struct{}, error) {
					ctx, cancel := context.WithTimeout(ctx, f.h.Short)
					defer cancel()
					return struct{}{}, s.Reset(ctx)
				})
				if late(err) || occupant.over() {
					return false
				}
				f.is("a reset that never got its turn", err, sandbox.ErrQueuedTimeout)
				f.intact(s, id, err, occupant)
				return true
			})
		}},
	})
}

// intact checks that what only waited has cost neither the sandbox nor the
// program that it waited for.
func (f *fixture) intact(s sandbox.Sandbox, id string, err error, occupant *pending[sandbox.ExecResult]) {
	f.t.Helper()
	if !sandbox.Usable(err) {
		f.t.Fatalf("error %v says that the sandbox is lost, though nothing was submitted", err)
	}
	if _, err := occupant.wait(); err != nil {
		f.t.Fatalf("the program that was waited for ended with %v", err)
	}
	f.aftermath(s, id, err)
}

func limitRules() []rule {
	output := func(probe func(f *fixture, limit int)) func(*fixture) {
		return func(f *fixture) {
			if f.h.MaxOutput == 0 {
				f.t.Skipf("the harness names no output limit")
			}
			probe(f, f.h.MaxOutput)
		}
	}
	return needing(needsRun, []rule{
		{name: "output up to the limit comes back whole", probe: output(func(f *fixture, limit int) {
			result := f.run(f.acquire(), f.p.Spam(limit))
			if len(result.Stdout) != limit || result.ExitCode != 0 {
				f.t.Errorf("%d bytes, exit %d; want %d and 0", len(result.Stdout), result.ExitCode, limit)
			}
		})},
		{name: "output beyond the limit is an error and never a longer result", probe: output(func(f *fixture, limit int) {
			s := f.acquire()
			id := s.ID()
			result, err := f.tryRun(s, f.p.Spam(limit+1), f.h.Patience)
			f.is("output beyond the limit", err, sandbox.ErrOutputLimit)
			if n := len(result.Stdout) + len(result.Stderr); n > limit {
				f.t.Errorf("%d bytes came back, the limit is %d", n, limit)
			}
			f.aftermath(s, id, err)
		})},
		{name: "code beyond the limit is refused in words and costs nothing", probe: func(f *fixture) {
			if f.h.MaxCode == 0 {
				f.t.Skipf("the harness names no code limit")
			}
			s := f.acquire()
			id := s.ID()
			f.set(s, "before", "kept")
			code := make([]byte, f.h.MaxCode+1)
			for i := range code {
				code[i] = '\n'
			}
			_, err := f.tryRun(s, string(code), f.h.Patience)
			f.is("code beyond the limit", err, sandbox.ErrRefused)
			f.explains(err)
			f.has(s, "before", "kept")
			f.aftermath(s, id, err)
			if _, err := f.tryRun(s, string(code[:f.h.MaxCode]), f.h.Patience); err != nil {
				f.t.Errorf("code of exactly the limit: %v", err)
			}
		}},
	})
}

// explains checks that a refusal says what was asked, what is allowed and who
// decides.
func (f *fixture) explains(err error) {
	f.t.Helper()
	var refusal *sandbox.RefusalError
	if !errors.As(err, &refusal) {
		f.t.Fatalf("%v (%T) is no RefusalError", err, err)
	}
	if refusal.Asked == "" || refusal.Allowed == "" || refusal.Decider == "" {
		f.t.Fatalf("%q lacks what was asked, what is allowed or who decides", err)
	}
}
