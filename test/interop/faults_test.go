//go:build unix

package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// faulty is a control with one fault.
type faulty struct {
	*control.Memory
	fault string
}

var errFault = errors.New("secret detail")

// meet is the fault of an operation, if it is this one's.
func (f faulty) meet(ctx context.Context, operation string) error {
	switch f.fault {
	case operation + " fails":
		return errFault
	case operation + " never ends":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f faulty) List(ctx context.Context) ([]control.Record, error) {
	if err := f.meet(ctx, "inventory"); err != nil {
		return nil, err
	}
	return f.Memory.List(ctx)
}

func (f faulty) Dispose(ctx context.Context, id string, timeout time.Duration) (control.DisposalResult, error) {
	if err := f.meet(ctx, "disposal"); err != nil {
		return control.DisposalResult{}, err
	}
	if f.fault == "disposal is refused" {
		return control.DisposalResult{Status: control.DisposalFailed, InstanceID: id, Message: "scripted refusal"}, nil
	}
	if f.fault == "disposal ends late" {
		<-ctx.Done()
	}
	return f.Memory.Dispose(context.WithoutCancel(ctx), id, timeout)
}

func (f faulty) Purge(ctx context.Context, scope, threadID string, timeout time.Duration) (control.PurgeResult, error) {
	if err := f.meet(ctx, "purge"); err != nil {
		return control.PurgeResult{}, err
	}
	if f.fault == "purge is partial" {
		return control.PurgeResult{Status: control.PurgePartial, Scope: scope, ThreadID: threadID, Disposed: 1, Message: "scripted rest"}, nil
	}
	return f.Memory.Purge(ctx, scope, threadID, timeout)
}

// What a host of ours cannot do reaches the Python console as what it is: the
// statuses 409, 500 and 504, the reasons, and exit status 1.
func TestThePythonConsoleUnderstandsTheFaultsOfOurHost(t *testing.T) {
	const (
		missing = "mst: Sandbox was not found, but one or more hosts were unavailable.\n"
		partial = "partial: Conversation purge was incomplete on 1 host(s). Disposed: "
		warning = "mst: warning: go-host: "
	)
	one := control.DemoRecords("go-host", nowForTests)[0]
	show, remove, removeJSON := []string{"show"}, []string{"delete", "--yes"}, []string{"delete", "--yes", "--json"}
	for _, args := range []*[]string{&show, &remove, &removeJSON} {
		*args = append(*args, one.InstanceID)
	}
	purge := []string{"purge-thread", "--yes", "--scope", one.Scope, "--thread", one.ThreadID}
	result := func(status, message string) string {
		return fmt.Sprintf("{\n  \"status\": %q,\n  \"instance_id\": %q,\n  \"message\": %q\n}\n", status, one.InstanceID, message)
	}
	failed := func(message string) string { return "failed: " + message + " (" + one.InstanceID + ")\n" }
	type step struct {
		args           []string
		code           int
		stdout, stderr string
	}
	rows := []struct {
		fault string
		steps []step
	}{
		{"inventory fails", []step{
			{[]string{"list"}, 1, "No sandboxes.\n", warning + "control request failed\n"},
			{show, 1, "", warning + "control request failed\n" + missing},
			{remove, 1, "", warning + "control request failed\n" + missing},
		}},
		{"inventory never ends", []step{
			{[]string{"list"}, 1, "No sandboxes.\n", warning + "control request timed out\n"},
			{remove, 1, "", warning + "control request timed out\n" + missing},
		}},
		{"one id twice", []step{
			{show, 1, "", warning + "duplicate physical instance id reported by this host\n" + missing},
			{remove, 1, "", warning + "duplicate physical instance id reported by this host\n" + missing},
		}},
		{"disposal is refused", []step{
			{remove, 1, failed("scripted refusal"), ""},
			{removeJSON, 1, result("failed", "scripted refusal"), ""},
		}},
		{"disposal fails", []step{{remove, 1, failed("disposal failed"), ""}, {removeJSON, 1, result("failed", "disposal failed"), ""}}},
		{"disposal never ends", []step{{remove, 1, failed("disposal timed out"), ""}}},
		// G4: unconfirmed, and the repeat finds absence.
		{"disposal ends late", []step{{remove, 1, failed("disposal timed out"), ""}, {remove, 3, "", "mst: Sandbox is already gone or its generation changed.\n"}}},
		{"purge is partial", []step{{purge, 1, partial + "1.\n", ""}}},
		{"purge fails", []step{{purge, 1, partial + "0.\n", ""}}},
		{"purge never ends", []step{{purge, 1, partial + "0.\n", ""}}},
	}
	eachPeer(t, func(t *testing.T, venv string) {
		for _, row := range rows {
			t.Run(row.fault, func(t *testing.T) {
				dir := shortDir(t)
				records := control.DemoRecords("go-host", nowForTests)
				if row.fault == "one id twice" {
					records[1].InstanceID = one.InstanceID
				}
				serveWith(t, control.ServerConfig{
					Control: faulty{control.NewMemory(records...), row.fault}, SourceID: "go-host", Directory: dir, DisposeTimeout: 200 * time.Millisecond,
				})
				for _, s := range row.steps {
					got := mst(t, venv, dir, s.args...)
					if got != (ran{s.code, s.stdout, s.stderr}) {
						t.Errorf("mst %s: %+v\nwant %+v", strings.Join(s.args, " "), got, s)
					}
				}
			})
		}
	})
}
