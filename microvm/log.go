package microvm

import (
	"context"
	"errors"
	"log/slog"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// logLoss logs that a sandbox is lost: as information where its program brought
// it about, such as by a time-out, else as a warning. The text of the error stays
// out: it may be what a program made its worker say.
func (s *Sandbox) logLoss(ctx context.Context, op string, err error) {
	level := slog.LevelInfo
	crashed := errors.Is(err, sandbox.ErrGuestCrash)
	if errors.Is(err, sandbox.ErrInternal) || errors.Is(err, sandbox.ErrWorkerLost) && !crashed {
		level = slog.LevelWarn
	}
	attributes := []slog.Attr{
		slog.String("backend", s.backend.config.Name), slog.String("key", s.place.Key.String()), slog.String("kind", s.place.Kind),
		slog.String("id", s.ID()), slog.String("op", op), slog.String("error_type", sandbox.ErrorType(err)),
	}
	var how interface{ LogAttrs() []slog.Attr }
	if errors.As(err, &how) {
		attributes = append(attributes, how.LogAttrs()...)
	}
	s.backend.config.Logger.LogAttrs(ctx, level, "a sandbox is lost", attributes...)
}
