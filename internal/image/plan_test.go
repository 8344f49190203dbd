//go:build unix

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeTree makes files; a content that begins with "-> " makes a link.
func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newPlan(log *[]string) *plan {
	return &plan{items: make(map[string]*item), logf: func(format string, args ...any) {
		*log = append(*log, fmt.Sprintf(format, args...))
	}}
}

func TestLinksOutOfTheCapturedFoldersAreNamedAndLeftOut(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{
		"secret/key":               "k",
		"site/pkg/__init__.py":     "",
		"site/pkg/lib.so.1.2":      "data",
		"site/pkg/lib.so.1":        "-> lib.so.1.2",
		"site/pkg/alias.py":        "-> __init__.py",
		"site/other":               "-> pkg",
		"site/key":                 "-> ../secret/key",
		"site/folder":              "-> ../secret",
		"site/absolute":            "-> /etc/passwd",
		"site/gone":                "-> nowhere",
		"site/loop":                "-> loop",
		"site/test_link":           "-> pkg/tests/test_a.py",
		"site/pkg/tests/test_a.py": "",
	})
	var log []string
	p := newPlan(&log)
	if err := p.walk(tree{filepath.Join(dir, "site"), "/site"}, skipPackages); err != nil {
		t.Fatal(err)
	}
	if err := p.resolveLinks(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range p.sorted() {
		got = append(got, strings.TrimSpace(it.guest+" "+it.target))
	}
	want := []string{"/site/other pkg", "/site/pkg/__init__.py", "/site/pkg/alias.py", "/site/pkg/lib.so.1 lib.so.1.2", "/site/pkg/lib.so.1.2"}
	if !slices.Equal(got, want) {
		t.Errorf("planned %q, want %q", got, want)
	}
	all := strings.Join(log, "\n")
	for _, name := range []string{"site/key", "site/folder", "site/absolute", "site/gone", "site/loop"} {
		if !strings.Contains(all, name) {
			t.Errorf("the log does not name %s:\n%s", name, all)
		}
	}
}

func TestPathFilesAddFoldersOfTheEnvironmentOnly(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{
		"site/extra/mod.py":              "",
		"site/a.pth":                     "# comment\nimport os; os.abort()\nextra\n\nmissing\n",
		"site/__editable__.proj-1.pth":   filepath.Join(dir, "src") + "\n",
		"site/__editable___x_finder.py":  "",
		"site/distutils-precedence.pth":  "import os\n",
		"src/proj.py":                    "",
		"site/pip/__init__.py":           "",
		"site/pip-24.0.dist-info/RECORD": "",
	})
	var log []string
	p := newPlan(&log)
	if err := p.walk(tree{filepath.Join(dir, "site"), "/site"}, skipPackages); err != nil {
		t.Fatal(err)
	}
	if got := p.pathFolders(); !slices.Equal(got, []string{"/site/extra"}) {
		t.Errorf("folders %q", got)
	}
	if len(p.items) != 1 || p.items["/site/extra/mod.py"] == nil {
		t.Errorf("planned %v", p.sorted())
	}
	if all := strings.Join(log, "\n"); !strings.Contains(all, filepath.Join(dir, "src")) {
		t.Errorf("the log does not name the editable project:\n%s", all)
	}
}

func TestPackagesAreReadFromTheirMetadata(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{
		"foo_bar-1.0.dist-info/METADATA":   "Metadata-Version: 2.1\nName: Foo.Bar\nVersion: 1.0\n\nName: not this\n",
		"old-2.egg-info/PKG-INFO":          "Name: old\nVersion: 2\n",
		"flat-3.egg-info":                  "Name: flat\nVersion: 3\n",
		"broken-1.dist-info/RECORD":        "",
		"setuptools-70.dist-info/METADATA": "Name: setuptools\nVersion: 70\n",
	})
	got, err := packagesIn(dir)
	want := []Package{{"flat", "3"}, {"Foo.Bar", "1.0"}, {"old", "2"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("packages %v, %v", got, err)
	}
}

func TestWhatASandboxCannotUseIsLeftOut(t *testing.T) {
	type test struct {
		rel  string
		dir  bool
		skip bool
	}
	stdlib := []test{
		{"test", true, true}, {"ctypes/test", true, true}, {"sqlite3/tests", true, true}, {"idlelib", true, true},
		{"turtle.py", false, true}, {"site-packages", true, true}, {"config-3.13-x86_64-linux-gnu", true, true},
		{"json/__pycache__", true, true}, {"lib-dynload/_tkinter.cpython-313.so", false, true},
		{"lib-dynload/_curses_panel.so", false, true}, {"lib-dynload/_testcapi.so", false, true},
		{"lib-dynload/xxlimited_35.so", false, true}, {"lib-dynload/nis.so", false, true}, {"x.a", false, true},
		{"lib-dynload/_json.so", false, false}, {"json", true, false}, {"os.py", false, false},
		{"unittest/mock.py", false, false}, {"email/config-x", true, false}, {"importlib/readline.py", false, false},
	}
	packages := []test{
		{"pip", true, true}, {"pip-24.0.dist-info", true, true}, {"setuptools-1.egg-info", true, true}, {"bin", true, true},
		{"pkg/__pycache__", true, true}, {"pkg/tests/test_x.py", false, true}, {"pkg/tests/data/x.csv", false, true},
		{"pkg/x.h", false, true}, {"pkg/tests/_helper.py", false, false}, {"pkg/bin", true, false}, {"pkg/pip", true, false},
		{"pkg/__init__.pyi", false, false}, {"pipdeptree-1.dist-info", true, false}, {"only.pyc", false, false},
	}
	for _, tt := range stdlib {
		if got := skipStdlib(tt.rel, tt.dir); got != tt.skip {
			t.Errorf("standard library: %s left out: %v", tt.rel, got)
		}
	}
	withTests := []test{
		{"test", true, false}, {"test/test_json", true, false}, {"test/data/x.pyc", false, false}, {"test/x.h", false, false},
		{"test/__pycache__", true, true}, {"testing.py", false, false}, {"lib-dynload/_testcapi.so", false, false},
		{"lib-dynload/_ctypes_test.so", false, false}, {"lib-dynload/_tkinter.so", false, true}, {"idlelib", true, true},
		{"ctypes/test", true, true}, {"x.a", false, true},
	}
	for _, tt := range withTests {
		if got := skipStdlibButTests(tt.rel, tt.dir); got != tt.skip {
			t.Errorf("standard library with tests: %s left out: %v", tt.rel, got)
		}
	}
	for _, tt := range packages {
		if got := skipPackages(tt.rel, tt.dir); got != tt.skip {
			t.Errorf("packages: %s left out: %v", tt.rel, got)
		}
	}
}
