//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// judged is a module with its outcomes in the sandbox and outside.
type judged struct {
	module        string
	guest, native Tests
	err           error
}

// protocol is part of the key of kept outcomes. A change of collect.py that
// changes outcomes or names changes it.
const protocol = "1"

// runAll runs the modules, some at the same time, and gives them in order.
func runAll(ctx context.Context, o options, p *Interpreter, m Manifest, list []string) (js []*judged, err error) {
	stamp, err := p.stamp()
	if err != nil {
		return nil, err
	}
	outside, err := openResults(o.cache, "native", stamp, protocol)
	if err != nil {
		return nil, err
	}
	inside, err := openResults(o.cache, "sandbox", stamp, protocol)
	if err != nil {
		return nil, err
	}
	s, err := openSandbox(ctx, p, o.cache, o.capture, o.say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	queue := make(chan *judged)
	var wg sync.WaitGroup
	for range max(o.parallel, 1) {
		wg.Go(func() {
			for j := range queue {
				start := time.Now()
				j.native, j.err = kept(ctx, outside, native{p}, j.module, o.limits, !o.again)
				middle := time.Now()
				if j.err == nil {
					j.guest, j.err = kept(ctx, inside, s, j.module, o.limits, o.reuse)
				}
				if j.err == nil {
					o.say(fmt.Sprintf("%s: %d tests, %d differences, %.1f s outside, %.1f s in the sandbox", j.module,
						len(j.native), len(compare(j.module, j.guest, j.native)), middle.Sub(start).Seconds(), time.Since(middle).Seconds()))
				}
			}
		})
	}
	for _, module := range list {
		j := &judged{module: module}
		js = append(js, j)
		queue <- j
	}
	close(queue)
	wg.Wait()
	for _, j := range js {
		err = errors.Join(err, j.err)
	}
	for _, j := range js {
		if err == nil && !o.update && m.shaky(j) {
			if err = j.repeat(ctx, s, native{p}, o); err == nil {
				err = errors.Join(outside.save(j.module, j.native), inside.save(j.module, j.guest))
			}
		}
	}
	return js, err
}

// shaky says that a module is to be run again: tests of it failed on one side
// only, for no reason that the manifest knows. Some of CPython's tests look at
// the clock, and fail on a busy machine. What ended an interpreter, or did not
// end, is never put down to that.
func (m Manifest) shaky(j *judged) bool {
	rest := m.explain(compare(j.module, j.guest, j.native))
	failed := func(t Test) bool { return t.Outcome == Fail || t.Outcome == Error }
	other := func(d *Difference) bool { return !failed(d.Guest) && !failed(d.Native) }
	return len(rest) > 0 && !slices.ContainsFunc(rest, other)
}

// repeat runs a module again, alone, on both sides, and says what was otherwise
// before.
func (j *judged) repeat(ctx context.Context, guest, native runner, o options) error {
	before := compare(j.module, j.guest, j.native)
	var err error
	if j.native, err = runModule(ctx, native, j.module, o.limits); err != nil {
		return err
	}
	if j.guest, err = runModule(ctx, guest, j.module, o.limits); err != nil {
		return err
	}
	now := compare(j.module, j.guest, j.native)
	for _, d := range before {
		if !slices.ContainsFunc(now, func(n *Difference) bool { return n.Test == d.Test }) {
			o.say("not again, alone: " + d.String())
		}
	}
	return nil
}

// kept runs a module, or takes the outcomes of an earlier run.
func kept(ctx context.Context, r results, in runner, module string, l Limits, reuse bool) (Tests, error) {
	if reuse {
		if t, ok := r.load(module); ok {
			return t, nil
		}
	}
	t, err := runModule(ctx, in, module, l)
	if err != nil {
		return nil, err
	}
	return t, r.save(module, t)
}
