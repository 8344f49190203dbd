package mcp

import (
	"context"
	"log/slog"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// factsOf gives what there is to tell a model of the image of a backend's sandboxes;
// nil for a backend that knows nothing. A Python that is captured only now, at the
// first start of all and after an upgrade, is known when warmed is closed.
func factsOf(backend sandbox.Backend, warmed <-chan struct{}, logger *slog.Logger) func(context.Context) sandbox.Facts {
	b, ok := backend.(*lazy)
	if !ok || b.facts == nil {
		return nil
	}
	return func(ctx context.Context) sandbox.Facts {
		if facts, err := b.facts(sandbox.Spec{}); err == nil {
			return facts
		}
		select {
		case <-warmed:
		case <-ctx.Done(): // a capture may have ended without a sandbox being ready
		}
		facts, err := b.facts(sandbox.Spec{})
		if err != nil {
			logger.Info("the model is not told what is in the image", "error", err)
		}
		return facts
	}
}
