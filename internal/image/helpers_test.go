//go:build unix

package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	capturedMu   sync.Mutex
	capturedBy   = make(map[string]string)
	capturedRoot string
)

func TestMain(m *testing.M) {
	root, err := os.MkdirTemp("", "image-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	capturedRoot = root
	code := m.Run()
	if err := os.RemoveAll(root); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// pythons lists the interpreters on this machine that can be captured: that of
// the distribution and those of pyenv.
func pythons(t *testing.T) []string {
	t.Helper()
	var found []string
	if name, err := exec.LookPath("/usr/bin/python3"); err == nil {
		found = append(found, name)
	} else {
		t.Log("not tested, because it is not installed: /usr/bin/python3")
	}
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); root == "" && err == nil {
		root = filepath.Join(home, ".pyenv")
	}
	for _, version := range []string{"3.9.*", "3.1[0-9].*"} {
		names, err := filepath.Glob(filepath.Join(root, "versions", version, "bin", "python3"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		t.Skip("no Python on this machine that could be captured")
	}
	if testing.Short() {
		found = found[:1]
	}
	return found
}

// firstAndLast is for tests that take long: the distribution's Python and the
// newest one.
func firstAndLast(all []string) []string {
	if len(all) < 2 {
		return all
	}
	return []string{all[0], all[len(all)-1]}
}

// capturedImage captures a Python once per test run and opens the image.
func capturedImage(t *testing.T, o Options) *Image {
	t.Helper()
	capturedMu.Lock()
	defer capturedMu.Unlock()
	key := o.Python + "\x00" + o.Venv
	name, ok := capturedBy[key]
	if !ok {
		name = captureTo(t, o, capturedRoot)
		capturedBy[key] = name
	}
	im, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClose(t, im) })
	return im
}

// captureTo captures into a new file in dir.
func captureTo(t *testing.T, o Options, dir string) string {
	t.Helper()
	f, err := os.CreateTemp(dir, "*.image")
	if err != nil {
		t.Fatal(err)
	}
	o.Log = func(line string) { t.Log(line) }
	made, err := Capture(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, made.ID+fmt.Sprintf("-%d%s", len(capturedBy), suffix))
	if err := os.Rename(f.Name(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func checkClose(t *testing.T, im *Image) {
	t.Helper()
	if err := im.Close(); err != nil {
		t.Error(err)
	}
}

// extract writes an image out as a file tree.
func extract(t *testing.T, im *Image, dir string) {
	t.Helper()
	if err := im.Load(); err != nil {
		t.Fatal(err)
	}
	for i := range im.index.len() {
		r := im.index.record(i)
		name := filepath.Join(dir, r.path)
		var err error
		switch r.kind {
		case Dir:
			err = os.MkdirAll(name, 0o755)
		case Symlink:
			err = os.Symlink(r.target, name)
		case File:
			b, contentErr := im.Content(r.path)
			if contentErr != nil {
				t.Fatal(contentErr)
			}
			mode := os.FileMode(0o644)
			if r.executable {
				mode = 0o755
			}
			err = os.WriteFile(name, b, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runInside runs Python code with nothing but the image's files in sight.
func runInside(ctx context.Context, t *testing.T, im *Image, code string) (string, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to change the root folder")
	}
	dir := t.TempDir()
	extract(t, im, dir)
	m := im.Manifest()
	cmd := exec.CommandContext(ctx, m.Executable, "-I", "-S", "-B", "-c", code)
	cmd.Dir, cmd.SysProcAttr = "/", chrooted(dir)
	cmd.Env = []string{"LANG=C.UTF-8", "LD_LIBRARY_PATH=" + joinPath(m.LibraryPath)}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
