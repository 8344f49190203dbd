package mcp

import (
	"context"
	"log/slog"

	"github.com/maf-sandbox/maf-sandbox-go/router"
)

// requests logs what programs reach for: refusals for the operator who wonders
// why something does not work, the rest for one who wants to see it. A host that is
// refused has no name here: that is the program's own text, which its client is
// told.
type requests struct{ logger *slog.Logger }

// Observe implements router.Observer.
func (r requests) Observe(event router.Event) {
	seen, ok := event.(router.EgressObserved)
	if !ok {
		return
	}
	for _, d := range seen.Decisions {
		level := slog.LevelInfo
		if !d.Allowed {
			level = slog.LevelWarn
		}
		attributes := []slog.Attr{
			slog.String("key", seen.Key.String()), slog.Bool("allowed", d.Allowed), slog.String("reason", d.Reason), slog.Int("port", int(d.Port)),
		}
		if d.Allowed {
			attributes = append(attributes, slog.String("host", d.Host), slog.Duration("duration", d.Duration))
		}
		r.logger.LogAttrs(context.Background(), level, "a program made a request", attributes...)
	}
}
