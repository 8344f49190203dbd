// Command consolebench measures the operator console beside the Python program
// that it replaces, in one run: each round starts one and then the other, so
// that a busy machine is busy for both.
//
//	bench/console.sh
//
// makes what this needs and runs it; see there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/bench"
)

// many is how many sandboxes a host has whose console is to stay quick.
const many = 10_000

// program is a console under test.
type program struct{ name, path string }

// task is one thing that both programs do.
type task struct {
	name, promise string
	times         int
	do            func(ctx context.Context, p program, n int) ([]time.Duration, error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	peer := flag.String("peer", "", "the Python program mst; without it only ours is measured")
	times := flag.Int("n", 30, "how often each thing is done")
	flag.Parse()
	if flag.NArg() > 0 || *times < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, os.Stdout, *peer, *times); err != nil {
		fmt.Fprintln(os.Stderr, "consolebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, peer string, times int) error {
	dir, err := os.MkdirTemp("", "consolebench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ours := filepath.Join(dir, "mst")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", ours, "./cmd/mst")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build mst: %w", err)
	}
	programs := []program{{"mst", ours}}
	if peer != "" {
		programs = append(programs, program{"Python mst", peer})
	}

	few, closeFew, err := host(filepath.Join(dir, "few"), control.DemoRecords("bench", time.Now()))
	if err != nil {
		return err
	}
	defer closeFew()
	crowd, closeCrowd, err := host(filepath.Join(dir, "crowd"), records(many))
	if err != nil {
		return err
	}
	defer closeCrowd()

	tasks := []task{
		{"mst version", "15 ms", times, command(few, "version")},
		{"mst list --json, 3 sandboxes", "", times, command(few, "list", "--json")},
		{"mst list --json, 10,000 sandboxes", "", max(1, times/5), command(crowd, "list", "--json")},
		{"first paint of the console", "60 ms", times, firstPaint(few, "LIVE INSTANCES")},
		{"first paint with the sandboxes", "", times, firstPaint(few, "incident-184")},
		{"key to paint, 10,000 sandboxes", "", times, keys(crowd)},
	}
	const line = "%-34s  %-10s  %4v  %8s  %8s  %8s  %8s\n"
	if _, err := fmt.Fprintf(out, "%s/%s, %d processors, %s; milliseconds\n\n"+line, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(),
		"what", "program", "n", "median", "p95", "p99", "promise"); err != nil {
		return err
	}
	for _, t := range tasks {
		measured, err := t.measure(ctx, programs)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		for i, p := range programs {
			promise := t.promise
			if i > 0 {
				promise = ""
			}
			m := measured[i]
			if _, err := fmt.Fprintf(out, line, t.name, p.name, len(m), at(m, 50), at(m, 95), at(m, 99), promise); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure does a task with all programs in turn. What a program is asked to do
// within one process, it does in one go.
func (t task) measure(ctx context.Context, programs []program) ([][]float64, error) {
	measured := make([][]float64, len(programs))
	over := make([]bool, len(programs))
	for range t.times {
		for i, p := range programs {
			if len(measured[i]) >= t.times || over[i] {
				continue
			}
			took, err := t.do(ctx, p, t.times)
			if over[i] = errors.Is(err, errPatience); over[i] {
				continue // the other one is measured all the same
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			for _, d := range took {
				measured[i] = append(measured[i], float64(d)/float64(time.Millisecond))
			}
		}
	}
	for _, m := range measured {
		slices.Sort(m)
	}
	return measured, nil
}

func at(sorted []float64, p float64) string {
	if len(sorted) == 0 {
		return errPatience.Error()
	}
	return fmt.Sprintf("%.1f", bench.Percentile(sorted, p))
}

// host serves records from this process, in a discovery folder of its own.
func host(dir string, records []control.Record) (directory string, stop func(), err error) {
	server, err := control.NewServer(control.ServerConfig{Control: control.NewMemory(records...), SourceID: "bench", Directory: dir})
	if err != nil {
		return "", nil, err
	}
	if err := server.Start(); err != nil {
		return "", nil, errors.Join(err, server.Close())
	}
	return dir, func() { _ = server.Close() }, nil
}

// records are sandboxes whose order is the same for everybody.
func records(n int) []control.Record {
	now := control.At(time.Now())
	made := make([]control.Record, n)
	for i := range made {
		made[i] = control.Record{
			SourceID: "bench", Backend: "microvm", Scope: "team", ThreadID: fmt.Sprintf("t-%05d", i), AgentID: "agent", Kind: "python",
			InstanceID: instance(i), State: control.StateReady, CreatedAt: now - 100, LastActivityAt: now - 5, ProcessID: 1000 + i,
		}
	}
	return made
}

// instance is the id of a sandbox: its first characters tell it from others.
func instance(i int) string { return fmt.Sprintf("%05x", i) + "5a8c0d4ea0ab1af045d94810015" }

// command runs a command line; its time is that of the whole process.
func command(directory string, args ...string) func(context.Context, program, int) ([]time.Duration, error) {
	return func(ctx context.Context, p program, _ int) ([]time.Duration, error) {
		cmd := exec.CommandContext(ctx, p.path, args...)
		cmd.Env = environment(directory)
		start := time.Now()
		out, err := cmd.Output()
		took := time.Since(start)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		if err != nil {
			return nil, err
		}
		if len(out) == 0 {
			return nil, errors.New("no output")
		}
		return []time.Duration{took}, nil
	}
}

// environment is what both programs get: Python's warnings of an experimental
// package go to standard error otherwise.
func environment(directory string) []string {
	return append(os.Environ(), "MAF_SANDBOX_TUI_RUNTIME_DIR="+directory, "PYTHONWARNINGS=ignore", "TERM=xterm-256color", "COLORTERM=truecolor")
}
