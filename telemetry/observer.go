package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Observer counts what a router tells: who was refused, how long calls waited,
// why sandboxes were clean, how they were cleaned. Disposals and requests are the
// matter of [Instrumentation.Backend]. Events go on to next, unless it is nil.
func (i *Instrumentation) Observer(next router.Observer) router.Observer {
	return router.ObserverFunc(func(event router.Event) {
		i.observe(event)
		if next != nil {
			next.Observe(event)
		}
	})
}

func (i *Instrumentation) observe(event router.Event) {
	// An event has no context of its own.
	ctx := context.Background()
	switch e := event.(type) {
	case router.CallAdmitted:
		if i.wait.Enabled(ctx) {
			i.wait.Record(ctx, e.Wait.Seconds(), of(e.Backend, e.Kind, keyExclusive.Bool(e.Exclusive)))
		}
	case router.SandboxAcquired:
		switch {
		case e.Err != nil && i.refusals.Enabled(ctx):
			i.refusals.Add(ctx, 1, of(e.Backend, e.Spec.Kind, keyErrorType.String(sandbox.ErrorType(e.Err))))
		case e.Err == nil && i.acquisitions.Enabled(ctx):
			i.acquisitions.Add(ctx, 1, of(e.Backend, e.Spec.Kind, keyAdoption.String(e.Adoption.String())))
		}
	case router.SandboxCleaned:
		if !i.cleanups.Enabled(ctx) {
			return
		}
		attributes := []attribute.KeyValue{keyRung.String(e.Rung.String()), keyOutcome.String(outcomeOK)}
		switch {
		case e.Err != nil:
			attributes[1] = keyOutcome.String(outcomeError)
			attributes = append(attributes, keyErrorType.String(sandbox.ErrorType(e.Err)))
		case e.Skipped:
			attributes[1] = keyOutcome.String(outcomeSkipped)
		}
		i.cleanups.Add(ctx, 1, of(e.Backend, e.Kind, attributes...))
	}
}

// of are the attributes of a measurement.
func of(backend, kind string, more ...attribute.KeyValue) metric.MeasurementOption {
	l := labels{backend: backend, kind: kind}
	return metric.WithAttributes(append(l.attributes(), more...)...)
}
