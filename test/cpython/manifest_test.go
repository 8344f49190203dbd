//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPatternsStandForAnyText(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"A.test_a", "A.test_a", true}, {"A.test_a", "A.test_ab", false}, {"A.*", "A.test_a", true}, {"A.*", "B.test_a", false},
		{"*", "anything at all", true}, {"*.test_a", "x.A.test_a", true}, {"A*B*C", "AxBBxC", true}, {"A*B*C", "AxC", false},
		{"setUpClass (*.A)", "setUpClass (m.A)", true}, {"[a]", "a", false},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q and %q: %v", tt.pattern, tt.name, got)
		}
	}
}

func parse(t *testing.T, lines ...string) Manifest {
	t.Helper()
	m, err := readManifest(strings.NewReader(strings.ReplaceAll(strings.Join(lines, "\n"), " ; ", "\t")))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestManifestLinesThatSayNothingAreRefused(t *testing.T) {
	for name, line := range map[string]string{
		"no reason":       "m\ta\tfail\tpass\t",
		"too few fields":  "m\ta\tfail\tpass",
		"too many fields": "m\ta\tfail\tpass\tr\tx",
		"unknown outcome": "m\ta\tbroken\tpass\tr",
		"no outcome":      "m\ta\t\tpass\tr",
	} {
		if _, err := readManifest(strings.NewReader("# comment\n\n" + line + "\n")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDifferencesNeedALineAndLinesADifference(t *testing.T) {
	js := []*judged{{
		module: "m",
		guest:  Tests{"m.A.a": {Error, "no"}, "m.A.b": {Fail, "x"}, "m.A.c": {Pass, ""}, "m.B.a": {Skip, "s"}, "only": {Pass, ""}},
		native: Tests{"m.A.a": {Pass, ""}, "m.A.b": {Pass, ""}, "m.A.c": {Pass, ""}, "m.B.a": {Pass, ""}},
	}}
	all := []string{"m ; A.a ; error ; pass ; r", "m ; A.b ; fail ; pass ; r", "m ; B.* ; skip ; pass|skip ; r", "m ; only ; pass ; absent ; r"}
	for name, tt := range map[string]struct {
		lines []string
		bad   string
	}{
		"all explained":       {all, ""},
		"one is missing":      {all[1:], "unexplained: m A.a: error in the sandbox, pass outside: no"},
		"another outcome":     {append(slices.Clone(all[1:]), "m ; A.a ; fail ; pass ; r"), "unexplained: m A.a"},
		"stale":               {append(slices.Clone(all), "m ; A.c ; fail ; pass ; r"), "stale: the manifest says that m A.c differs"},
		"depends on the host": {append(slices.Clone(all), "m ; A.c ; fail|pass ; pass ; r"), ""},
		"another module":      {append(slices.Clone(all), "n ; A.c ; fail ; pass ; r"), ""},
		"no reason yet":       {append(slices.Clone(all[1:]), "m ; A.a ; error ; pass ; "+unexplained+"?"), "without a reason: m A.a"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := judge(parse(t, tt.lines...), js, &out)
			if (err != nil) != (tt.bad != "") || !strings.Contains(out.String(), tt.bad) {
				t.Errorf("%v, %s", err, out.String())
			}
		})
	}
}

func TestUpdateAddsWhatIsNewAndDropsWhatIsStale(t *testing.T) {
	js := []*judged{{
		module: "m",
		guest: Tests{
			"m.A.a": {Error, "this sandbox does not offer other processes"}, "m.A.b": {Error, "does not offer other processes"},
			"m.A.c": {Error, "does not offer other processes"}, "m.B.a": {Fail, "odd"}, "m.B.b": {Pass, ""}, "m.C.a": {Fail, "f"},
		},
		native: Tests{"m.A.a": {Pass, ""}, "m.A.b": {Pass, ""}, "m.A.c": {Pass, ""}, "m.B.a": {Pass, ""}, "m.B.b": {Pass, ""}, "m.C.a": {Pass, ""}},
	}}
	m := parse(t, "m ; B.b ; fail ; pass ; gone", "n ; x ; fail ; pass ; other module", "m ; C.a ; fail ; pass ; kept")
	var out bytes.Buffer
	if err := m.update(js).write(&out); err != nil {
		t.Fatal(err)
	}
	want := manifestHead + `m	A.*	error	pass	no other processes in a sandbox
m	B.a	fail	pass	UNEXPLAINED: odd
m	C.a	fail	pass	kept
n	x	fail	pass	other module
`
	if out.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", out.String(), want)
	}
}

func TestCommittedFilesAreSoundAndEveryLineHasAReason(t *testing.T) {
	names, err := filepath.Glob("manifest-*.tsv")
	if err != nil || len(names) == 0 {
		t.Fatalf("no manifest (%v)", err)
	}
	for _, name := range names {
		m, err := loadManifest(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m {
			if strings.HasPrefix(e.Reason, unexplained) {
				t.Errorf("%s: %s %s has no reason", name, e.Module, e.Test)
			}
		}
		var out bytes.Buffer
		if err := m.write(&out); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, out.Bytes()) {
			t.Errorf("%s is not as -update would write it (%v)", name, err)
		}
	}
	excluded, err := loadList("excluded.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for module, why := range excluded {
		if !strings.HasPrefix(module, "test.") || why == "" {
			t.Errorf("excluded.tsv: %q has no reason", module)
		}
	}
	fast, err := loadList("fast.txt")
	if err != nil {
		t.Fatal(err)
	}
	for module := range fast {
		if _, ok := excluded[module]; ok {
			t.Errorf("%s is in both lists", module)
		}
	}
}
