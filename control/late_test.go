package control_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// overrun is the time of operations that must reach the backend, over HTTP, and
// then overrun it.
const overrun = 10 * shortTime

// announced is what a console has of one host: discovered and asked over HTTP.
func announced(t *testing.T, c control.Control) *control.Composite {
	t.Helper()
	dir := shortDir(t)
	started(t, control.ServerConfig{Control: c, Directory: dir, DisposeTimeout: patience})
	hosts, err := control.Discover(t.Context(), dir)
	if err != nil || len(hosts) != 1 || hosts[0].Err != nil {
		t.Fatalf("Discover = %+v, %v", hosts, err)
	}
	return control.Unite(hosts)
}

// What became of a disposal that ran out of time, a repeat finds: absence, or the
// same generation, which can be disposed of then (G4).
func TestARepeatAfterALateDisposalFindsAbsenceOrTheSameGeneration(t *testing.T) {
	for _, tt := range []struct {
		name    string
		mode    string // of the backend
		hang    bool   // quiescence is not reached in time
		listed  bool   // the same generation is offered afterwards
		repeats control.DisposalStatus
	}{
		{"the backend finishes late", modeStuck, false, false, control.NotFound},
		{"the backend gives up late", modeHang, false, false, control.NotFound},
		{"the backend was never asked", modeOK, true, true, control.Disposed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHosted()
			box, err := h.acquire("python")
			if err != nil {
				t.Fatal(err)
			}
			id := box.ID()
			var hang atomic.Bool
			hang.Store(tt.hang)
			c := announced(t, h.control(func(ctx context.Context, _ sandbox.Key) (func(), error) {
				if hang.Load() {
					return nil, untilEnd(ctx)
				}
				return func() {}, nil
			}, true))
			h.backend.set(tt.mode)
			result, err := c.Dispose(t.Context(), id, overrun)
			if err != nil || result.Status != control.DisposalFailed || !strings.Contains(result.Message, "timed out") {
				t.Errorf("in too short a time: %+v, %v", result, err)
			}
			// The host's time for it may end a moment after its client's.
			eventually(t, func() bool {
				records := inventory(t, c)
				return len(records) == 0 && !tt.listed || len(records) == 1 && records[0].InstanceID == id && tt.listed
			}, "the generation is offered, or is not, against what is known of it")
			hang.Store(false)
			h.backend.set(modeOK)
			if tt.mode == modeStuck {
				close(h.backend.letGo)
				eventually(t, func() bool { return len(h.backend.boxes()) == 0 }, "the late disposal does not end")
			}
			if result, err := c.Dispose(t.Context(), id, patience); err != nil || result.Status != tt.repeats {
				t.Errorf("the repeat: %+v, %v, want %s", result, err, tt.repeats)
			}
		})
	}
}

// Whoever gives up while a disposal that ran out of time still settles knows
// nothing of its end, and neither does anybody whose server closes then (G4).
func TestADisposalThatIsCancelledWhileItSettlesIsUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cancel func(caller context.CancelFunc, server *control.Server) error
	}{
		{"by its caller", func(caller context.CancelFunc, _ *control.Server) error { caller(); return nil }},
		{"by the end of its server", func(_ context.CancelFunc, server *control.Server) error { return server.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			settling, release, settled := make(chan struct{}), make(chan struct{}), make(chan struct{})
			memory := control.NewMemory(record("one"))
			host := &scripted{records: []control.Record{record("one")}}
			host.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
				defer close(settled)
				<-ctx.Done()
				close(settling)
				<-release
				return memory.Dispose(context.WithoutCancel(ctx), id, 0)
			}
			server, m := started(t, control.ServerConfig{Control: host, DisposeTimeout: patience})
			client, err := control.NewClient(m)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answer := make(chan control.DisposalResult, 1)
			go func() {
				result, err := client.Dispose(ctx, "one", overrun)
				if err != nil {
					t.Errorf("Dispose: %v", err)
				}
				answer <- result
			}()
			select {
			case <-settling:
			case <-time.After(patience):
				t.Fatal("the disposal does not begin to settle")
			}
			if err := tt.cancel(cancel, server); err != nil {
				t.Error(err)
			}
			if result := <-answer; result.Status != control.DisposalFailed {
				t.Errorf("Dispose = %+v", result)
			}
			close(release)
			<-settled
			if result, err := memory.Dispose(t.Context(), "one", 0); err != nil || result.Status != control.NotFound {
				t.Errorf("the repeat: %+v, %v", result, err)
			}
		})
	}
}
