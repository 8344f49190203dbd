//go:build unix

package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func chrooted(dir string) *syscall.SysProcAttr { return &syscall.SysProcAttr{Chroot: dir} }

func joinPath(folders []string) string { return strings.Join(folders, ":") }

// everyModule imports the whole library of the image and checks what is easily
// lost on the way: strings of the interpreter, zones, the locale, byte code.
const everyModule = `
import os, sys, pkgutil, importlib, platform, sysconfig
sys.path.extend(%[1]q.split(":")) if %[1]q else None
assert sys.prefix == sys.exec_prefix == sys.base_prefix == "/usr", sys.prefix
assert platform.python_version() == %[2]q, sys.version
assert sys.executable == %[3]q, sys.executable
assert all(p.startswith("/usr/lib") for p in sys.path), sys.path
assert sysconfig.get_path("stdlib") == os.path.dirname(os.__file__)
sysconfig.get_config_vars()
bad = []
skip = {"antigravity", "this", "__main__", "idlelib", "msilib", "msvcrt", "winreg", "_winapi", "_ios_support"}
for info in pkgutil.iter_modules([%[4]q, %[4]q + "/lib-dynload"]):
    if info.name in skip:
        continue
    try:
        m = importlib.import_module(info.name)
    except Exception as e:
        bad.append("%%s: %%r" %% (info.name, e))
        continue
    spec = m.__spec__
    if spec.origin and spec.origin.endswith(".py") and info.name != "__hello__":
        assert spec.cached and os.path.exists(spec.cached), spec
print("\n".join(bad))
from datetime import datetime
from zoneinfo import ZoneInfo
assert str(datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")).utcoffset()) == "2:00:00"
import locale
locale.setlocale(locale.LC_ALL, "C.UTF-8")
import sqlite3, hashlib, decimal, ctypes, json, ssl
assert sqlite3.connect(":memory:").execute("select 6*7").fetchone() == (42,)
ctypes.CDLL("libm.so.6"); ctypes.CDLL("libgcc_s.so.1")
def code(c):
    yield c
    for k in c.co_consts:
        if hasattr(k, "co_filename"):
            yield from code(k)
assert {c.co_filename for c in code(json.dumps.__code__)} == {%[4]q + "/json/__init__.py"}
`

// absent lists modules that import only with something that is left out.
var absent = map[string]bool{
	"curses": true,
}

func TestCapturedPythonRunsWithItsWholeLibrary(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			im := capturedImage(t, Options{Python: python})
			m := im.Manifest()
			code := fmt.Sprintf(everyModule, strings.Join(m.SitePackages, ":"), m.Python, m.Executable, m.StdLib)
			out, err := runInside(t.Context(), t, im, code)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
				if name != "" && !absent[name] {
					t.Errorf("does not import: %s", strings.TrimSpace(line))
				}
			}
		})
	}
}

func TestImageIsWholeAndNeutral(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			im := capturedImage(t, Options{Python: python})
			if err := im.Verify(); err != nil {
				t.Fatal(err)
			}
			checkObjects(t, im)
			checkNames(t, im)
			checkNoHostPaths(t, im, hostPaths(t, python))
		})
	}
}

func checkObjects(t *testing.T, im *Image) {
	t.Helper()
	m := im.Manifest()
	objects := make(map[string]Object)
	for _, o := range m.Objects {
		objects[o.Path] = o
		b, err := im.Content(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseELF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatalf("%s: %v", o.Path, err)
		}
		if !slices.Equal(p.loads, o.Loads) || p.end != uint64(len(b)) {
			t.Errorf("%s is not what the manifest says, or carries more than is loaded", o.Path)
		}
	}
	for _, p := range []string{m.Executable, m.Interp, "/lib/libc.so.6", "/lib/libm.so.6"} {
		if _, ok := objects[p]; !ok {
			t.Errorf("no object %s", p)
		}
	}
	if !slices.Contains(m.LibraryPath, "/lib") {
		t.Errorf("library path %q", m.LibraryPath)
	}
	for p := range im.Paths() {
		if strings.HasSuffix(p, ".so") {
			if _, ok := objects[p]; !ok {
				t.Errorf("%s is not among the objects", p)
			}
		}
	}
}

var leftOut = regexp.MustCompile(`/(idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|test|dist-packages|pip|setuptools|wheel|pkg_resources|config-[^/]*)/|` +
	`/(_tkinter|readline|_curses|_dbm|_gdbm|_test|_ctypes_test)[^/]*\.so$|\.(a|h|exe|pth)$|/tests/(.*/)?(test_[^/]*|[^/]*\.(so|txt|npy|csv))$|/(turtle|sitecustomize)\.py$|pyvenv\.cfg$|^/(etc|home|root|tmp|proc|dev|var)/`)

