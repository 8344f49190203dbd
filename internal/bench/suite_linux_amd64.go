package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// note says how to read the numbers.
const note = "measured through the backend, each sandbox in a worker process; rows named engine are the same without the process"

// suite is what the benchmarks work on.
type suite struct {
	config  Config
	backend *microvm.Backend
	native  native
	// noNative says why there is no native Python to compare with.
	noNative error
	// keys numbers the sandboxes.
	keys atomic.Int64
}

// Open opens a backend and gives its benchmarks, in order. stop releases it.
func Open(ctx context.Context, c Config) (all []Benchmark, m Machine, stop func() error, err error) {
	s := &suite{config: c}
	if s.backend, err = s.open(0); err != nil {
		return nil, m, nil, err
	}
	b, err := s.acquire(ctx, s.backend)
	if err != nil {
		return nil, m, nil, errors.Join(err, s.backend.Close())
	}
	info := b.Info()
	s.native, s.noNative = findNative(ctx, c.Native, info.Python)
	numpy, err := hasNumpy(c.Image)
	if err == nil {
		all, err = s.benchmarks(numpy)
	}
	if err = errors.Join(err, b.close(ctx)); err != nil {
		return nil, m, nil, errors.Join(err, s.backend.Close())
	}
	m = ThisMachine()
	m.Engine, m.Isolation, m.Limits, m.Python, m.Note = info.Engine, info.Isolation, string(info.Limits), info.Python, note
	return all, m, s.backend.Close, nil
}

// open makes a backend with spare workers; nothing is started yet.
func (s *suite) open(spare int) (*microvm.Backend, error) { return s.openIn(s.config.CacheDir, spare) }

func (s *suite) openIn(cache string, spare int) (*microvm.Backend, error) {
	return microvm.New(microvm.Config{
		Private: true, Engine: s.config.Engine, Image: s.config.Image, CacheDir: cache, Enforcement: s.config.Limits, Pool: spare,
		MaxOutput: microvm.MaxMaxOutput, StartupTimeout: 2 * time.Minute, Progress: s.config.Progress,
	})
}

// box is a sandbox with what it takes to dispose of it.
type box struct {
	*microvm.Sandbox
	backend *microvm.Backend
	key     sandbox.Key
}

// acquire gets a sandbox that nobody has used.
func (s *suite) acquire(ctx context.Context, b *microvm.Backend) (*box, error) {
	return s.acquireSpec(ctx, b, sandbox.Spec{Kind: "python"})
}

