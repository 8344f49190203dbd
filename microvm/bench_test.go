package microvm

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func benchKey(agent string) sandbox.Key {
	return sandbox.Key{Scope: "bench", ThreadID: "bench", AgentID: agent}
}

// benchSandbox is a sandbox that has answered.
func benchSandbox(b *testing.B, pool int) (*Backend, *Sandbox) {
	c := live(b)
	c.Pool = pool
	backend, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	})
	s, err := backend.Get(context.Background(), benchKey("a"), sandbox.Spec{Kind: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	ask(b, s)
	return backend, s
}

func ask(tb testing.TB, s sandbox.Sandbox) {
	tb.Helper()
	r, err := s.RunCode(context.Background(), "print(6*7)", 0)
	if err != nil || string(r.Stdout) != "42\n" {
		tb.Fatalf("%q, %q, %v", r.Stdout, r.Stderr, err)
	}
}

func BenchmarkWarmRun(b *testing.B) {
	_, s := benchSandbox(b, 0)
	timed(b, func() { ask(b, s) })
}

func BenchmarkReset(b *testing.B) {
	_, s := benchSandbox(b, 0)
	timed(b, func() {
		if err := s.Reset(context.Background()); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkResetAndRun(b *testing.B) {
	_, s := benchSandbox(b, 0)
	timed(b, func() {
		if err := s.Reset(context.Background()); err != nil {
			b.Fatal(err)
		}
		ask(b, s)
	})
}

func BenchmarkFreshSandbox(b *testing.B) {
	backend, _ := benchSandbox(b, 0)
	var samples []time.Duration
	for b.Loop() {
		start := time.Now()
		s, err := backend.Get(context.Background(), benchKey("b"), sandbox.Spec{Kind: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		ask(b, s)
		samples = append(samples, time.Since(start))
		if err := backend.Dispose(context.Background(), benchKey("b"), sandbox.DisposeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	percentiles(b, samples)
}

// percentiles reports the median and the 99th of a benchmark's samples.
func percentiles(b *testing.B, samples []time.Duration) {
	slices.Sort(samples)
	at := func(p float64) float64 {
		return samples[min(len(samples)-1, int(p*float64(len(samples))))].Seconds() * 1000
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}

// timed runs f as often as the benchmark wants and reports percentiles.
func timed(b *testing.B, f func()) {
	var samples []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		samples = append(samples, time.Since(start))
	}
	percentiles(b, samples)
}
