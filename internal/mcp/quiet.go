package mcp

import (
	"context"
	"log/slog"
)

// sessionAttribute is where the SDK's logs have the id of a session.
const sessionAttribute = "session_id"

// quiet is a log without the ids by which clients know their sessions: whoever
// has one can use the session, and logs are read by others.
type quiet struct{ slog.Handler }

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	told := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != sessionAttribute {
			told.AddAttrs(a)
		}
		return true
	})
	return q.Handler.Handle(ctx, told)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attributes []slog.Attr) slog.Handler {
	var told []slog.Attr
	for _, a := range attributes {
		if a.Key != sessionAttribute {
			told = append(told, a)
		}
	}
	return quiet{q.Handler.WithAttrs(told)}
}

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
