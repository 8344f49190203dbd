package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestPackagesAreNamesAndVersionsOnly(t *testing.T) {
	long := strings.Repeat("1", sandbox.MaxPackageBytes+1)
	for _, name := range []string{"numpy", "scikit-learn", "a", "3to2", "zope-interface"} {
		if err := (sandbox.Package{Name: name, Version: "1"}).Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "a--b", "a_b", "A", "a b", "ignore\nthis", "ü", "a.b", "\x1b[2J", long} {
		if err := (sandbox.Package{Name: name, Version: "1"}).Validate(); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	for _, version := range []string{"1", "2.32.5", "2025.01.31", "1!2.0", "1.0a1", "1.0b2.post3.dev4", "1.0rc1", "1.0.dev0", "1.0.post1", "2.6.0+cu124", "1+ubuntu-1_2.3"} {
		if err := (sandbox.Package{Name: "a", Version: version}).Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, version := range []string{
		"", ".", "1.", "1..2", "a1", "v1", "1 ", " 1", "1.0a", "1.0.post", "1.0.dev1.post1", "1.0rc1a1", "!1", "1!", "1!!2", "1x!2", "1+", "1+a+b", "1+A", "1+-a", "1+a-",
		"1.0 or do as I say", "1\n2", "1.0\x00", "１", long, "1+" + long,
	} {
		if err := (sandbox.Package{Name: "a", Version: version}).Validate(); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("the version %q: %v", version, err)
		}
	}
}

func TestFactsAreBoundedAndWhole(t *testing.T) {
	one := sandbox.Package{Name: "a", Version: "1"}
	for name, f := range map[string]sandbox.Facts{
		"nothing": {}, "a Python alone": {Python: "3.14.0rc2"}, "packages": {ImageID: "x", Python: "3.13.0", Packages: []sandbox.Package{one}, MorePackages: 2},
	} {
		if err := f.Validate(); err != nil || f.Known() != (name != "nothing") {
			t.Errorf("%s: known %v, %v", name, f.Known(), err)
		}
	}
	for field, f := range map[string]sandbox.Facts{
		"facts.python":        {Packages: []sandbox.Package{one}},
		"facts.image_id":      {Python: "3.13.0", ImageID: "\xff"},
		"facts.packages":      {Python: "3.13.0", Packages: make([]sandbox.Package, sandbox.MaxPackages+1)},
		"facts.more_packages": {Python: "3.13.0", MorePackages: -1},
		"package.name":        {Python: "3.13.0", Packages: []sandbox.Package{{Name: "A", Version: "1"}}},
		"package.version":     {Python: "3.13.0", Packages: []sandbox.Package{{Name: "a"}}},
	} {
		var refusal *sandbox.RefusalError
		if err := f.Validate(); !errors.As(err, &refusal) || refusal.Subject != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (sandbox.Facts{Python: "3.13 with jokes"}).Validate(); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a Python of many words: %v", err)
	}
}

// What is accepted is a version in the eyes of the reader of PEP 440 too, and
// what that one makes of a version is accepted.
func FuzzPackageVersion(f *testing.F) {
	for _, seed := range []string{"1", "2.32.5", "1!2.0a1.post2.dev3+x.y", "1.0-1", "V1.0.RC1", "1.0.dev", "1+A_b", "1.post", "0!0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, version string) {
		accepted := sandbox.Package{Name: "a", Version: version}.Validate() == nil
		v, err := pep440.Parse(version)
		if accepted && (err != nil || strings.ContainsAny(version, " \n\"'<>`")) {
			t.Errorf("%q is accepted: %v", version, err)
		}
		if err != nil || len(v.String()) > sandbox.MaxPackageBytes {
			return
		}
		if err := (sandbox.Package{Name: "a", Version: v.String()}).Validate(); err != nil {
			t.Errorf("the normal form of %q: %v", version, err)
		}
	})
}
