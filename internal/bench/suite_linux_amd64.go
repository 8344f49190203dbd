package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

// note says what the numbers leave out.
const note = "measured in this process, without the worker process that a later release puts around each sandbox"

// suite is what the benchmarks work on.
type suite struct {
	config   Config
	platform host.Platform
	template *engine.Template
	native   native
	// noNative says why there is no native Python to compare with.
	noNative error
}

// Open opens the engine and gives its benchmarks, in order. stop releases it.
func Open(ctx context.Context, c Config) (all []Benchmark, m Machine, stop func() error, err error) {
	s := &suite{config: c}
	if s.platform, err = openPlatform(c.Engine); err != nil {
		return nil, m, nil, &engine.Error{Kind: engine.KindUnavailable, Message: "no virtual machine", Cause: err}
	}
	if s.template, err = s.open(ctx, s.platform, c.Templates); err != nil {
		_ = s.platform.Close() // nothing was made of it
		return nil, m, nil, err
	}
	info := s.template.Info()
	s.native, s.noNative = findNative(ctx, c.Native, info.Python)
	numpy, err := hasNumpy(c.Image)
	if err == nil {
		all, err = s.benchmarks(numpy)
	}
	if err != nil {
		return nil, m, nil, errors.Join(err, s.close())
	}
	m = ThisMachine()
	m.Engine, m.Isolation, m.Python, m.Note = info.Engine, info.Isolation, info.Python, note
	return all, m, s.close, nil
}

// openPlatform opens what runs the sandboxes; the report says which it is.
func openPlatform(engine string) (host.Platform, error) {
	p, _, err := host.Open(cmp.Or(engine, host.Auto))
	return p, err
}

func (s *suite) close() error { return errors.Join(s.template.Close(), s.platform.Close()) }

// open opens the template; without a folder for templates it boots.
func (s *suite) open(ctx context.Context, p platform.Platform, templates string) (*engine.Template, error) {
	return engine.Open(ctx, engine.Config{Image: s.config.Image, Cache: templates, Platform: p, Progress: s.config.Progress})
}

func hasNumpy(file string) (bool, error) {
	im, err := image.Open(file)
	if err != nil {
		return false, err
	}
	has := slices.ContainsFunc(im.Manifest().Packages, func(p image.Package) bool { return p.Name == "numpy" })
	return has, im.Close()
}

// benchmarks lists N1 to N5, N7, N8 and N10 of the specification.
func (s *suite) benchmarks(numpy bool) ([]Benchmark, error) {
	all := []Benchmark{
		{ID: "N1", Name: "warm print(6*7)", Target: Target{P50: 0.15, P99: 1}, N: 5000, Quick: 300, Run: s.warm},
		{ID: "N2.reset", Name: "reset", Target: Target{P50: 0.12}, N: 2000, Quick: 100, Run: s.reset},
		{ID: "N2.reset-run", Name: "reset and run", Target: Target{P50: 0.3}, N: 2000, Quick: 100, Run: s.resetRun},
		{ID: "N3.spare", Name: "first answer of a spare sandbox, warmed up and reset", Target: Target{P50: 0.5}, N: 100, Quick: 10, Run: s.spare},
		{ID: "N3.fresh", Name: "fresh sandbox and its first answer", Target: Target{P50: 10}, N: 200, Quick: 10, Run: s.fresh},
		{ID: "N3.first", Name: "first in a process, template in the cache", Target: Target{P50: 25}, N: 50, Quick: 5, Run: s.first},
		{ID: "N3.boot", Name: "first in a process, no cache", Target: Target{P50: 130}, N: 20, Quick: 3, Run: s.boot},
		{ID: "N4", Name: "whole process: run -c 'print(6*7)'", Target: Target{P50: 30}, N: 60, Quick: 5, Run: s.process},
		{ID: "N5", Name: "proportional memory of one idle sandbox", Unit: MiB, Target: Target{P50: 2}, N: 50, Quick: 5, Run: s.memory},
	}
	names, err := workloads(numpy)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		all = append(all, Benchmark{ID: "N7." + name, Name: "CPU-bound: " + name, N: 11, Quick: 3, Run: s.cpu(name)})
	}
	all = append(all,
		Benchmark{ID: "N8.soft", Name: "from the deadline to the return, program obeys", Target: Target{P99: 5}, N: 150, Quick: 10, Run: s.overrun(obedient, true)},
		Benchmark{ID: "N8.hard", Name: "from the deadline to the return, program does not obey", Target: Target{P99: 25}, N: 100, Quick: 5, Run: s.overrun(stubborn, false)},
		Benchmark{ID: "N10", Name: "1 MiB of output", Target: Target{P50: 10}, N: 200, Quick: 10, Run: s.output},
	)
	for i := range all {
		if all[i].Unit == "" {
			all[i].Unit = Milliseconds
		}
	}
	return all, nil
}

const answer = "print(6*7)"

// ask runs answer and checks it.
func ask(ctx context.Context, vm *engine.VM) error {
	return say(ctx, vm, answer, "42\n")
}

func say(ctx context.Context, vm *engine.VM, code, want string) error {
	res, err := vm.Run(ctx, engine.Request{Code: []byte(code)})
	if err != nil {
		return err
	}
	if string(res.Stdout) != want {
		return fmt.Errorf("%q printed %.100q and %.200q", code, res.Stdout, res.Stderr)
	}
	return nil
}

// with calls f with a sandbox that has answered once.
func (s *suite) with(ctx context.Context, f func(*engine.VM) (Samples, error)) (Samples, error) {
	vm, err := s.template.New(ctx)
	if err != nil {
		return Samples{}, err
	}
	var out Samples
	if err = ask(ctx, vm); err == nil {
		out, err = f(vm)
	}
	return out, errors.Join(err, vm.Close())
}

// each takes n samples of how long f takes. between, if not nil, is called
// before each and does not count.
func each(n int, between, f func() error) (Samples, error) {
	var out Samples
	for range n {
		if between != nil {
			if err := between(); err != nil {
				return out, err
			}
		}
		start := time.Now()
		if err := f(); err != nil {
			return out, err
		}
		out.Values = append(out.Values, MS(time.Since(start)))
	}
	return out, nil
}
