package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const spanEgress = "sandbox.egress"

// unreadable is the reason of decisions that the backend could not read.
const unreadable = "unreadable"

// hosts are the names that a spec lists, as the host wrote them. Wildcards stand
// for names that a program chooses, so that they match none.
func hosts(spec sandbox.Spec) map[string]bool {
	if len(spec.EgressAllow) == 0 {
		return nil
	}
	listed := make(map[string]bool, len(spec.EgressAllow))
	for _, rule := range spec.EgressAllow {
		listed[rule.Host.String()] = true
	}
	return listed
}

// observe records what a sandbox reached for, and passes it on.
func (b *Backend) observe(o sandbox.EgressObservation) {
	s := b.shelf.at(place{o.Key, o.Kind})
	if s != nil && o.InstanceID != s.inner.ID() {
		s = nil // it is of an earlier one at this place
	}
	for i := range o.Decisions {
		b.decided(s, &o, &o.Decisions[i])
	}
	if o.Unreadable != "" {
		b.countDecision(o.Kind, false, unreadable)
	}
	if report := b.report.Load(); report != nil && *report != nil {
		(*report)(o)
	}
}

// decided records one decision: a span below the run that made the request, and
// a count.
func (b *Backend) decided(s *box, o *sandbox.EgressObservation, d *sandbox.EgressDecision) {
	reason := reasonWord(d.Reason)
	b.countDecision(o.Kind, d.Allowed, reason)

	ctx := trace.ContextWithSpanContext(context.Background(), s.current())
	ended := time.Now()
	options := slices.Concat(b.labels(o.Kind).start, []trace.SpanStartOption{trace.WithTimestamp(ended.Add(-d.Duration))})
	_, span := b.i.tracer.Start(ctx, spanEgress, options...)
	if span.IsRecording() {
		attributes := append(b.i.identity(o.Key), keyInstance.String(o.InstanceID), keyAllowed.Bool(d.Allowed), keyReason.String(reason))
		// Any other name is the program's own text.
		if s != nil && s.hosts[d.Host] {
			attributes = append(attributes, keyServer.String(d.Host), keyServerPort.Int(int(d.Port)))
		}
		if reason != reasonAllowed {
			attributes = append(attributes, keyErrorType.String(reason))
			span.SetStatus(codes.Error, reason)
		}
		span.SetAttributes(attributes...)
	}
	span.End(trace.WithTimestamp(ended))
}

const reasonAllowed = "allowed"

func (b *Backend) countDecision(kind string, allowed bool, reason string) {
	ctx := context.Background()
	if !b.i.decisions.Enabled(ctx) {
		return
	}
	attributes := append(b.labels(kind).attributes(), keyAllowed.Bool(allowed), keyReason.String(reason))
	b.i.decisions.Add(ctx, 1, metric.WithAttributes(attributes...))
}
