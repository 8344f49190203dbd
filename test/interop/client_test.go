//go:build unix

package interop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
)

var nowForTests = time.Unix(1_800_000_000, 0)

// discovered are the hosts of a folder, all of which answer, as one control.
func discovered(t *testing.T, dir string, names ...string) *control.Composite {
	t.Helper()
	hosts, err := control.Discover(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, host := range hosts {
		if host.Err != nil {
			t.Errorf("%s: %v", host.Client.Manifest().SourceID, host.Err)
		}
		found = append(found, host.Client.Manifest().SourceID)
	}
	slices.Sort(found)
	if !slices.Equal(found, names) {
		t.Fatalf("discovered %v, want %v", found, names)
	}
	return control.Unite(hosts)
}

func list(t *testing.T, c control.Control) []control.Record {
	t.Helper()
	records, err := c.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestOurClientSeesTheDemonstrationOfThePythonHost(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		pythonHost(t, venv, dir, "python-host", "demo")
		c := discovered(t, dir, "python-host")
		records := list(t, c)
		want := control.DemoRecords("python-host", nowForTests)
		slices.SortFunc(want, control.Record.Compare)
		if len(records) != len(want) {
			t.Fatalf("listed %+v", records)
		}
		for i, r := range records {
			age := r.CreatedAt - r.LastActivityAt
			wantAge := want[i].CreatedAt - want[i].LastActivityAt
			r.CreatedAt, r.LastActivityAt = want[i].CreatedAt, want[i].LastActivityAt
			if !equal(r, want[i]) || age-wantAge > 1e-3 || wantAge-age > 1e-3 {
				t.Errorf("listed %+v, want %+v", r, want[i])
			}
		}
		one := want[0]
		if got, found, err := c.Get(context.Background(), one.InstanceID); err != nil || !found || got.InstanceID != one.InstanceID {
			t.Errorf("Get = %+v, %v, %v", got, found, err)
		}
		if _, found, err := c.Get(context.Background(), "absent"); err != nil || found {
			t.Errorf("Get of an absent id: %v, %v", found, err)
		}
		if result, err := c.Dispose(context.Background(), one.InstanceID, 0); err != nil || result.Status != control.Disposed {
			t.Errorf("Dispose = %+v, %v", result, err)
		}
		if result, err := c.Dispose(context.Background(), one.InstanceID, 0); err != nil || result.Status != control.NotFound {
			t.Errorf("the second Dispose = %+v, %v", result, err)
		}
		purge, err := c.Purge(context.Background(), want[1].Scope, want[1].ThreadID, 0)
		if err != nil || purge.Status != control.Purged || purge.Disposed != 1 {
			t.Errorf("Purge = %+v, %v", purge, err)
		}
		if left := list(t, c); len(left) != 1 || left[0].InstanceID != want[2].InstanceID {
			t.Errorf("left: %+v", left)
		}
	})
}

