//go:build unix

package interop

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
)

// decode reads what mst printed as JSON.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return value
}

func (r ran) must(t *testing.T, code int, what string) ran {
	t.Helper()
	if r.code != code {
		t.Fatalf("%s: exit %d, want %d\nstdout: %s\nstderr: %s", what, r.code, code, r.stdout, r.stderr)
	}
	return r
}

func TestThePythonConsoleSeesAndRemovesOurSandboxes(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		boxes := goHost(t, dir, "go-host")
		one, two := boxes[0], boxes[1]

		hosts := decode[[]map[string]any](t, mst(t, venv, dir, "hosts", "--json").must(t, 0, "hosts").stdout)
		if len(hosts) != 1 || hosts[0]["source_id"] != "go-host" || hosts[0]["status"] != "healthy" || hosts[0]["process_id"] != float64(os.Getpid()) {
			t.Errorf("hosts: %v", hosts)
		}
		listed := decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, "list").stdout)
		if len(listed) != 2 || listed[0].InstanceID != one.ID() || listed[0].State != control.StateReady ||
			listed[0].ProcessID != liveness.Of(one).ProcessID || listed[0].ExecutionContract != "contract-1" ||
			strings.Join(listed[0].EgressTargets, " ") != "a.example b.example" {
			t.Errorf("list: %+v", listed)
		}
		text := mst(t, venv, dir, "list", "--thread", "t-2").must(t, 0, "list as text").stdout
		if !strings.Contains(text, two.ID()) || strings.Contains(text, one.ID()) || !strings.Contains(text, "tenant/t-2/agent") {
			t.Errorf("list as text:\n%s", text)
		}
		shown := decode[control.Record](t, mst(t, venv, dir, "show", one.ID(), "--json").must(t, 0, "show").stdout)
		if shown.InstanceID != one.ID() || shown.ThreadID != "t-1" {
			t.Errorf("show: %+v", shown)
		}
		mst(t, venv, dir, "show", "absent").must(t, 3, "show of an absent id")
		type snapshot struct {
			Complete  bool
			Sandboxes []control.Record
		}
		seen := decode[snapshot](t, mst(t, venv, dir, "watch", "--jsonl", "--count", "1").must(t, 0, "watch").stdout)
		if !seen.Complete || len(seen.Sandboxes) != 2 {
			t.Errorf("watch: %+v", seen)
		}

		stale := one.ID()
		if err := one.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		mst(t, venv, dir, "delete", stale, "--yes").must(t, 3, "delete of an older generation")
		mst(t, venv, dir, "delete", one.ID()).must(t, 2, "delete without a confirmation")
		result := decode[control.DisposalResult](t, mst(t, venv, dir, "delete", one.ID(), "--yes", "--json").must(t, 0, "delete").stdout)
		if result.Status != control.Disposed || liveness.Of(one).State != liveness.Exited {
			t.Errorf("delete: %+v, the worker %v", result, liveness.Of(one))
		}
		listed = decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, "list after the delete").stdout)
		if len(listed) != 1 || listed[0].InstanceID != two.ID() {
			t.Errorf("list after the delete: %+v", listed)
		}

		purge := decode[control.PurgeResult](t, mst(t, venv, dir, "purge-thread", "--scope", "tenant", "--thread", "t-2", "--yes", "--json").must(t, 0, "purge").stdout)
		if purge.Status != control.Purged || purge.Disposed != 1 || liveness.Of(two).State != liveness.Exited {
			t.Errorf("purge: %+v", purge)
		}
		if text := mst(t, venv, dir, "list").must(t, 0, "list at the end").stdout; strings.TrimSpace(text) != "No sandboxes." {
			t.Errorf("list at the end: %q", text)
		}
	})
}

// A host that is gone without a word is unavailable to the Python console, and
// the next host of ours removes what it left.
func TestThePythonConsoleReportsAHostThatIsGoneUntilOneOfOursStarts(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		server := serve(t, dir, "short-lived", control.NewMemory())
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("announced: %v, %v", files, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		hosts := decode[[]map[string]any](t, mst(t, venv, dir, "hosts", "--json").must(t, 1, "hosts").stdout)
		if len(hosts) != 1 || hosts[0]["status"] != "unavailable" {
			t.Errorf("hosts: %v", hosts)
		}
		serve(t, dir, "next", control.NewMemory())
		hosts = decode[[]map[string]any](t, mst(t, venv, dir, "hosts", "--json").must(t, 0, "hosts").stdout)
		if len(hosts) != 1 || hosts[0]["source_id"] != "next" {
			t.Errorf("hosts: %v", hosts)
		}
	})
}

// What the Python reader makes of texts that need every kind of escape.
func TestThePythonConsoleReadsEveryTextAsItIs(t *testing.T) {
	eachPeer(t, func(t *testing.T, venv string) {
		dir := shortDir(t)
		strange := control.DemoRecords("go-host", nowForTests)[0]
		strange.InstanceID = "slash/ä+%41 \"\\\u2028😀\x7f"
		strange.Scope = "tenant/\n\t\x1b[31m"
		strange.CreatedAt = 1800000000.123456
		strange.ProcessID = 0
		strange.ExecutionContract = ""
		serve(t, dir, "go-host", control.NewMemory(strange))
		listed := decode[[]control.Record](t, mst(t, venv, dir, "list", "--json").must(t, 0, "list").stdout)
		if len(listed) != 1 || !equal(listed[0], strange) {
			t.Errorf("listed %+v\nwant   %+v", listed, strange)
		}
		shown := decode[control.Record](t, mst(t, venv, dir, "show", strange.InstanceID, "--json").must(t, 0, "show").stdout)
		if !equal(shown, strange) {
			t.Errorf("shown %+v", shown)
		}
		purge := decode[control.PurgeResult](t, mst(t, venv, dir, "purge-thread", "--scope", strange.Scope, "--thread", strange.ThreadID, "--yes", "--json").must(t, 0, "purge").stdout)
		if purge.Disposed != 1 {
			t.Errorf("purge: %+v", purge)
		}
	})
}

func equal(a, b control.Record) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
