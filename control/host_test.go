package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// shortTime is the time of operations that must overrun it.
const shortTime = 50 * time.Millisecond

// outcome is a row of what was measured of the protocol's first implementation
// over a scripted backend, with the router's floor at reset.
type outcome struct {
	name string
	// how the backend's disposals end
	mode string
	// timeout of the operation; a long one when zero
	timeout time.Duration
	kinds   []string
	silent  bool
	absent  bool // asks for an id that nobody has
	// quiescence: "" works, "none" is not configured, "hang" never enters,
	// "error" fails
	quiesce string
	before  func(h *hosted)
	inside  func(h *hosted)

	status  control.DisposalStatus
	message string
	calls   []string
	// after is the inventory: same ids as before, of which kinds
	after []string
	// renamed says that the inventory has another id
	renamed  bool
	retained bool
	// unclean says that the next acquire is refused
	unclean bool
}

const (
	gone     = "The sandbox is already gone or its generation changed."
	changed  = "The sandbox generation changed before disposal could be confirmed."
	twice    = "Duplicate physical instance id reported; exact disposal refused."
	timedOut = "Disposal timed out and was not confirmed."
	kept     = "Disposal was not confirmed; the backend retained the sandbox for retry."
	failed   = "A registered backend reported a disposal failure."
)

func disposals() []outcome {
	called := []string{"dispose python"}
	python := []string{"python"}
	both := []string{"codeact", "python"}
	crash := func(h *hosted) {
		for _, b := range h.backend.boxes() {
			b.become(liveness.Exited)
		}
	}
	rotate := func(h *hosted) {
		for _, b := range h.backend.boxes() {
			_ = b.Reset(context.Background())
		}
	}
	collide := func(h *hosted) {
		boxes := h.backend.boxes()
		for _, b := range boxes[1:] {
			b.rename(boxes[0].ID())
		}
	}
	return []outcome{
		{name: "normal", status: control.Disposed, message: "Sandbox disposed.", calls: called},
		{name: "worker had crashed", before: crash, status: control.Disposed, message: "Sandbox disposed.", calls: called},
		{name: "absent id", absent: true, status: control.NotFound, message: gone, after: python, retained: true},
		{name: "no quiescence configured", quiesce: "none", status: control.DisposalFailed, after: python, retained: true,
			message: "Exact disposal is disabled because the host did not configure a quiescence boundary."},
		{name: "backend returns a failure", mode: modeFail, status: control.DisposalFailed, message: failed, calls: called,
			after: python, retained: true, unclean: true},
		{name: "worker had crashed and backend returns a failure", before: crash, mode: modeFail, status: control.DisposalFailed,
			message: failed, calls: called, after: python, retained: true, unclean: true},
		{name: "worker had crashed and backend raises", before: crash, mode: modeRaise, status: control.DisposalFailed,
			message: failed, calls: called, unclean: true},
		{name: "backend raises", mode: modeRaise, status: control.DisposalFailed, message: failed, calls: called,
			retained: true, unclean: true},
		{name: "backend never settles", mode: modeHang, timeout: shortTime, status: control.DisposalFailed, message: timedOut,
			calls: called, retained: true, unclean: true},
		{name: "worker still runs", mode: modeNoExit, status: control.DisposalFailed, message: kept, calls: called,
			after: python, retained: true},
		{name: "no worker to observe", silent: true, status: control.DisposalFailed, message: kept, calls: called,
			after: python, retained: true},
		{name: "quiescence never entered", quiesce: "hang", timeout: shortTime, status: control.DisposalFailed, message: timedOut,
			after: python, retained: true},
		{name: "id rotates inside quiescence", inside: rotate, status: control.NotFound, message: changed,
			after: python, renamed: true, retained: true},
		{name: "two kinds share the id before", kinds: both, before: collide, status: control.DisposalFailed, message: twice,
			after: both, renamed: true, retained: true},
		{name: "two kinds share the id inside quiescence", kinds: both, inside: collide, status: control.DisposalFailed, message: twice,
			after: both, renamed: true, retained: true},
	}
}

func TestEveryMeasuredOutcomeOfADisposal(t *testing.T) {
	checkDisposals(t, newHosted)
}

