package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
)

//go:embed workloads/*.py
var workloadFiles embed.FS

// nativeShare is the part of native speed that is promised (N7).
const nativeShare = 0.95

// measured is put after a workload: its first round warms up, the second one
// counts. What counts is taken inside, so that starting an interpreter does
// not.
const measured = `
import time as _time
work()
_start = _time.perf_counter()
work()
print((_time.perf_counter() - _start) * 1e3)
`

// workloads gives the names of the CPU-bound programs; numpy is one of them
// when asked for.
func workloads(numpy bool) ([]string, error) {
	entries, err := workloadFiles.ReadDir("workloads")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".py"); name != "numpy" || numpy {
			names = append(names, name)
		}
	}
	return names, nil
}

// workload gives the text of a program that prints how many milliseconds its
// work took.
func workload(name string) (string, error) {
	b, err := workloadFiles.ReadFile(path.Join("workloads", name+".py"))
	return string(b) + measured, err
}

// native is a Python of the host.
type native struct{ path string }

// findNative finds the host's Python that the guest is compared with, which
// has to be of the same version.
func findNative(ctx context.Context, name, version string) (native, error) {
	if name == "" {
		name = "python3"
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return native{}, fmt.Errorf("no native Python to compare with: %w", err)
	}
	out, err := native{p}.run(ctx, "import sys; print(sys.version.split()[0]); print(sys.executable)")
	if err != nil {
		return native{}, err
	}
	got, program, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if got != version {
		return native{}, fmt.Errorf("%s is Python %.20q and the guest is %s: nothing to compare", p, got, version)
	}
	// What is on PATH may be a script that looks for the interpreter first.
	return native{program}, nil
}

// run runs a program as the guest runs it and gives what it printed.
func (n native) run(ctx context.Context, code string) (string, error) {
	cmd := exec.CommandContext(ctx, n.path, "-B", "-X", "utf8", "-c", code)
	cmd.Env = []string{"LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", n.path, err, lastLine(exit.Stderr))
	}
	return string(out), err
}

// parseNumber reads what a workload printed.
func parseNumber(out string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("the program printed %.40q instead of a time", out)
	}
	return v, nil
}
