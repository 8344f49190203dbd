package wheel

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// console builds wheels of the console itself, as a release does, and serves
// them.
func console(t *testing.T, versions ...string) string {
	t.Helper()
	dir := t.TempDir()
	var page strings.Builder
	for _, version := range versions {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/tools/wheel", "-package", "./cmd/mst", "-version", version, "-targets", target(), "-out", dir)
		cmd.Dir = filepath.Join("..", "..")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("build the wheel: %v\n%s", err, complaints.String())
		}
		name := html.EscapeString(filepath.Base(strings.TrimSpace(string(out))))
		fmt.Fprintf(&page, "<a href=\"/files/%s\">%s</a>\n", name, name)
	}
	return simple(t, dir, page.String())
}

func TestTheConsolesOwnWheelWorksAndUpdatesItself(t *testing.T) {
	uv, mstOfUV := uvWorld(t)
	url := console(t, "0.1.0", "0.2.0rc1")
	t.Run("uv", func(t *testing.T) {
		uv.set("UV_DEFAULT_INDEX=" + url)
		uv.must(t, "uv", "tool", "install", distribution+"==0.1.0")
		usable(t, uv, mstOfUV, "uv-tool")
	})
	t.Run("pipx", func(t *testing.T) {
		w, mst := pipxWorld(t, pipxVersion)
		w.set("PIPX_DEFAULT_BACKEND=pip", "PIP_NO_CACHE_DIR=1")
		w.must(t, "pipx", "install", "--index-url", url, distribution+"==0.1.0")
		usable(t, w, mst, "pipx")
	})
}

// usable uses the console, and updates it and back.
func usable(t *testing.T, w *world, mst, manager string) {
	t.Helper()
	w.set("MAF_SANDBOX_TUI_RUNTIME_DIR=" + filepath.Join(t.TempDir(), "none"))
	is := func(version string) {
		t.Helper()
		want := "mst " + version + "\ninstallation: " + manager + " (self-update enabled)\n"
		if got := w.must(t, mst, "version"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	is("0.1.0")
	if got := w.must(t, mst, "--demo", "list", "--columns", "instance,state", "--no-headers"); !strings.Contains(got, "9f15a25d8c0d4ea0ab1af045d9481001  running\n") {
		t.Errorf("list: %q", got)
	}
	for _, step := range []struct{ args, said, then string }{
		{"update", "MST 0.1.0 is already installed.", "0.1.0"},
		{"update --check --prerelease", "MST 0.2.0rc1 is available; 0.1.0 is installed.", "0.1.0"},
		{"update --prerelease", "MST was updated from 0.1.0 to 0.2.0rc1.", "0.2.0rc1"},
		{"update --to 0.1.0", "MST was rolled back from 0.2.0rc1 to 0.1.0.", "0.1.0"},
	} {
		if got := w.must(t, append([]string{mst}, strings.Fields(step.args+" --timeout 120")...)...); got != step.said+"\n" {
			t.Errorf("%s: %q, want %q", step.args, got, step.said)
		}
		is(step.then)
	}
	if left, err := os.ReadDir(filepath.Dir(mst)); err != nil || len(left) != 1 {
		t.Errorf("left beside the program: %v, %v", left, err)
	}
}
