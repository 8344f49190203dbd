//go:build linux && amd64

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Limits bound the run of one module.
type Limits struct {
	// Module is the time for a whole module, Stall the longest time without a
	// report.
	Module, Stall time.Duration
}

// maxRestarts bounds how often a module is begun again after a test that ended
// the interpreter or did not end.
const maxRestarts = 60

// runner runs a program in a fresh interpreter until it ends or ctx does, and
// gives what it prints to out. how says in words how it ended.
type runner interface {
	run(ctx context.Context, program string, limit time.Duration, out *collector) (how string, err error)
}

var errStall = errors.New("no report for too long")

// runModule runs a module's tests. A test that ends the interpreter, or never
// ends, costs that test only: the module goes on behind it in a fresh one.
func runModule(ctx context.Context, r runner, module string, l Limits) (Tests, error) {
	tests := Tests{}
	deadline := time.Now().Add(l.Module)
	for first, tries := 0, 0; ; tries++ {
		left := time.Until(deadline)
		if left <= 0 || tries > maxRestarts {
			tests["(module)"] = Test{Stall, fmt.Sprintf("not at its end after %v and %d interpreters", l.Module, tries)}
			return tests, nil
		}
		c, how, stalled, err := attempt(ctx, r, module, first, left, l.Stall)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", module, err)
		}
		for name, t := range c.tests {
			tests[name] = t
		}
		if c.ended {
			return tests, nil
		}
		outcome := Crash
		if stalled {
			outcome = Stall
		}
		if c.stopped != "" {
			how = c.stopped
		}
		if c.current == nil {
			tests["(module)"] = Test{outcome, how}
			return tests, nil
		}
		tests[c.name] = Test{outcome, how}
		first = *c.current + 1
	}
}

// attempt runs a module's tests from number first on in one interpreter.
func attempt(ctx context.Context, r runner, module string, first int, limit, stall time.Duration) (c *collector, how string, stalled bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(errStall) })
	defer watch.Stop()
	mark := rand.Text()
	c = newCollector(mark, func() { watch.Reset(stall) })
	start := time.Now()
	how, err = r.run(ctx, program(module, mark, first), limit, c)
	stalled = errors.Is(context.Cause(ctx), errStall) || time.Since(start) >= limit
	switch {
	case err != nil:
	case c.err != nil:
		err = c.err
	case ctx.Err() != nil && !stalled:
		err = ctx.Err()
	}
	return c, how, stalled, err
}
