package microvm

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// A guest that has taken its worker over can make it say anything. The error tells
// the caller; the log is read by others.
func TestTheLogHasNoTextOfAWorker(t *testing.T) {
	const secret = "s3cret"
	for _, r := range []struct {
		name  string
		serve func(w *fakeWorker, f wire.Frame)
		level string
		class string
	}{
		{"a program that ended its interpreter", func(w *fakeWorker, f wire.Frame) {
			w.send(wire.KindDone, f.Call, wire.Done{Exited: true, ExitCode: 3})
		}, "INFO", "guest_crash"},
		{"a failure in its own words", func(w *fakeWorker, f wire.Frame) {
			w.send(wire.KindDone, f.Call, wire.Done{Kind: secret, Message: secret})
		}, "WARN", "internal"},
		{"a time-out that it did not survive", func(w *fakeWorker, f wire.Frame) {
			w.send(wire.KindDone, f.Call, wire.Done{Kind: "timeout", Message: secret})
		}, "INFO", "timeout"},
		{"last words on its standard error", func(w *fakeWorker, _ wire.Frame) {
			w.die(fmt.Errorf("ended: %w", errors.New(secret)))
		}, "WARN", "worker_lost"},
		{"a name of a frame", func(w *fakeWorker, f wire.Frame) {
			w.send(wire.KindStdout, f.Call+1, []byte(secret))
		}, "WARN", "worker_lost"},
	} {
		t.Run(r.name, func(t *testing.T) {
			var log bytes.Buffer
			b := fakeBackend(t, &fakeSystem{serve: answers(r.serve)}, Config{
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			s, err := b.Get(t.Context(), key(), spec())
			if err != nil {
				t.Fatal(err)
			}
			id := s.ID()
			if _, err = s.RunCode(t.Context(), secret, patience(10e9)); sandbox.Usable(err) {
				t.Fatalf("error %v", err)
			}
			want := fmt.Sprintf("level=%s msg=\"a sandbox is lost\" backend=%s key=tenant/thread/agent kind=%s id=%s op=run_code error_type=%s",
				r.level, b.Name(), spec().Kind, id, r.class)
			if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, secret) {
				t.Errorf("logged\n%s\nwant\n%s", got, want)
			}
		})
	}
}
