package telemetry_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

// idle is a backend whose one sandbox does nothing, at no cost.
type idle struct{ *sandboxtest.Backend }

type idleSandbox struct{ sandbox.Sandbox }

var theIdle = new(idleSandbox)

func (idle) Acquire(context.Context, sandbox.Key, sandbox.Spec) (sandbox.Sandbox, error) {
	return theIdle, nil
}
func (*idleSandbox) ID() string                  { return "id" }
func (*idleSandbox) Reset(context.Context) error { return nil }
func (*idleSandbox) RunCode(context.Context, string, time.Duration) (sandbox.ExecResult, error) {
	return sandbox.ExecResult{}, nil
}

// sampled are providers of the SDK, with nobody behind them.
func sampled(b *testing.B) telemetry.Config {
	b.Helper()
	return telemetry.Config{
		TracerProvider: sdktrace.NewTracerProvider(),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
	}
}

// BenchmarkDecorator is what the decorator adds to a run, a reset and an acquire:
// without providers, and with the SDK's, with nobody behind them.
func BenchmarkDecorator(b *testing.B) {
	for _, r := range []struct {
		name   string
		config func(b *testing.B) telemetry.Config
	}{
		{"off", func(*testing.B) telemetry.Config { return telemetry.Config{} }},
		{"on", func(b *testing.B) telemetry.Config { return sampled(b) }},
	} {
		backend := telemetry.New(r.config(b)).Backend(idle{memory(sandboxtest.Config{})})
		box, err := backend.Acquire(context.Background(), mainKey, pythonSpec)
		if err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		b.Run(r.name+"/run", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = box.RunCode(ctx, "code", time.Second)
			}
		})
		b.Run(r.name+"/reset", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = box.Reset(ctx)
			}
		})
		b.Run(r.name+"/acquire", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = backend.Acquire(ctx, mainKey, pythonSpec)
			}
		})
	}
}

// What is measured above depends on the machine; this does not.
func TestAnOperationAllocatesLittleWithoutProviders(t *testing.T) {
	backend := telemetry.New(telemetry.Config{}).Backend(idle{memory(sandboxtest.Config{})})
	ctx := context.Background()
	box, err := backend.Acquire(ctx, mainKey, pythonSpec)
	if err != nil {
		t.Fatal(err)
	}
	// OpenTelemetry's span of nobody, its SpanContext in it, and its context.
	const most = 3
	for name, operation := range map[string]func(){
		"run":     func() { _, _ = box.RunCode(ctx, "code", time.Second) },
		"reset":   func() { _ = box.Reset(ctx) },
		"acquire": func() { _, _ = backend.Acquire(ctx, mainKey, pythonSpec) },
	} {
		if got := testing.AllocsPerRun(100, operation); got > most {
			t.Errorf("%s allocates %v times, want at most %d", name, got, most)
		}
	}
}
