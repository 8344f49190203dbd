package command

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// late is a host whose disposals end when they are let, whatever the time.
type late struct {
	*control.Memory
	entered, release, settled chan struct{}
	// works says that a disposal that was let end has taken effect.
	works bool
}

func (l *late) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	l.entered <- struct{}{}
	<-l.release
	defer func() { l.settled <- struct{}{} }()
	if !l.works {
		return control.DisposalResult{Status: control.DisposalFailed, InstanceID: id, Message: "it did not end"}, nil
	}
	return l.Memory.Dispose(context.WithoutCancel(ctx), id, timeout)
}

// The collected case G4: what a host does after the time of a disposal, or after
// its operator has given up, is never told as done; who asks again is told the
// truth.
func TestADisposalThatEndsLateIsNeverToldAsDone(t *testing.T) {
	for name, row := range map[string]struct {
		works  bool
		cancel bool
		want   string // of the repeat
		status int
	}{
		"done after the time was over":         {works: true, want: "already gone", status: ExitAbsent},
		"not done after the time was over":     {want: "disposed: ", status: 0},
		"done after the operator had left":     {works: true, cancel: true, want: "already gone", status: ExitAbsent},
		"not done after the operator had left": {cancel: true, want: "disposed: ", status: 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "hosts")
			host := &late{
				Memory:  control.NewMemory(record("one", "host", nil)),
				entered: make(chan struct{}, 2), release: make(chan struct{}), settled: make(chan struct{}, 2), works: row.works,
			}
			_, stop := serve(t, dir, "host", host)
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, out, errOut := streams.Test("")
			f := &Factory{Streams: s, Now: time.Now, Directory: dir, Installation: installed, SelfUpdate: scriptedUpdate}
			timeout := "0.3"
			if row.cancel {
				timeout = "20"
				go func() { <-host.entered; cancel() }()
			}
			status := Run(ctx, f, []string{"delete", "one", "--yes", "--timeout", timeout})
			if said := out.String() + errOut.String(); status != ExitFailed || strings.Contains(said, "disposed") {
				t.Errorf("status %d, %q", status, said)
			}
			close(host.release)
			<-host.settled
			if !row.works {
				got := player{directory: dir}.run(t, "show", "one", "--json")
				if got.status != 0 || !strings.Contains(got.out, `"one"`) {
					t.Errorf("the same generation: %+v", got)
				}
				host.works = true
			}
			got := player{directory: dir}.run(t, "delete", "one", "--yes", "--timeout", "20")
			if got.status != row.status || !strings.Contains(got.out+got.errOut, row.want) {
				t.Errorf("the repeat: %+v, want status %d and %q", got, row.status, row.want)
			}
		})
	}
}
