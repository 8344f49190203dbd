package pep440

import (
	"errors"
	"strings"
	"testing"
)

// ordered is the order of PEP 440's examples, and what lies between them.
var ordered = []string{
	"0.9", "1.0.dev1", "1.0.dev2", "1.0.dev11", "1.0a1.dev1", "1.0a1", "1.0a1.post1.dev2", "1.0a1.post1", "1.0a2.dev456", "1.0a12.dev456",
	"1.0a12", "1.0b1.dev456", "1.0b2", "1.0b2.post345.dev456", "1.0b2.post345", "1.0rc1.dev456", "1.0rc1", "1.0",
	"1.0+abc.5", "1.0+abc.7", "1.0+5", "1.0.post456.dev34", "1.0.post456", "1.0.15", "1.1.dev1", "1.2", "1.10",
	"99999999999999999999999999.0", "100000000000000000000000000.0", "1!0.1",
}

func parse(t *testing.T, s string) Version {
	t.Helper()
	v, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersionsAreOrderedAsThePEPSays(t *testing.T) {
	for i, a := range ordered {
		for j, b := range ordered {
			got := parse(t, a).Compare(parse(t, b))
			if want := i - j; (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("Compare(%s, %s) = %d", a, b, got)
			}
		}
	}
}

func TestSpellingsHaveOneNormalForm(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "v1.2.3-alpha.2": "1.2.3a2", "1.0-BETA": "1.0b0", "1.0.pre_3": "1.0rc3", "1.0c1": "1.0rc1",
		"1.0-1": "1.0.post1", "1.0.r4": "1.0.post4", "1.0-post": "1.0.post0", "1.0.dev": "1.0.dev0", "1.2.3-dev.4": "1.2.3.dev4",
		" 001.010 ": "1.10", "0!1.0": "1.0", "2!1.0": "2!1.0", "1.0+Ubuntu-1_02": "1.0+ubuntu.1.2", "1.0-rc.1-2-dev.3": "1.0rc1.post2.dev3",
	} {
		if got := parse(t, in).String(); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestOneVersionMayBeWrittenWithMoreZeros(t *testing.T) {
	if c := parse(t, "1.0").Compare(parse(t, "1.0.0")); c != 0 {
		t.Errorf("1.0 against 1.0.0: %d", c)
	}
}

func TestPrereleasesAreThoseAnInstallerDoesNotTakeUnasked(t *testing.T) {
	for in, want := range map[string]bool{"1.0": false, "1.0.post1": false, "1.0rc1": true, "1.0.dev1": true, "1.0.post1.dev1": true, "1.0+local": false} {
		if got := parse(t, in).Prerelease(); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestWhatIsNoVersionIsRefused(t *testing.T) {
	for _, in := range []string{"", "x y", "latest", "1.0-foo", "1..0", "1.0+", "1.0+a..b", "v0.0.0-20260101000000-abcdefabcdef", "1\x1b[2J", strings.Repeat("1", MaxLength+1)} {
		if v, err := Parse(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", in, v, err)
		}
	}
}

func TestNamesHaveOneNormalForm(t *testing.T) {
	if got := Name("Maf_Sandbox.-mst"); got != "maf-sandbox-mst" {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range ordered {
		f.Add(s)
	}
	f.Add("v1.2.3-rc.1")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(v.String())
		if err != nil {
			t.Fatalf("the normal form %q of %q: %v", v, s, err)
		}
		if again.String() != v.String() || again.Compare(v) != 0 {
			t.Errorf("%q is %q, then %q", s, v, again)
		}
	})
}
