//go:build linux && amd64

package vdso

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// answer is one line of testdata/ask.c.
type answer struct {
	function                  string
	arg                       int
	result                    int64
	tscBefore, tscAfter       uint64
	kernelBefore, kernelAfter int64
	seconds, fraction         int64
}

// ask runs the object's functions natively, once for each clock page.
func ask(t *testing.T, clocks []Clock) [][]answer {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	probe := exec.Command(cc, "-E", "-x", "c", "-")
	probe.Stdin = strings.NewReader("#include <gnu/libc-version.h>\n#include <dlfcn.h>\n")
	if err := probe.Run(); err != nil {
		t.Skip("needs the headers of the GNU C library: ", err)
	}
	dir := t.TempDir()
	image, program := filepath.Join(dir, "vdso.so"), filepath.Join(dir, "ask")
	if err := os.WriteFile(image, Build(testClockPage), 0o600); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command(cc, "-O1", "-Wall", "-o", program, "testdata/ask.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, msg)
	}
	var in strings.Builder
	for _, c := range clocks {
		fmt.Fprintln(&in, c.TSC0, c.Mult, c.Mono0, c.Real0)
	}
	cmd := exec.Command(program, image, fmt.Sprintf("%#x", testClockPage))
	cmd.Stdin = strings.NewReader(in.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask: %v\n%s", err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines)%len(clocks) != 0 {
		t.Fatalf("%d answers for %d clocks", len(lines), len(clocks))
	}
	answers := make([][]answer, len(clocks))
	for i, line := range lines {
		var a answer
		if _, err := fmt.Sscan(line, &a.function, &a.arg, &a.result, &a.tscBefore, &a.tscAfter,
			&a.kernelBefore, &a.kernelAfter, &a.seconds, &a.fraction); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n := i / (len(lines) / len(clocks))
		answers[n] = append(answers[n], a)
	}
	return answers
}

// unit is the length of the fraction's unit in nanoseconds.
func (a answer) unit() int64 {
	switch a.function {
	case "clock_gettime":
		return 1
	case "gettimeofday":
		return 1000
	default:
		return 1_000_000_000
	}
}

// source says where the answer has to come from.
func (a answer) source(c Clock) string {
	if c.Mult == 0 {
		return "kernel"
	}
	if a.function != "clock_gettime" {
		return "real"
	}
	switch a.arg {
	case 0, 5:
		return "real"
	case 1, 4, 6, 7:
		return "monotonic"
	default:
		return "kernel"
	}
}

func TestNativeCallsAnswerWithinTheirBrackets(t *testing.T) {
	const year = 31_536_000 * 1_000_000_000
	clocks := []Clock{
		{TSC0: 0, Mult: TickLength(1e6), Mono0: 5, Real0: 50 * year},
		{TSC0: 0, Mult: TickLength(2_900_000), Mono0: year, Real0: 56*year + 999_999_999},
		{TSC0: 12345, Mult: 1, Mono0: 0, Real0: 0},
		{TSC0: 1 << 63, Mult: TickLength(1e6), Mono0: 1_999_999_999, Real0: 3_000_000_001},
		{TSC0: 0, Mult: 0, Mono0: 1, Real0: 2},
	}
	for i, answers := range ask(t, clocks) {
		for _, a := range answers {
			check(t, clocks[i], a)
		}
	}
}

func check(t *testing.T, c Clock, a answer) {
	t.Helper()
	perSecond := 1_000_000_000 / a.unit()
	lo, hi := a.kernelBefore, a.kernelAfter
	monotonicLo, realLo := c.At(a.tscBefore)
	monotonicHi, realHi := c.At(a.tscAfter)
	source := a.source(c)
	switch source {
	case "monotonic":
		lo, hi = int64(monotonicLo)/a.unit(), int64(monotonicHi)/a.unit()
	case "real":
		lo, hi = int64(realLo)/a.unit(), int64(realHi)/a.unit()
	}
	if a.result == -int64(syscall.EINVAL) && source == "kernel" && lo == 0 && hi == 0 {
		return // no such clock, says the kernel too
	}
	if a.result != 0 || a.fraction < 0 || a.fraction >= perSecond {
		t.Errorf("%+v: %+v: malformed", c, a)
	}
	if got := a.seconds*perSecond + a.fraction; got < lo || got > hi {
		t.Errorf("%+v: %s(%d) from %s = %d, want %d to %d", c, a.function, a.arg, source, got, lo, hi)
	}
}
