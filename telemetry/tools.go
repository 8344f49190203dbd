package telemetry

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

var opTool = op{"tool", "sandbox.tool"}

// How the call of a tool can fail, as an error.type. The text of its error is not
// recorded: it may repeat what the program said.
const (
	toolFailed   = "tool_failed"
	toolPanicked = "tool_panicked"
	// toolAbandoned: nobody waited for it any more when it ended.
	toolAbandoned = "tool_abandoned"
)

// tools are the spec's, with every call in a span below the run that made it, and
// above what the tool does itself.
func (b *Backend) tools(h *sandbox.HostTools, l *labels) *sandbox.HostTools {
	return h.Decorated(func(t sandbox.Tool) sandbox.ToolFunc {
		return func(ctx context.Context, arguments json.RawMessage) (result any, err error) {
			ctx, r := b.i.begin(ctx, opTool, l)
			if r.recording() {
				r.set(keyTool.String(t.Name))
				if c, ok := sandbox.ToolCallerOf(ctx); ok {
					r.set(keyInstance.String(c.InstanceID))
				}
			}
			failure := toolPanicked
			defer func() { r.endTool(ctx, t.Name, failure) }()
			result, err = t.Call(ctx, arguments)
			switch {
			case ctx.Err() != nil:
				failure = toolAbandoned
			case err != nil:
				failure = toolFailed
			default:
				failure = ""
			}
			return result, err
		}
	})
}

// endTool ends the call of a tool; failure is empty when there was none.
func (r *running) endTool(ctx context.Context, name, failure string) {
	attributes := append(r.labels.attributes(), keyOperation.String(r.op.word), keyTool.String(name), keyOutcome.String(outcomeOK))
	if failure != "" {
		attributes[len(attributes)-1] = keyOutcome.String(outcomeError)
		attributes = append(attributes, keyErrorType.String(failure))
	}
	if failure != "" && r.recording() {
		r.set(keyErrorType.String(failure))
		r.span.SetStatus(codes.Error, failure)
	}
	if !r.started.IsZero() {
		r.instrumentation.duration.Record(ctx, time.Since(r.started).Seconds(), metric.WithAttributes(attributes...))
	}
	r.span.End()
}
