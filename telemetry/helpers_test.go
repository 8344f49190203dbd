package telemetry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

var (
	mainKey = sandbox.Key{Scope: "tenant-x", ThreadID: "thread-x", AgentID: "agent-x"}
	// identities are what mainKey must never leave in telemetry.
	identities = []string{"tenant-x", "thread-x", "agent-x"}

	pythonSpec = sandbox.Spec{Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode)}
)

// sdk is where a test's telemetry goes.
type sdk struct {
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
	config telemetry.Config
	tracer trace.Tracer // the host's own
}

func newSDK(t testing.TB, options ...sdktrace.TracerProviderOption) *sdk {
	t.Helper()
	s := &sdk{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	tp := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(s.spans))...)
	mp := metric.NewMeterProvider(metric.WithReader(s.reader))
	s.config.TracerProvider, s.config.MeterProvider = tp, mp
	s.tracer = tp.Tracer("host")
	t.Cleanup(func() {
		for _, shutdown := range []func(context.Context) error{tp.Shutdown, mp.Shutdown} {
			if err := shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// tree is every span that has ended, each below its parent, siblings in the order
// in which they began: name, attributes that are wanted, and the status.
func (s *sdk) tree(wanted ...attribute.Key) string {
	ended := s.spans.Ended()
	slices.SortStableFunc(ended, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var b strings.Builder
	var below func(parent trace.SpanID, depth int)
	below = func(parent trace.SpanID, depth int) {
		for _, span := range ended {
			if span.Parent().SpanID() != parent {
				continue
			}
			b.WriteString(strings.Repeat("  ", depth) + span.Name())
			for _, key := range wanted {
				if value, there := attributeOf(span, key); there {
					fmt.Fprintf(&b, " %s=%s", key, value.String())
				}
			}
			if status := span.Status(); status.Description != "" {
				fmt.Fprintf(&b, " %s: %s", status.Code, status.Description)
			}
			b.WriteString("\n")
			below(span.SpanContext().SpanID(), depth+1)
		}
	}
	below(trace.SpanID{}, 0)
	return b.String()
}

func attributeOf(span sdktrace.ReadOnlySpan, key attribute.Key) (attribute.Value, bool) {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value, true
		}
	}
	return attribute.Value{}, false
}

// span is the one span of that name.
func (s *sdk) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found sdktrace.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.Name() == name {
			if found != nil {
				t.Fatalf("more than one span %s", name)
			}
			found = span
		}
	}
	if found == nil {
		t.Fatalf("no span %s in\n%s", name, s.tree())
	}
	return found
}

// series are the measurements, in the form "name{a=b,...} n": a counter's or an
// up-down counter's value, a histogram's count.
func (s *sdk) series(t *testing.T, prefix string) []string {
	t.Helper()
	var lines []string
	point := func(name string, attributes attribute.Set, n any) {
		if strings.HasPrefix(name, prefix) {
			lines = append(lines, fmt.Sprintf("%s{%s} %v", name, attributes.Encoded(attribute.DefaultEncoder()), n))
		}
	}
	for _, m := range s.metrics(t) {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				point(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				point(m.Name, p.Attributes, p.Count)
			}
		default:
			t.Errorf("%s is a %T", m.Name, data)
		}
	}
	slices.Sort(lines)
	return lines
}

func (s *sdk) metrics(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var metrics []metricdata.Metrics
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != telemetry.Scope {
			t.Errorf("a scope of the name %q", scope.Scope.Name)
		}
		metrics = append(metrics, scope.Metrics...)
	}
	return metrics
}

// everything is all text that spans and metrics have, each part on its line: where
// a secret is looked for.
func (s *sdk) everything(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	write := func(attributes []attribute.KeyValue) {
		for _, a := range attributes {
			fmt.Fprintf(&b, "%s=%s\n", a.Key, a.Value.String())
		}
	}
	for _, span := range s.spans.Ended() {
		fmt.Fprintln(&b, span.Name(), span.Status().Description, span.InstrumentationScope())
		write(span.Attributes())
		for _, event := range span.Events() {
			fmt.Fprintln(&b, event.Name)
			write(event.Attributes)
		}
		for _, link := range span.Links() {
			write(link.Attributes)
		}
	}
	for _, m := range s.metrics(t) {
		fmt.Fprintf(&b, "%s %s %+v\n", m.Name, m.Description, m.Data)
	}
	b.WriteString(strings.Join(s.series(t, ""), "\n"))
	return b.String()
}

// silent fails when telemetry has one of the texts.
func (s *sdk) silent(t *testing.T, secrets ...string) {
	t.Helper()
	all := s.everything(t)
	for _, secret := range secrets {
		if strings.Contains(all, secret) {
			t.Errorf("telemetry has %q:\n%s", secret, all)
		}
	}
}

func memory(config sandboxtest.Config) *sandboxtest.Backend {
	config.Isolation = sandbox.IsolationMicroVM
	return sandboxtest.New(config)
}

func acquire(t testing.TB, b sandbox.Backend, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := b.Acquire(t.Context(), mainKey, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func equalLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	equal(t, what, strings.Join(got, "\n"), strings.Join(want, "\n"))
}
