package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation scope of all spans and metrics.
const Scope = "github.com/maf-sandbox/maf-sandbox-go/telemetry"

// Config says where telemetry goes. The zero value is useful: what the host sets
// as OpenTelemetry's global providers gets it, also when it is set later.
type Config struct {
	// TracerProvider gets the spans; the global one when nil.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the metrics; the global one when nil.
	MeterProvider metric.MeterProvider
	// Identities has spans, never metrics, say for whom a sandbox is: scope,
	// thread, agent and call. They often identify people.
	Identities bool
}

// Instrumentation makes the parts that are put round a backend and a router. It
// holds nothing to close. All methods may be called at the same time.
type Instrumentation struct {
	identities bool
	tracer     trace.Tracer
	meter      metric.Meter
	kinds      kinds

	duration     metric.Float64Histogram
	wait         metric.Float64Histogram
	count        metric.Int64ObservableUpDownCounter
	acquisitions metric.Int64Counter
	refusals     metric.Int64Counter
	cleanups     metric.Int64Counter
	decisions    metric.Int64Counter
}

// buckets are bounds in seconds, from a reset, which takes a tenth of a
// millisecond, to the default time-out of a call of the tool.
var buckets = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
}

// New makes an instrumentation. What a provider refuses is reported to
// OpenTelemetry's error handler and not recorded.
func New(c Config) *Instrumentation {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	i := &Instrumentation{identities: c.Identities, tracer: c.TracerProvider.Tracer(Scope), meter: c.MeterProvider.Meter(Scope)}
	i.duration = i.histogram("sandbox.operation.duration", "Duration of operations on sandboxes, the wait for a turn included.")
	i.wait = i.histogram("sandbox.admission.wait", "Time that calls waited for calls ahead of them.")
	i.acquisitions = i.counter("sandbox.acquisitions", "{sandbox}", "Sandboxes that the router handed out, by why they are clean.")
	i.refusals = i.counter("sandbox.refusals", "{call}", "Calls and acquisitions that got no sandbox.")
	i.cleanups = i.counter("sandbox.cleanups", "{cleanup}", "Sandboxes that were cleaned after calls.")
	i.decisions = i.counter("sandbox.egress.decisions", "{request}", "Attempts of programs to reach a host.")
	var err error
	i.count, err = i.meter.Int64ObservableUpDownCounter("sandbox.count", metric.WithUnit("{sandbox}"),
		metric.WithDescription("Sandboxes that are alive, by what they do."))
	if err != nil {
		otel.Handle(err)
		i.count = noop.Int64ObservableUpDownCounter{}
	}
	return i
}

func (i *Instrumentation) histogram(name, description string) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

func (i *Instrumentation) counter(name, unit, description string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Counter{}
	}
	return c
}
