package wheel

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// pipxWorld has pipx, its folders and an interpreter.
func pipxWorld(t *testing.T, requirements ...string) (w *world, mst string) {
	t.Helper()
	bin, python := tools(t, requirements...)
	w = newWorld(t, bin)
	dir := t.TempDir()
	links := filepath.Join(dir, "links")
	w.set("PIPX_HOME="+filepath.Join(dir, "home"), "PIPX_BIN_DIR="+links, "PIPX_DEFAULT_PYTHON="+python, "UV_CACHE_DIR="+filepath.Join(dir, "cache"),
		"UV_PYTHON_DOWNLOADS=never",
		// A pip that is there, so that pipx needs no other index for one.
		"PIPX_SHARED_LIBS="+filepath.Dir(bin), "PIPX_DISABLE_SHARED_LIBS_AUTO_UPGRADE=1", "PIPX_USE_EMOJI=0", "USE_EMOJI=0")
	return w, filepath.Join(links, "mst")
}

func TestAnEnvironmentOfPipxUpdatesItself(t *testing.T) {
	for _, backend := range []string{"pip", "uv"} {
		t.Run(backend, func(t *testing.T) {
			w, mst := pipxWorld(t, uvVersion, pipxVersion)
			url := index(t)
			// Whoever answers at pip's usual index must not be asked.
			w.set("PIPX_DEFAULT_BACKEND="+backend, "PIP_INDEX_URL=http://127.0.0.1:9/nobody/")
			w.must(t, "pipx", "install", "--index-url", url, distribution+"==0.1.0")
			w.version(t, mst, "0.1.0")
			lifecycle(t, w, mst, selfupdate.Pipx, "0.3.0rc1")
			msg := w.refused(t, mst, "--to", "0.0.9")
			if !strings.Contains(msg, "to go back: pipx install --upgrade maf-sandbox-mst==0.1.0") {
				t.Errorf("a program that is not what its wheel says: %s", msg)
			}
		})
	}
}

func TestAnOlderPipxIsNotAskedToReplaceAProgram(t *testing.T) {
	w, mst := pipxWorld(t, oldPipxVersion)
	url := index(t)
	w.set("PIP_INDEX_URL=" + url)
	w.must(t, "pipx", "install", distribution+"==0.1.0")
	if out := w.must(t, mst, "detect"); !strings.Contains(out, `"manager":"pipx","self_updatable":false`) {
		t.Error(out)
	}
	if msg := w.refused(t, mst); !strings.Contains(msg, "upgrade pipx to 1.16 or newer") {
		t.Error(msg)
	}
	if r := w.report(t, mst, "--check"); r.Latest != "0.2.0" {
		t.Errorf("%+v", r)
	}
	w.version(t, mst, "0.1.0")
}
