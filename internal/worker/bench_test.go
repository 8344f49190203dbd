//go:build linux && amd64

package worker

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// BenchmarkFirstResult is the time from asking a supervisor for a worker until
// the result of its first program is there: N3 with a process.
func BenchmarkFirstResult(b *testing.B) {
	p, err := kvmvm.New()
	if err != nil {
		b.Skipf("needs a usable /dev/kvm: %v", err)
	}
	_ = p.Close()
	for _, c := range []struct {
		name  string
		spare int
	}{{"pool", 4}, {"fresh", 0}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, dir := context.Background(), b.TempDir()
			l, err := owner.Acquire(dir, "bench")
			if err != nil {
				b.Fatal(err)
			}
			s, err := supervise.Start(supervise.Config{
				Lock: l.File(), Role: Role, Spare: c.spare,
				Start:  wire.Start{Image: testImage(b, dir), Templates: filepath.Join(dir, "templates"), Grace: time.Second, Warm: c.spare > 0},
				Limits: supervise.Limits{Enforcement: supervise.Rlimit, MemoryMax: 4 << 30},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := s.Close(ctx); err != nil {
					b.Error(err)
				}
				_ = l.Release()
			})
			w, err := s.Acquire(ctx) // makes the template
			if err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				if err := w.Release(ctx); err != nil {
					b.Fatal(err)
				}
				time.Sleep(150 * time.Millisecond) // for the pool to be full
				b.StartTimer()
				began := time.Now()
				if w, err = s.Acquire(ctx); err != nil {
					b.Fatal(err)
				}
				first(b, w)
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			_ = w.Release(ctx)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[(len(took)-1)*99/100].Microseconds()), "p99-us")
		})
	}
}

// first runs a program in a worker.
func first(b *testing.B, w *supervise.Worker) {
	b.Helper()
	code, err := wire.Encode(wire.Run{Code: []byte("print(6 * 7)"), Timeout: time.Minute, MaxOutput: 1 << 20})
	if err == nil {
		err = wire.NewWriter(w.Conn).Write(wire.Frame{Kind: wire.KindRun, Call: 1, Payload: code})
	}
	if err != nil {
		b.Fatal(err)
	}
	for r := wire.NewReader(w.Conn, wire.MaxPayload); ; {
		f, err := r.Next()
		if err != nil {
			b.Fatal(err)
		}
		if f.Kind == wire.KindDone {
			return
		}
	}
}
