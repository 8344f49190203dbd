package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

func TestStatusTellsFailedTestsFromTestsThatDidNotRun(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{fmt.Errorf("kernel 6.1: %w", errTests), exitFailed},
		{fmt.Errorf("kernel 6.1: %w", unable("no network")), exitUnable},
		{errors.New("no report"), exitLost},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v gives %d, want %d", c.err, got, c.want)
		}
	}
}

func TestKernelsAreChosenByName(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // empty: refused
	}{
		{nil, defaultKernel},
		{[]string{"-kernel", "6.1"}, "6.1"},
		{[]string{"-kernel", "6.1,6.12"}, "6.1 6.12"},
		{[]string{"-kernel", "all"}, "6.12 6.1"},
		{[]string{"-kernel", "7.0"}, ""},
		{[]string{"-kernel", ""}, ""},
	} {
		o, err := parse(c.args)
		if (err != nil) != (c.want == "") || err == nil && strings.Join(o.kernels, " ") != c.want {
			t.Errorf("%v: %v, %v", c.args, o.kernels, err)
		}
	}
}

func TestTheNewestKernelIsWhatTheMetaPackageDependsOn(t *testing.T) {
	const said = "linux-image-cloud-amd64\n  Depends: linux-image-6.12.117+deb13-cloud-amd64\n"
	if got := imagePackage(said, "6.12"); got != "linux-image-6.12.117+deb13-cloud-amd64" {
		t.Errorf("%q", got)
	}
	if got := imagePackage(said, "6.1"); got != "" {
		t.Errorf("6.12 was taken for 6.1: %q", got)
	}
}

func TestExclusionsMatchNothingElse(t *testing.T) {
	for _, e := range exclusions {
		if e.pkg == "" || e.reason == "" || !slices.ContainsFunc(rows, func(r row) bool { return r.pkg == e.pkg }) {
			t.Errorf("%+v", e)
		}
		for part := range strings.SplitSeq(anchored(e.test), "/") {
			if _, err := regexp.Compile(part); err != nil || part[0] != '^' || part[len(part)-1] != '$' {
				t.Errorf("%s: %q: %v", e.test, part, err)
			}
		}
	}
	if got := skipPattern("internal/other"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestAnArchiveUnpacksToWhatWasPacked(t *testing.T) {
	program, err := exec.LookPath("cpio")
	if err != nil {
		t.Skipf("needs cpio: %v", err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.MkdirAll(filepath.Join(source, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "", "sub/b": "12345"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	a := newArchive(f)
	if err := errors.Join(
		a.data("deep/down/c", 0o600, "123"), a.tree("t", source), a.tree("none", filepath.Join(dir, "missing")),
		a.file("program", filepath.Join(source, "sub/b"), 0o755), a.close(),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-idm", "--quiet")
	cmd.Dir, cmd.Stdin = out, f
	if text, err := cmd.CombinedOutput(); err != nil || len(text) > 0 {
		t.Fatalf("%v: %s", err, text)
	}
	for name, want := range map[string]string{"deep/down/c": "123", "t/a": "", "t/sub/b": "12345", "program": "12345"} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "program")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestARunCountsOnlyWhenEveryStepReported(t *testing.T) {
	b := &built{work: t.TempDir()}
	for out, pkg := range map[string]string{b.testreport(): "../testreport", b.test2json(): "cmd/test2json"} {
		if err := goes(t.Context(), "build", "-o", out, pkg); err != nil {
			t.Fatal(err)
		}
	}
	const passes = "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16PASS\n"
	const fails = "\x16=== RUN   TestA\n\x16--- FAIL: TestA (0.00s)\n\x16FAIL\n"
	start, end := plan.Report{Kind: plan.Start}.String(), plan.Report{Kind: plan.End}.String()
	bad := plan.Report{Kind: plan.End, Status: 1}.String()
	killed := plan.Report{Kind: plan.End, Status: 137}.String()
	done := plan.Report{Kind: plan.Done}.String()
	for _, c := range []struct {
		name, stream string
		want         int
	}{
		{"all passed", start + passes + "\n" + end + "\n" + done, 0},
		{"line ends of a terminal", strings.ReplaceAll(start+passes+"\n"+end+"\n"+done, "\n", "\r\n"), 0},
		{"a test failed", start + fails + "\n" + bad + "\n" + done, exitFailed},
		{"a program was killed", start + "\x16=== RUN   TestA\nhalf a li\n" + killed + "\n" + done, exitFailed},
		{"nothing came", "", exitLost},
		{"only some steps ran", done, exitLost},
		{"the VM ended during a step", start + passes, exitLost},
		{"the VM ended behind a step", start + passes + "\n" + end, exitLost},
		{"process 1 gave up", plan.Report{Kind: plan.Failed, Words: "no KVM"}.String(), exitLost},
		{"no test ran", start + "\x16PASS\n" + "\n" + end + "\n" + done, exitLost},
		{"a step began twice", start + start, exitLost},
		{"a step ended before it began", end, exitLost},
		{"a step that nobody asked for", plan.Report{Kind: plan.Start, N: 9}.String(), exitLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := b.newReporter(t.Context(), []plan.Step{{Variant: plan.SystemdUser, Package: module + "/p"}}, "test", options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range strings.SplitAfter(c.stream, "t") { // in odd pieces
				if _, err := r.Write([]byte(piece)); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.finish(); status(err) != c.want {
				t.Errorf("%v gives %d, want %d", err, status(err), c.want)
			}
		})
	}
}
