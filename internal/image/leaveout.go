package image

import (
	"path"
	"strings"
)

// What a sandbox has no use for, by base name at the top of the standard
// library: graphical programs, installers, help texts; and what belongs to the
// host's own set of packages.
var stdlibTop = map[string]bool{
	"idlelib": true, "tkinter": true, "turtledemo": true, "turtle.py": true,
	"ensurepip": true, "lib2to3": true, "pydoc_data": true,
	"site-packages": true, "dist-packages": true,
}

// Extension modules that need a terminal, a display or CPython's own tests.
// A name that ends in "*" stands for all that begin so.
var extensions = []string{
	"_tkinter", "readline", "_curses*", "_dbm", "_gdbm", "nis", "_test*",
	"_xxtestfuzz", "xxlimited*", "xxsubtype*", "_ctypes_test",
}

// Packages that install packages.
var installers = map[string]bool{
	"pip": true, "setuptools": true, "wheel": true, "pkg_resources": true, "_distutils_hack": true,
}

var uselessSuffixes = []string{".a", ".h", ".exe", ".pyc"}

func hasSuffix(name string, suffixes ...string) bool {
	for _, s := range suffixes {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// skipStdlibButTests is skipStdlib for a capture that keeps CPython's own tests:
// the package test, with all its data, and the extension modules it uses.
func skipStdlibButTests(rel string, dir bool) bool {
	base := path.Base(rel)
	if rel == "test" || strings.HasPrefix(rel, "test/") {
		return dir && base == "__pycache__"
	}
	module, _, _ := strings.Cut(base, ".")
	if hasSuffix(base, ".so") && (strings.Contains(module, "test") || strings.HasPrefix(module, "xx")) {
		return false
	}
	return skipStdlib(rel, dir)
}

// skipStdlib says what of the standard library is left out.
func skipStdlib(rel string, dir bool) bool {
	base := path.Base(rel)
	if rel == base && (stdlibTop[base] || dir && strings.HasPrefix(base, "config-")) {
		return true
	}
	if dir {
		return base == "test" || base == "tests" || base == "__pycache__"
	}
	return hasSuffix(base, uselessSuffixes...) || hasSuffix(base, ".pyi", ".pth") ||
		hasSuffix(base, ".so") && skipExtension(base)
}

func skipExtension(base string) bool {
	module, _, _ := strings.Cut(base, ".")
	for _, name := range extensions {
		if stem, open := strings.CutSuffix(name, "*"); module == name || open && strings.HasPrefix(module, stem) {
			return true
		}
	}
	return false
}

// skipPackages says what of a site-packages folder is left out. Stubs (.pyi)
// stay, since lazy loaders read them; byte code outside __pycache__ stays,
// since it may be all there is.
func skipPackages(rel string, dir bool) bool {
	base := path.Base(rel)
	if rel == base {
		project, _, _ := strings.Cut(base, "-")
		switch {
		case installers[base], dir && base == "bin":
			return true
		case hasSuffix(base, ".dist-info", ".egg-info") && installers[project]:
			return true
		case strings.HasPrefix(base, "__editable__") && !hasSuffix(base, ".pth"), base == "distutils-precedence.pth":
			return true
		}
	}
	if dir {
		return base == "__pycache__"
	}
	if strings.Contains("/"+path.Dir(rel)+"/", "/tests/") && !testHelper(base) {
		return true
	}
	return hasSuffix(base, ".a", ".h", ".exe")
}

// testHelper reports whether a file in a package's tests folder may be needed
// by the package itself: numpy.testing imports numpy._core.tests._natype.
func testHelper(base string) bool {
	return hasSuffix(base, ".py") && !strings.HasPrefix(base, "test_") && base != "conftest.py"
}
