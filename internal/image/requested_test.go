//go:build unix

package image

import (
	"maps"
	"slices"
	"testing"
)

func TestPackagesThatWereAskedForAreKnownByTheirNormalNames(t *testing.T) {
	const site, site64 = "/usr/lib/python3.13/site-packages", "/usr/lib64/python3.13/site-packages"
	f := new(buffer)
	w, err := newWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		site + "/Foo_Bar.baz-1.0.dist-info/REQUESTED", site + "/needed-1.0.dist-info/METADATA",
		site + "/old-name-2.dist-info/REQUESTED", site + "/nameless.dist-info/REQUESTED", site + "/pkg/REQUESTED",
		site64 + "/wide-1.dist-info/REQUESTED", "/usr/lib/elsewhere-1.dist-info/REQUESTED",
	} {
		if err := w.file(name, nil, false, fileAlign); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.finish(&Manifest{
		Python: "3.13.0", Tag: "cpython-313", Executable: "/usr/bin/python3.13", Interp: "/lib64/ld.so", StdLib: "/usr/lib/python3.13",
		SitePackages: []string{site, site64, "/usr/lib/missing"},
	}); err != nil {
		t.Fatal(err)
	}
	im, err := openBytes(t, f.b)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(im.Requested())); !slices.Equal(got, []string{"foo-bar-baz", "old-name", "wide"}) {
		t.Errorf("requested %q", got)
	}
}

func TestNamesOfPackagesAreComparedInOneForm(t *testing.T) {
	for name, want := range map[string]string{
		"NumPy": "numpy", "Foo._-Bar": "foo-bar", "a": "a", "": "", "_x_": "-x-", "é": "é",
	} {
		if got := NormalName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