func (s *suite) acquireSpec(ctx context.Context, b *microvm.Backend, spec sandbox.Spec) (*box, error) {
	key := sandbox.Key{Scope: "bench", ThreadID: strconv.FormatInt(s.keys.Add(1), 10), AgentID: "bench"}
	sb, err := b.Get(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return &box{sb, b, key}, nil
}

// close disposes of the sandbox and waits until it is confirmed gone.
func (b *box) close(ctx context.Context) error {
	return b.backend.Dispose(ctx, b.key, sandbox.DisposeOptions{})
}

const answer = "print(6*7)"

// ask runs answer and checks it.
func (b *box) ask(ctx context.Context) error {
	res, err := b.Run(ctx, microvm.Request{Code: answer})
	return checkAnswer(res.Stdout, res.Stderr, err)
}

func checkAnswer(stdout, stderr []byte, err error) error {
	if err == nil && string(stdout) != "42\n" {
		err = fmt.Errorf("%q printed %.100q and %.200q", answer, stdout, stderr)
	}
	return err
}

func hasNumpy(file string) (bool, error) {
	im, err := image.Open(file)
	if err != nil {
		return false, err
	}
	has := slices.ContainsFunc(im.Manifest().Packages, func(p image.Package) bool { return p.Name == "numpy" })
	return has, im.Close()
}

// benchmarks lists those of the specification, in order.
func (s *suite) benchmarks(numpy bool) ([]Benchmark, error) {
	all := []Benchmark{
		{ID: "N1", Name: "warm print(6*7)", Target: Target{P50: 0.15, P99: 1}, N: 5000, Quick: 300, Run: s.warm},
		{ID: "N1.engine", Name: "warm print(6*7), engine alone", N: 5000, Quick: 300, Run: s.engineWarm},
		{ID: "N2.reset", Name: "reset", Target: Target{P50: 0.12}, N: 2000, Quick: 100, Run: s.reset},
		{ID: "N2.reset-run", Name: "reset and run", Target: Target{P50: 0.3}, N: 2000, Quick: 100, Run: s.resetRun},
		{ID: "N2.engine", Name: "reset and run, engine alone", N: 2000, Quick: 100, Run: s.engineResetRun},
		{ID: "N3.acquire", Name: "a spare sandbox", N: 100, Quick: 10, Run: s.acquireSpare},
		{ID: "N3.spare", Name: "a spare sandbox and its first answer", Target: Target{P50: 0.5}, N: 100, Quick: 10, Run: s.spare},
		{ID: "N3.fresh", Name: "a new sandbox and its first answer", Target: Target{P50: 10}, N: 200, Quick: 10, Run: s.fresh},
		{ID: "N3.engine", Name: "a new machine and its first answer, engine alone", N: 200, Quick: 10, Run: s.engineFresh},
		{ID: "N3.first", Name: "first in a process, template in the cache", Target: Target{P50: 25}, N: 50, Quick: 5, Run: s.first},
		{ID: "N3.boot", Name: "first in a process, no template", Target: Target{P50: 130}, N: 20, Quick: 3, Run: s.boot},
		{ID: "N4", Name: "whole process: run -c 'print(6*7)'", Target: Target{P50: 30}, N: 60, Quick: 5, Run: s.process},
		{ID: "N5", Name: "proportional memory of one idle sandbox", Unit: MiB, Target: Target{P50: 2}, N: 50, Quick: 5, Run: s.memory},
		{ID: "N6.acquire", Name: "acquires, 100 at once", Target: Target{P99: 150}, N: 300, Quick: 100, Run: s.parallel},
		{ID: "N6.live", Name: "memory of 1,000 live sandboxes that all answer", Unit: MiB, Target: Target{P50: 3072}, N: 1000, Quick: 50, Run: s.live},
	}
	names, err := workloads(numpy)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		all = append(all, Benchmark{ID: "N7." + name, Name: "CPU-bound: " + name, N: 11, Quick: 3, Run: s.cpu(name)})
	}
	cycles := s.config.Cycles
	if cycles == 0 {
		cycles = DefaultCycles
	}
	all = append(all,
		Benchmark{ID: "N8.soft", Name: "from the deadline to the return, program obeys", Target: Target{P99: 5}, N: 150, Quick: 10, Run: s.overrun(obedient, true)},
		Benchmark{ID: "N8.hard", Name: "from the deadline to the return, program does not obey", Target: Target{P99: 25}, N: 100, Quick: 5, Run: s.overrun(stubborn, false)},
		Benchmark{ID: "N9.10B", Name: "a call of a host tool, 10 B there and back", Target: Target{P50: 0.1}, N: 5000, Quick: 300, Run: s.tool(10)},
		Benchmark{ID: "N9.15KB", Name: "a call of a host tool, 15 KB there and back", Target: Target{P50: 0.15}, N: 5000, Quick: 300, Run: s.tool(15_000)},
		Benchmark{ID: "N10", Name: "1 MiB of output", Target: Target{P50: 10}, N: 200, Quick: 10, Run: s.output},
		Benchmark{ID: "N12", Name: "acquire, run, dispose, every 100th killed: nothing is left", N: cycles, Quick: 200, Run: s.soak},
	)
	for i := range all {
		if all[i].Unit == "" {
			all[i].Unit = Milliseconds
		}
	}
	return all, nil
}

// with calls f with a sandbox that has answered once.
func (s *suite) with(ctx context.Context, f func(*box) (Samples, error)) (Samples, error) {
	b, err := s.acquire(ctx, s.backend)
	if err != nil {
		return Samples{}, err
	}
	var out Samples
	if err = b.ask(ctx); err == nil {
		out, err = f(b)
	}
	return out, errors.Join(err, b.close(ctx))
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
