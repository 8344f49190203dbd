package command

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

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
