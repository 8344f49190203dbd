package wheel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// uvWorld has uv, its folders and an interpreter.
func uvWorld(t *testing.T) (w *world, mst string) {
	t.Helper()
	bin, python := tools(t, uvVersion)
	w = newWorld(t, bin)
	dir := t.TempDir()
	links := filepath.Join(dir, "links")
	w.set("UV_TOOL_DIR="+filepath.Join(dir, "tools"), "UV_TOOL_BIN_DIR="+links, "UV_CACHE_DIR="+filepath.Join(dir, "cache"),
		"UV_PYTHON="+python, "UV_PYTHON_DOWNLOADS=never", "UV_NO_PROGRESS=1")
	return w, filepath.Join(links, "mst")
}

func TestAToolOfUVUpdatesItself(t *testing.T) {
	w, mst := uvWorld(t)
	url := index(t)
	w.set("UV_DEFAULT_INDEX=" + url)
	w.must(t, "uv", "tool", "install", distribution+"==0.1.0")
	w.version(t, mst, "0.1.0")
	lifecycle(t, w, mst, selfupdate.UVTool, "0.3.0rc1")

	msg := w.refused(t, mst, "--to", "0.0.9")
	if !strings.Contains(msg, `0.0.9 was installed, but a fresh process gives version "0.1.0"; to go back: uv tool install maf-sandbox-mst@0.1.0`) {
		t.Errorf("a program that is not what its wheel says: %s", msg)
	}
}

func TestAToolOfUVKeepsTheIndexItWasInstalledFrom(t *testing.T) {
	w, mst := uvWorld(t)
	url := index(t)
	// Whoever answers at the usual index must not be asked.
	w.set("UV_DEFAULT_INDEX=http://127.0.0.1:9/nobody/")
	w.must(t, "uv", "tool", "install", "--index", "corp="+url, "--default-index", url, distribution+"==0.1.0")
	for _, want := range []string{"0.2.0", "0.1.0"} {
		w.report(t, mst, "--to", want)
		w.version(t, mst, want)
	}
	if r := w.report(t, mst, "--check"); r.Latest != "0.2.0" {
		t.Errorf("%+v", r)
	}
}

func TestAToolOfUVIsRefusedWhereUVDoesNotKeepIt(t *testing.T) {
	w, mst := uvWorld(t)
	url := index(t)
	w.set("UV_DEFAULT_INDEX=" + url)
	w.must(t, "uv", "tool", "install", distribution+"==0.1.0")
	w.set("UV_TOOL_DIR=" + t.TempDir())
	msg := w.refused(t, mst)
	if !strings.Contains(msg, "UV_TOOL_DIR says where") || !strings.Contains(msg, "uv tool install maf-sandbox-mst@0.2.0") {
		t.Error(msg)
	}
	w.version(t, mst, "0.1.0")
}

func TestAProjectsEnvironmentIsRefusedWithThePinnedRequirement(t *testing.T) {
	w, _ := uvWorld(t)
	url := index(t)
	w.set("UV_DEFAULT_INDEX=" + url)
	project := filepath.Join(w.home, "project")
	w.must(t, "uv", "venv", "-q", filepath.Join(project, ".venv"))
	w.must(t, "uv", "pip", "install", "-q", "--python", filepath.Join(project, ".venv"), distribution+"==0.1.0")
	mst := filepath.Join(project, ".venv/bin/mst")
	const want = "MST is running from a project or manually managed virtual environment. Use that environment's package manager to install 'maf-sandbox-mst==0.0.9' and update its lock file: "
	if msg := w.refused(t, mst, "--to", "0.0.9"); !strings.Contains(msg, want+filepath.Join(project, ".venv/bin/python")+" -m pip install maf-sandbox-mst==0.0.9\n") {
		t.Error(msg)
	}
	if err := os.WriteFile(filepath.Join(project, "uv.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if msg := w.refused(t, mst); !strings.Contains(msg, "update its lock file: uv add maf-sandbox-mst==0.2.0\n") {
		t.Error(msg)
	}
	if r := w.report(t, mst, "--check"); r.Status != "update_available" || r.Latest != "0.2.0" || r.Installation.Manager != selfupdate.VirtualEnvironment || r.Installation.SelfUpdatable {
		t.Errorf("%+v", r)
	}
	w.version(t, mst, "0.1.0")
}

// above moves the world's folder for temporary files below one in which another
// user has put a file.
func (w *world) above(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, filepath.Join(dir, name), []byte(text))
	}
	w.set("TMPDIR=" + tmp)
}

// The tool of uv keeps its options in a receipt, and is asked with those; a
// project's environment has none.
func TestUVHeedsNoConfigurationAboveTheTemporaryFolder(t *testing.T) {
	w, _ := uvWorld(t)
	url := index(t)
	w.set("UV_DEFAULT_INDEX="+url, "UV_HTTP_RETRIES=0")
	environment := filepath.Join(w.home, "project/.venv")
	w.must(t, "uv", "venv", "-q", environment)
	w.must(t, "uv", "pip", "install", "-q", "--python", environment, distribution+"==0.1.0")
	const config = "extra-index-url = [\"http://127.0.0.1:9/nobody/\"]\n"
	for _, files := range []map[string]string{
		{"uv.toml": config},
		{"uv.toml": config, "pyproject.toml": "[project]\nname = \"x\"\nversion = \"1\"\n"},
		{"pyproject.toml": "[project]\nname = \"x\"\nversion = \"1\"\n[tool.uv]\n" + config},
	} {
		w.above(t, files)
		if r := w.report(t, filepath.Join(environment, "bin/mst"), "--check"); r.Latest != "0.2.0" {
			t.Errorf("%v: %+v", files, r)
		}
	}
}
