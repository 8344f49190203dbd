//go:build linux && amd64

// Package wheels tests that ordinary binary wheels compute in a sandbox what
// they compute outside.
package wheels

import (
	"embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

//go:embed testdata
var scripts embed.FS

// memory is what the largest of the scripts needs, and room.
const memory = 1 << 30

func script(t *testing.T, name string) []byte {
	t.Helper()
	b, err := scripts.ReadFile("testdata/" + name + ".py")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// outside runs a script in the environment itself, with the engine's flags and
// variables. -S would hide the environment's packages.
func outside(t *testing.T, venv string, code []byte) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin/python"), "-I", "-B", "-X", "utf8", "-c", string(code))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir, "LANG=C.UTF-8", "TZ=UTC", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("outside: %v", err)
	}
	return string(out)
}

// inside runs a script in a fresh machine, as often as said, with a reset after
// each run; the results must be the same.
func inside(t *testing.T, tm *engine.Template, runs int, code []byte) string {
	t.Helper()
	vm, err := tm.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	var first string
	for i := range runs {
		res, err := vm.Run(t.Context(), engine.Request{Code: code, Timeout: scriptTimeout})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("in the sandbox: exit %d, %v\n%s", res.ExitCode, err, res.Stderr)
		}
		if i == 0 {
			first = string(res.Stdout)
		} else if first != string(res.Stdout) {
			t.Errorf("a reset changed the result:\n%s\nafter it:\n%s", first, res.Stdout)
		}
		if err := vm.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

func TestWheelsComputeInASandboxWhatTheyComputeOutside(t *testing.T) {
	venv, tm := open(t)
	// Where importing takes most of the time, one run has to do.
	for name, runs := range map[string]int{"numpy": 2, "pandas": 1, "matplotlib": 1} {
		t.Run(name, func(t *testing.T) {
			code := script(t, name)
			want := outside(t, venv, code)
			if got := inside(t, tm, runs, code); got != want {
				t.Errorf("in the sandbox:\n%s\noutside:\n%s", got, want)
			}
		})
	}
	t.Run("sum", func(t *testing.T) {
		if got := inside(t, tm, 3, []byte("import numpy; print(numpy.arange(10).sum())")); got != "45\n" {
			t.Errorf("printed %q", got)
		}
	})
}

// features is what testdata/features.py prints.
type features struct {
	Features                  map[string]bool
	Baseline, Dispatch, Found []string
	NotFound                  []string `json:"not found"`
}

// A single bit that the guest's CPUID lacks (LZCNT, say) makes numpy drop a
// whole group of features, and sort eleven times slower, without a word.
func TestNumpyDispatchesInASandboxToTheSameInstructionsAsOutside(t *testing.T) {
	venv, tm := open(t)
	code := script(t, "features")
	var in, out features
	for to, text := range map[*features]string{&in: inside(t, tm, 1, code), &out: outside(t, venv, code)} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("found: %v", in.Found)
	for name, has := range out.Features {
		if in.Features[name] != has {
			t.Errorf("%s: %v in the sandbox, %v outside", name, in.Features[name], has)
		}
	}
	if !slices.Equal(in.Found, out.Found) || !slices.Equal(in.NotFound, out.NotFound) {
		t.Errorf("show_config finds %v and not %v, outside %v and not %v", in.Found, in.NotFound, out.Found, out.NotFound)
	}
	// Versions of numpy name the group or its members.
	for _, group := range []string{"X86_V3", "AVX2", "LZCNT", "FMA3", "BMI2"} {
		if has, known := out.Features[group]; known && has && !in.Features[group] {
			t.Errorf("the sandbox lacks %s", group)
		}
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	closeAll()
	os.Exit(code)
}
