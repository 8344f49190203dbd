package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// killEvery is how often a worker is killed.
const killEvery = 100

// soak goes through n cycles and then looks whether anything is left. The
// first few come before it looks at all: they start what stays.
func (s *suite) soak(ctx context.Context, n int) (out Samples, err error) {
	backend, err := s.open(0)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	for range warmUp {
		if err := s.cycle(ctx, backend, keepAlive); err != nil {
			return out, err
		}
	}
	before, err := takeStock()
	if err != nil {
		return out, err
	}
	for i := range n {
		start := time.Now()
		if err := s.cycle(ctx, backend, fateOf(i)); err != nil {
			return out, fmt.Errorf("cycle %d: %w", i+1, err)
		}
		out.Values = append(out.Values, MS(time.Since(start)))
	}
	return out, nothingLeft(ctx, before)
}

// fate is what becomes of a sandbox of the soak.
type fate int

const (
	keepAlive  fate = iota
	killIdle        // its worker is killed before the run
	killInARun      // or in the middle of it
)

func fateOf(cycle int) fate {
	switch {
	case cycle%killEvery != killEvery-1:
		return keepAlive
	case cycle/killEvery%2 == 0:
		return killIdle
	}
	return killInARun
}

func (s *suite) cycle(ctx context.Context, backend *microvm.Backend, f fate) (err error) {
	b, err := s.acquire(ctx, backend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	switch f {
	case killIdle:
		if err := killWorker(); err != nil {
			return err
		}
		_, err = b.Run(ctx, microvm.Request{Code: answer})
	case killInARun:
		started := &signal{c: make(chan struct{})}
		killed := make(chan error, 1)
		go func() {
			<-started.c
			killed <- killWorker()
		}()
		_, err = b.Run(ctx, microvm.Request{Code: "print('started', flush=True)\nwhile True: pass", Stdout: started})
		started.done() // if it never was
		if err := <-killed; err != nil {
			return err
		}
	default:
		return b.ask(ctx)
	}
	if !errors.Is(err, sandbox.ErrWorkerLost) {
		return fmt.Errorf("the worker was killed and the run ended with: %w", err)
	}
	return nil
}

// signal is a writer that closes a channel at the first write.
type signal struct {
	c      chan struct{}
	closed bool
}

// Write implements io.Writer.
func (s *signal) Write(p []byte) (int, error) {
	s.done()
	return len(p), nil
}

func (s *signal) done() {
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}

// killWorker kills the only process that is a child of a child of this one and
// not of another backend.
func killWorker() error {
	all, err := descendants()
	if err != nil {
		return err
	}
	var workers []int
	for _, p := range all {
		if p.parent != os.Getpid() {
			workers = append(workers, p.pid)
		}
	}
	if len(workers) != 1 {
		return fmt.Errorf("%d workers are there instead of the one to be killed", len(workers))
	}
	return syscall.Kill(workers[0], syscall.SIGKILL)
}
