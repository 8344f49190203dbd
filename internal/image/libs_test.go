//go:build unix

package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const loaderOutput = "\tlinux-vdso.so.1 (0x00007fbf29cf0000)\n" +
	"\t/opt/preloaded.so (0x00007fbf29cf0000)\n" +
	"\tlibm.so.6 => /lib/x/libm.so.6 (0x00007fbf29bff000)\n" +
	"\tlibgone.so.1 => not found\n" +
	"\tlibn.so => /v/a (0x1)/../libs/libn.so (0x00007fbf29bff000)\n" +
	"\t/lib64/ld-linux-x86-64.so.2 (0x00007fbf29cf2000)\n"

func TestLoaderOutputIsRead(t *testing.T) {
	libs, missing := parseList([]byte(loaderOutput))
	want := []library{{"libm.so.6", "/lib/x/libm.so.6"}, {"libn.so", "/v/libs/libn.so"}}
	if !slices.Equal(libs, want) || !slices.Equal(missing, []string{"libgone.so.1"}) {
		t.Errorf("libraries %v, missing %v", libs, missing)
	}
	if libs, missing := parseList([]byte("\tstatically linked\n")); libs != nil || missing != nil {
		t.Errorf("libraries %v, missing %v", libs, missing)
	}
}

// script makes an executable shell script.
func script(t *testing.T, dir, name, body string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// fakeLoader prints, for each file, what is in the file.
func fakeLoader(t *testing.T, dir string) string {
	return script(t, dir, "ld-fake.so.2", `cat "$2"`)
}

func newResolver(p *plan, loader, prefix string) *resolver {
	return &resolver{plan: p, loader: loader, prefix: prefix, byName: make(map[string]string), folders: make(map[string]bool)}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"mod.so": "\tlibgone.so.1 => not found\n"})
	var log []string
	p := newPlan(&log)
	r := newResolver(p, fakeLoader(t, dir), "")
	mod := filepath.Join(dir, "mod.so")
	err := r.run(t.Context(), []string{mod})
	var missing *MissingLibraryError
	if !errors.As(err, &missing) || missing.Library != "libgone.so.1" || missing.NeededBy != mod {
		t.Fatalf("error %v", err)
	}
	// A wheel that brings the library loads it by path first.
	p.items["/site/pkg.libs/libgone.so.1"] = &item{guest: "/site/pkg.libs/libgone.so.1"}
	if err := r.run(t.Context(), []string{mod}); err != nil {
		t.Errorf("error %v", err)
	}
}

func TestLibrariesGoWhereTheGuestFindsThem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	writeTree(t, dir, map[string]string{
		"sys/libz.so.1.3":         "z",
		"sys/libz.so.1":           "-> libz.so.1.3",
		"py/lib/libpython.so.1":   "p",
		"py/lib/extra/libe.so":    "e",
		"site/np.libs/libblas.so": "b",
		"py/bin/python": "\tlibz.so.1 => " + at("sys/libz.so.1") + " (0x1)\n" +
			"\tlibpython.so.1 => " + at("py/bin/../lib/libpython.so.1") + " (0x1)\n" +
			"\tlibe.so => " + at("py/lib/extra/libe.so") + " (0x1)\n" +
			"\tld-fake.so.2 => " + at("ld-fake.so.2") + " (0x1)\n" +
			"\tlibblas.so => " + at("site/np.libs/libblas.so") + " (0x1)\n",
	})
	var log []string
	p := newPlan(&log)
	if err := p.walk(tree{at("site"), "/usr/lib/python3.13/site-packages"}, skipPackages); err != nil {
		t.Fatal(err)
	}
	r := newResolver(p, fakeLoader(t, dir), at("py"))
	if err := r.run(t.Context(), []string{at("py/bin/python")}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/lib/libz.so.1":          "sys/libz.so.1.3",
		"/usr/lib/libpython.so.1": "py/lib/libpython.so.1",
		"/usr/lib/extra/libe.so":  "py/lib/extra/libe.so",
		"/usr/lib/python3.13/site-packages/np.libs/libblas.so": "site/np.libs/libblas.so",
	}
	for guest, host := range want {
		if it := p.items[guest]; it == nil || it.host != at(host) {
			t.Errorf("%s is %v, want %s", guest, it, host)
		}
	}
	if len(p.items) != len(want) {
		t.Errorf("%d files planned", len(p.items))
	}
	if got := r.path(); !slices.Equal(got, []string{"/lib", "/usr/lib", "/usr/lib/extra"}) {
		t.Errorf("library path %q", got)
	}
}

func TestTwoDifferentLibrariesOfOneNameAreAnError(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeTree(t, dir, map[string]string{
		"a/libx.so": "one", "b/libx.so": "two", "c/libx.so": "one",
		"1.so": "\tlibx.so => " + at("a/libx.so") + " (0x1)\n",
		"2.so": "\tlibx.so => " + at("b/libx.so") + " (0x1)\n",
		"3.so": "\tlibx.so => " + at("c/libx.so") + " (0x1)\n",
	})
	var log []string
	loader := fakeLoader(t, dir)
	err := newResolver(newPlan(&log), loader, "").run(t.Context(), []string{at("1.so"), at("2.so")})
	var conflict *LibraryConflictError
	if !errors.As(err, &conflict) || !strings.HasSuffix(conflict.First, "a/libx.so") || !strings.HasSuffix(conflict.Second, "b/libx.so") {
		t.Errorf("error %v", err)
	}
	if err := newResolver(newPlan(&log), loader, "").run(t.Context(), []string{at("1.so"), at("3.so")}); err != nil {
		t.Errorf("two equal files: %v", err)
	}
}
