//go:build linux

package supervise

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

// report adds the percentiles of what was measured to a benchmark's result.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for name, at := range map[string]int{"p50-us": 50, "p99-us": 99} {
		b.ReportMetric(float64(took[(len(took)-1)*at/100].Microseconds()), name)
	}
}

func benchmarked(b *testing.B, spare int) *Supervisor {
	b.Helper()
	l, err := owner.Acquire(b.TempDir(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	c := config(l.File())
	c.Spare, c.Start.Image = spare, "echoes"
	s, err := Start(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
		_ = l.Release()
	})
	return s
}

// fill waits until the pool is full.
func fill(s *Supervisor) {
	for full := false; !full; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		full = len(s.pool.idle) == s.pool.spare
		s.mu.Unlock()
	}
}

// answered acquires a worker and has its first answer.
func answered(b *testing.B, s *Supervisor) *Worker {
	w, err := s.Acquire(context.Background())
	if err != nil {
		b.Error(err)
		return nil
	}
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		b.Error(err)
	}
	if _, err := w.Conn.Read(make([]byte, 1)); err != nil {
		b.Error(err)
	}
	return w
}

// BenchmarkFirstAnswer is the time from asking for a worker to its first
// answer, N3 without the machine.
func BenchmarkFirstAnswer(b *testing.B) {
	for _, c := range []struct {
		name  string
		spare int
	}{{"pool", 4}, {"fresh", 0}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchmarked(b, c.spare)
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				fill(s)
				b.StartTimer()
				began := time.Now()
				w := answered(b, s)
				took = append(took, time.Since(began))
				b.StopTimer()
				if w != nil {
					if err := w.Release(context.Background()); err != nil {
						b.Error(err)
					}
				}
				b.StartTimer()
			}
			report(b, took)
		})
	}
}

// BenchmarkStorm is 100 acquires at once, N6 without the machine.
func BenchmarkStorm(b *testing.B) {
	const calls = 100
	for _, c := range []struct {
		name  string
		spare int
	}{{"pool", MaxSpare}, {"no pool", 0}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchmarked(b, c.spare)
			var mu sync.Mutex
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				fill(s)
				b.StartTimer()
				var group sync.WaitGroup
				began := time.Now()
				workers := make([]*Worker, calls)
				for i := range calls {
					group.Go(func() {
						workers[i] = answered(b, s)
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(began))
					})
				}
				group.Wait()
				b.StopTimer()
				for _, w := range workers {
					if w != nil {
						_ = w.Release(context.Background())
					}
				}
				b.StartTimer()
			}
			report(b, took)
		})
	}
}