func checkNames(t *testing.T, im *Image) {
	t.Helper()
	m := im.Manifest()
	for p := range im.Paths() {
		if leftOut.MatchString(p) {
			t.Errorf("has %s", p)
		}
		if strings.HasSuffix(p, ".pyc") && !strings.Contains(p, "/__pycache__/") {
			t.Errorf("has %s", p)
		}
	}
	for _, p := range []string{m.StdLib + "/os.py", m.StdLib + "/__pycache__/os." + m.Tag + ".pyc"} {
		if e, ok := im.Lookup(p); !ok || e.Kind != File || e.Size == 0 {
			t.Errorf("lacks %s", p)
		}
	}
	if !slices.Equal(im.ReadDir("/"), []string{"lib", "lib64", "usr"}) {
		t.Errorf("top folders %q", im.ReadDir("/"))
	}
}

// hostPaths lists what must not be readable in an image of a Python.
func hostPaths(t *testing.T, python string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, "-I", "-c", "import sys; print(sys.prefix); print(sys.base_prefix)").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(out))
	if u, err := user.Current(); err == nil {
		paths = append(paths, u.HomeDir)
	}
	paths = append(paths, os.Getenv("HOME"), capturedRoot)
	for _, p := range slices.Clone(paths) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			paths = append(paths, real)
		}
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return !personal(p) })
	slices.Sort(paths)
	return slices.Compact(paths)
}

func checkNoHostPaths(t *testing.T, im *Image, paths []string) {
	t.Helper()
	for _, p := range paths {
		// A path of one component may be the end of another, such as XPath's
		// "./root"; a longer one must not occur at all.
		before := `(?:^|[^A-Za-z0-9_.~)}\]$%*/-]|://|-[A-Za-z])`
		if strings.Count(p, "/") > 1 {
			before = ""
		}
		pattern := regexp.MustCompile(before + regexp.QuoteMeta(p) + `(?:$|[^A-Za-z0-9_.-])`)
		for name := range im.Paths() {
			b, err := im.Content(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(b, []byte(p)) {
				continue
			}
			if at := pattern.FindIndex(b); at != nil {
				t.Errorf("%s shows %s: %q", name, p, b[max(0, at[0]-30):min(len(b), at[1]+30)])
			}
		}
	}
}

func TestSameInputsGiveTheSameID(t *testing.T) {
	for _, python := range firstAndLast(pythons(t)) {
		t.Run(python, func(t *testing.T) {
			first := capturedImage(t, Options{Python: python})
			second, err := Open(captureTo(t, Options{Python: python}, t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			defer checkClose(t, second)
			if first.ID() == second.ID() {
				return
			}
			for p := range first.Paths() {
				a, errA := first.Content(p)
				b, errB := second.Content(p)
				if errA != nil || errB != nil || !bytes.Equal(a, b) {
					t.Errorf("differs: %s (%v, %v)", p, errA, errB)
				}
			}
			t.Error("two captures of one Python have different IDs")
		})
	}
}

func TestVirtualEnvironmentIsCapturedWithItsPackages(t *testing.T) {
	for _, python := range firstAndLast(pythons(t)) {
		t.Run(python, func(t *testing.T) {
			venv := filepath.Join(t.TempDir(), "my env")
			makeVenv(t, python, venv, "numpy")
			im := capturedImage(t, Options{Venv: venv})
			m := im.Manifest()
			if len(m.Packages) != 1 || m.Packages[0].Name != "numpy" || m.Packages[0].Version == "" {
				t.Errorf("packages %v", m.Packages)
			}
			if want := path.Join("/usr/lib", path.Base(m.Executable), "site-packages"); !slices.Equal(m.SitePackages, []string{want}) {
				t.Errorf("site-packages %q", m.SitePackages)
			}
			checkObjects(t, im)
			checkNames(t, im)
			checkNoHostPaths(t, im, append(hostPaths(t, python), venv))
			out, err := runInside(t.Context(), t, im, fmt.Sprintf(
				"import sys; sys.path += %q.split(':'); import numpy as n; import numpy.testing; print(n.__file__, (n.ones((40,40)) @ n.ones((40,40))).sum())", strings.Join(m.SitePackages, ":")))
			if want := m.SitePackages[0] + "/numpy/__init__.py 64000.0\n"; err != nil || out != want {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// makeVenv makes a virtual environment, or skips where that cannot be done.
func makeVenv(t *testing.T, python, dir string, packages ...string) {
	t.Helper()
	steps := [][]string{{python, "-m", "venv", dir}}
	if len(packages) > 0 {
		steps = append(steps, append([]string{filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"}, packages...))
	} else {
		steps[0] = []string{python, "-m", "venv", "--without-pip", dir}
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: %s: %v: %s", strings.Join(step, " "), err, lastLine(out))
		}
	}
}
