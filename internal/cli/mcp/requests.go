package mcp

import (
	"context"
	"log/slog"

	"github.com/maf-sandbox/maf-sandbox-go/router"
)

// requests logs what programs reach for: refusals for the operator who wonders
// why something does not work, the rest for one who wants to see it.
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
		r.logger.Log(context.Background(), level, "a program made a request", "key", seen.Key.String(), "host", d.Host, "port", d.Port,
			"allowed", d.Allowed, "reason", d.Reason)
	}
}
