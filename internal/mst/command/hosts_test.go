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
	// It may have sandboxes for all that is known: nothing is disposed of.
	if got := (player{directory: dir}).run(t, "delete", "one", "--yes"); got.status != ExitFailed || !strings.Contains(got.errOut, "dead: control endpoint is unavailable: host is gone") {
		t.Errorf("%+v", got)
	}
}
