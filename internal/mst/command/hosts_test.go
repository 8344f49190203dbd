package command

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

func TestAnAnnouncedProcessZeroIsANumberAndThatOfANamedHostIsUnknown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hosts")
	endpoint, _ := serve(t, dir, "one", control.NewMemory())
	if err := os.WriteFile(filepath.Join(dir, "zero.json"), []byte(strings.Replace(stale, `: 12,`, `: 0,`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := player{directory: dir}
	if got := p.run(t, "hosts", "--json"); strings.Count(got.out, `"process_id": 0,`) != 1 || strings.Contains(got.out, `"process_id": null`) {
		t.Errorf("%+v", got)
	}
	if got := p.run(t, "hosts"); !strings.Contains(got.out, "unavailable  0") {
		t.Errorf("%+v", got)
	}
	if got := p.run(t, "--endpoint", endpoint, "hosts", "--json"); !strings.Contains(got.out, `"process_id": null,`) {
		t.Errorf("%+v", got)
	}
	if got := p.run(t, "--endpoint", endpoint, "hosts"); !strings.Contains(got.out, "healthy  -") {
		t.Errorf("%+v", got)
	}
}

func TestAHostThatWasKilledIsSaidToBeGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system whose file locks tell whether a host lives")
	}
	dir := filepath.Join(t.TempDir(), "hosts")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left := `{"source_id": "dead", "endpoint": "http://127.0.0.1:9", "process_id": 12, "protocol_version": 1, "implementation": "go"}`
	if err := os.WriteFile(filepath.Join(dir, "12-a.json"), []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	got := player{directory: dir}.run(t, "hosts", "--no-headers")
	const want = "dead  unavailable  12  http://127.0.0.1:9  control endpoint is unavailable: host is gone; "
	if got.status != ExitFailed || !strings.HasPrefix(got.out, want) {
		t.Errorf("%+v, want %q", got, want)
	}
	// No host is there that could say anything of a sandbox.
	if got := (player{directory: dir}).run(t, "delete", "one", "--yes"); got.status != ExitFailed || !strings.Contains(got.errOut, "dead: control endpoint is unavailable: host is gone") {
		t.Errorf("%+v", got)
	}
}

func TestAHostThatWasKilledHoldsUpNothingElsewhere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system whose file locks tell whether a host lives")
	}
	dir := t.TempDir() + "/hosts"
	serve(t, dir, "alive", &scripted{records: []control.Record{record("aaa", "alive", nil)}})
	dead := strings.Replace(strings.Replace(stale, `"gone"`, `"dead"`, 1), "{", `{"implementation": "go", `, 1)
	if err := os.WriteFile(dir+"/12-a.json", []byte(dead), 0o600); err != nil {
		t.Fatal(err)
	}
	p := player{directory: dir}
	for _, r := range []struct {
		args   []string
		status int
		out    string
	}{
		{[]string{"delete", "aaa", "--yes"}, 0, "disposed: scripted disposal (aaa)"},
		{[]string{"purge-thread", "--scope", "tenant-a", "--thread", "t-1", "--yes"}, 0, "purged: Conversation purged across 1 host(s). Disposed: 2."},
		{[]string{"show", "gone"}, ExitAbsent, ""},
		{[]string{"list", "--no-headers"}, ExitFailed, "aaa"},
	} {
		got := p.run(t, r.args...)
		if got.status != r.status || !strings.Contains(got.out, r.out) || !strings.Contains(got.errOut, "warning: dead: control endpoint is unavailable: host is gone") {
			t.Errorf("%q: %+v", r.args, got)
		}
	}
	// One that merely does not answer does.
	if err := os.WriteFile(dir+"/12-a.json", []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.run(t, "delete", "aaa", "--yes"); got.status != ExitFailed || !strings.Contains(got.errOut, "first every host must answer") {
		t.Errorf("%+v", got)
	}
}