func TestOurClientHasThePythonHostEndRealProcesses(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		pythonHost(t, venv, dir, "python-host", "real")
		c := discovered(t, dir, "python-host")
		records := list(t, c)
		if len(records) != 2 || records[0].ProcessID == 0 || records[0].State != control.StateReady || records[0].ExecutionContract != "contract-1" {
			t.Fatalf("listed %+v", records)
		}
		if result, err := c.Dispose(context.Background(), records[0].InstanceID, 0); err != nil || result.Status != control.Disposed {
			t.Errorf("Dispose = %+v, %v", result, err)
		}
		if purge, err := c.Purge(context.Background(), "tenant", "t-2", 0); err != nil || purge.Status != control.Purged || purge.Disposed != 1 {
			t.Errorf("Purge = %+v, %v", purge, err)
		}
		if left := list(t, c); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// The faults of a Python host reach our client as the sentences that the
// protocol has for them.
func TestOurClientUnderstandsTheFaultsOfAPythonHost(t *testing.T) {
	const id, scope, thread = "slash/ä+%41", "tenant/ä b", "t 1"
	const short = 300 * time.Millisecond
	faults := []struct {
		fault   string
		dispose string // status: message, or the error
		purge   string
	}{
		{"none", "disposed: scripted disposal", "purged: Conversation purged across 1 host(s)."},
		{"list-raises", "failed: Sandbox owner could not be confirmed on 1 unavailable host(s).", "purged: Conversation purged across 1 host(s)."},
		{"list-slow", "failed: Disposal timed out while locating the owning host.", "purged: Conversation purged across 1 host(s)."},
		{"duplicate", "failed: Duplicate physical instance id reported; exact disposal refused.", "purged: Conversation purged across 1 host(s)."},
		{"dispose-raises", "failed: disposal failed", "purged: Conversation purged across 1 host(s)."},
		{"dispose-failed", "failed: scripted failure", "purged: Conversation purged across 1 host(s)."},
		{"dispose-slow", "failed: Disposal timed out while invoking the owning host.", "purged: Conversation purged across 1 host(s)."},
		{"purge-raises", "disposed: scripted disposal", "partial: Conversation purge was incomplete on 1 host(s)."},
		{"purge-partial", "disposed: scripted disposal", "partial: Conversation purge was incomplete on 1 host(s)."},
		{"purge-slow", "disposed: scripted disposal", "partial: Conversation purge timed out before 1 host(s) responded."},
	}
	eachPeer(t, func(t *testing.T, venv string) {
		base := shortDir(t)
		var hosts []string
		for _, tt := range faults {
			hosts = append(hosts, base+"/"+tt.fault, "python-host", tt.fault)
		}
		pythonHost(t, venv, hosts...)
		for _, tt := range faults {
			t.Run(tt.fault, func(t *testing.T) {
				c := discovered(t, base+"/"+tt.fault, "python-host")
				// What never comes is not waited for.
				timeout := func(operation string) time.Duration {
					if tt.fault == operation+"-slow" || tt.fault == "list-slow" && operation == "dispose" {
						return short
					}
					return patience
				}
				result, err := c.Dispose(context.Background(), id, timeout("dispose"))
				if got := string(result.Status) + ": " + result.Message; err != nil || got != tt.dispose {
					t.Errorf("Dispose: %q, %v, want %q", got, err, tt.dispose)
				}
				purge, err := c.Purge(context.Background(), scope, thread, timeout("purge"))
				if got := string(purge.Status) + ": " + purge.Message; err != nil || got != tt.purge {
					t.Errorf("Purge: %q, %v, want %q", got, err, tt.purge)
				}
				record, found, err := c.Get(context.Background(), id)
				var partial *control.PartialError
				switch tt.fault {
				case "list-raises", "duplicate", "list-slow":
					if found || !errors.As(err, &partial) {
						t.Errorf("Get: %+v, %v, %v", record, found, err)
					}
				default:
					if err != nil || !found || record.InstanceID != id || record.Scope != scope || record.State != control.StateResetting {
						t.Errorf("Get: %+v, %v, %v", record, found, err)
					}
				}
			})
		}
	})
}

func TestHostsOfBothKindsAreOneInventory(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		boxes := goHost(t, dir, "go-host")
		pythonHost(t, venv, dir, "python-host", "real")

		c := discovered(t, dir, "go-host", "python-host")
		ours := list(t, c)
		theirs := decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, "list").stdout)
		if !slices.EqualFunc(ours, theirs, equal) || len(ours) != 4 {
			t.Errorf("we see %+v\nthey see %+v", ours, theirs)
		}
		// Theirs from ours, ours from theirs.
		result, err := c.Dispose(context.Background(), ours[2].InstanceID, 0)
		if err != nil || result.Status != control.Disposed || ours[2].SourceID != "python-host" {
			t.Errorf("Dispose on %s: %+v, %v", ours[2].SourceID, result, err)
		}
		mst(t, venv, dir, "delete", boxes[0].ID(), "--yes").must(t, 0, "delete on the Go host")
		if liveness.Of(boxes[0]).State != liveness.Exited {
			t.Error("the Go host's worker is still there")
		}
		purge, err := c.Purge(context.Background(), "tenant", "t-2", 0)
		if err != nil || purge.Status != control.Purged || purge.Disposed != 2 || purge.Message != "Conversation purged across 2 host(s)." {
			t.Errorf("Purge = %+v, %v", purge, err)
		}
		if text := mst(t, venv, dir, "list").must(t, 0, "list at the end").stdout; strings.TrimSpace(text) != "No sandboxes." {
			t.Errorf("list at the end: %q", text)
		}
	})
}

func TestAPythonHostThatIsKilledWhileItIsAskedIsUnconfirmed(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		host := pythonHost(t, venv, dir, "python-host", "dispose-slow")
		c := discovered(t, dir, "python-host")
		asked := make(chan control.DisposalResult, 1)
		go func() {
			result, err := c.Dispose(context.Background(), "slash/ä+%41", patience)
			if err != nil {
				t.Errorf("Dispose: %v", err)
			}
			asked <- result
		}()
		// Killed at whatever moment: before, while or after it is asked.
		if err := host.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if result := <-asked; result.Status != control.DisposalFailed {
			t.Errorf("Dispose = %+v", result)
		}
		hosts, err := control.Discover(context.Background(), dir)
		if err != nil || len(hosts) != 1 || hosts[0].Err == nil {
			t.Errorf("discovered %+v, %v", hosts, err)
		}
	})
}
