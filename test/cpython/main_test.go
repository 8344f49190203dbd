//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The modules of fast.txt have the outcomes that they have outside, but for
// what the manifest explains. All modules: go run ./test/cpython
func TestCPythonsOwnTestsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("runs modules of CPython's test suite: left out with -short")
	}
	var out strings.Builder
	o := options{
		minor: "3.12", parallel: 2, fast: true, folder: ".",
		limits: Limits{Module: 3 * time.Minute, Stall: time.Minute},
		say:    func(s string) { t.Log(s) },
	}
	err := run(t.Context(), o, &out)
	if errors.Is(err, errNoTests) || errors.Is(err, platform.ErrUnavailable) {
		t.Skipf("needs CPython %s with its test package, and an engine: %v", o.minor, err)
	}
	t.Log(out.String())
	if err != nil {
		t.Error(err)
	}
}

// sampled lets a runner import modules from a folder.
type sampled struct {
	runner
	dir string
}

func (s sampled) run(ctx context.Context, program string, limit time.Duration, out *collector) (string, error) {
	return s.runner.run(ctx, fmt.Sprintf("import sys; sys.path.append(%q)\n%s", s.dir, program), limit, out)
}

// collect.py reports every kind of outcome, by a name that is the test's own.
func TestCollectorReportsEveryOutcome(t *testing.T) {
	p, err := findInterpreter(t.Context(), "3.12")
	if err != nil {
		t.Skipf("needs CPython 3.12 with its test package: %v", err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "sample.py"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sample.py"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := runModule(t.Context(), sampled{native{p}, dir}, "sample", Limits{Module: time.Minute, Stall: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Outcome{
		"sample.A.test_error": Error, "sample.A.test_exit": Crash, "sample.A.test_expected": XFail, "sample.A.test_fail": Fail,
		"sample.A.test_pass": Pass, "sample.A.test_prints": Pass, "sample.A.test_skip": Skip, "sample.A.test_subtests": Fail,
		"sample.A.test_subtest_skips": Skip, "sample.A.test_unexpected": XPass, "sample.Same.test_pass": Pass, "sample.Same.test_pass #2": Pass,
		"sample.Left.test_out": Skip, "setUpClass (sample.Broken)": Error,
	}
	for name, o := range want {
		if got[name].Outcome != o {
			t.Errorf("%s: %q, want %q (%s)", name, got[name].Outcome, o, got[name].Reason)
		}
	}
	if len(got) != len(want) {
		t.Errorf("outcomes %v", got)
	}
}