func checkDisposals(t *testing.T, newHosted func() *hosted) {
	t.Helper()
	for _, row := range disposals() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHosted()
				h.backend.silent = row.silent
				ctl := h.control(quiescence(row, h), true)
				kinds := row.kinds
				if kinds == nil {
					kinds = []string{"python"}
				}
				for _, kind := range kinds {
					if _, err := h.acquire(kind); err != nil {
						t.Fatal(err)
					}
				}
				before := inventory(t, ctl)
				id := before[len(before)-1].InstanceID
				if row.before != nil {
					row.before(h)
					if len(kinds) > 1 {
						id = h.backend.boxes()[0].ID()
					}
				}
				if len(kinds) > 1 && row.inside != nil {
					// The id that will be shared is that of the first box.
					id = h.backend.boxes()[0].ID()
				}
				if row.absent {
					id = "absent"
				}
				h.backend.set(row.mode)
				timeout := row.timeout
				if timeout == 0 {
					timeout = patience
				}
				result, err := ctl.Dispose(context.Background(), id, timeout)
				h.backend.set(modeOK)
				if want := (control.DisposalResult{Status: row.status, InstanceID: id, Message: row.message}); err != nil || result != want {
					t.Errorf("Dispose = %+v, %v\nwant %+v", result, err, want)
				}
				if calls := h.backend.log(); !slices.Equal(calls, row.calls) {
					t.Errorf("the backend was called %q, want %q", calls, row.calls)
				}
				checkAfter(t, row, before, inventory(t, ctl))
				if got := retained(t, h); got != row.retained {
					t.Errorf("retained: %v, want %v", got, row.retained)
				}
				if _, err := h.acquire("python"); errors.Is(err, sandbox.ErrUnclean) != row.unclean || !row.unclean && err != nil {
					t.Errorf("the next acquire: %v, want unclean %v", err, row.unclean)
				}
			})
		})
	}
}

func quiescence(row outcome, h *hosted) func(context.Context, sandbox.Key) (func(), error) {
	if row.quiesce == "none" {
		return nil
	}
	return func(ctx context.Context, _ sandbox.Key) (func(), error) {
		if row.quiesce == "hang" {
			return nil, untilEnd(ctx)
		}
		if row.inside != nil {
			row.inside(h)
		}
		return func() {}, nil
	}
}

func inventory(t *testing.T, ctl control.Control) []control.Record {
	t.Helper()
	records, err := ctl.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func checkAfter(t *testing.T, row outcome, before, after []control.Record) {
	t.Helper()
	var kinds []string
	same := true
	for i, r := range after {
		kinds = append(kinds, r.Kind)
		same = same && i < len(before) && r.InstanceID == before[i].InstanceID
	}
	if !slices.Equal(kinds, row.after) || same == row.renamed && len(after) > 0 {
		t.Errorf("the inventory after is %+v, want kinds %v, renamed %v", after, row.after, row.renamed)
	}
}

// retained asks the only way there is: a purge that does nothing is purged only
// when nothing is left.
func retained(t *testing.T, h *hosted) bool {
	t.Helper()
	host, err := control.NewHost(control.HostConfig{
		SourceID: "src", Monitors: []*control.Monitor{h.monitor}, Router: h.router,
		Purge: func(context.Context, string, string) (sandbox.ScopePurge, error) { return sandbox.ScopePurge{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := host.Purge(context.Background(), testKey.Scope, testKey.ThreadID, patience)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status != control.Purged
}

func TestEveryMeasuredOutcomeOfAPurge(t *testing.T) {
	checkPurges(t, newHosted)
}

func checkPurges(t *testing.T, newHosted func() *hosted) {
	t.Helper()
	const unconfirmed = "Conversation purge was not confirmed: "
	for _, row := range []struct {
		name     string
		mode     string
		timeout  time.Duration
		callback bool
		status   control.PurgeStatus
		disposed int
		message  string
		after    int
		retained bool
	}{
		{name: "normal", callback: true, status: control.Purged, disposed: 2, message: "Conversation purged."},
		{name: "no callback", status: control.PurgePartial, after: 2, retained: true,
			message: "Conversation purge is disabled because the host did not configure a quiescence boundary."},
		{name: "backend purges one of two", callback: true, mode: modePartial, status: control.PurgePartial, disposed: 1,
			message: unconfirmed + "hyperlight: scripted partial", retained: true},
		{name: "backend never settles", callback: true, mode: modeHang, timeout: shortTime, status: control.PurgePartial,
			message: "Conversation purge timed out and was not confirmed.", retained: true},
		{name: "backend refuses", callback: true, mode: modeFail, status: control.PurgePartial, after: 2, retained: true,
			message: unconfirmed + "hyperlight: scripted"},
		{name: "workers still run", callback: true, mode: modeNoExit, status: control.PurgePartial, disposed: 2, after: 2, retained: true,
			message: unconfirmed + "matching sandboxes remain"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHosted()
				ctl := h.control(nil, row.callback)
				for _, kind := range []string{"python", "codeact"} {
					if _, err := h.acquire(kind); err != nil {
						t.Fatal(err)
					}
				}
				h.backend.set(row.mode)
				timeout := row.timeout
				if timeout == 0 {
					timeout = patience
				}
				result, err := ctl.Purge(context.Background(), testKey.Scope, testKey.ThreadID, timeout)
				h.backend.set(modeOK)
				want := control.PurgeResult{Status: row.status, Scope: testKey.Scope, ThreadID: testKey.ThreadID, Disposed: row.disposed, Message: row.message}
				if err != nil || result != want {
					t.Errorf("Purge = %+v, %v\nwant %+v", result, err, want)
				}
				if after := inventory(t, ctl); len(after) != row.after {
					t.Errorf("%d are listed, want %d", len(after), row.after)
				}
				if got := retained(t, h); got != row.retained {
					t.Errorf("retained: %v, want %v", got, row.retained)
				}
			})
		})
	}
}
