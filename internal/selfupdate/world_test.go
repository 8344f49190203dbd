package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

const (
	testModule  = "example.org/console"
	testPackage = testModule + "/cmd/mst"
)

// world is a file system with one installed program, and fake processes.
type world struct {
	root  string
	tools map[string]bool
	// answers are by the start of the command, the longest counts.
	answers map[string]answer
	ran     []Command
	env     map[string]string
}

type answer struct {
	out, stderr string
	err         error
	do          func(Command)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Nothing of the machine's configuration takes part.
	t.Setenv("HOME", root)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(root, ".config"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, ".cache"))
	t.Setenv("TMPDIR", filepath.Join(root, "tmp"))
	w := &world{root: root, tools: map[string]bool{}, answers: map[string]answer{}, env: map[string]string{}}
	if err := os.Mkdir(w.path("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.root}, elem...)...)
}

// file writes a file and gives its path.
func (w *world) file(t *testing.T, name, text string) string {
	t.Helper()
	path := w.path(filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func (w *world) answer(command, out string) { w.answers[command] = answer{out: out} }

func (w *world) lookPath(name string) (string, error) {
	if w.tools[name] {
		return "/tools/" + name, nil
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

func (w *world) run(ctx context.Context, c Command) (Output, error) {
	if ctx.Err() != nil {
		return Output{}, context.Cause(ctx)
	}
	w.ran = append(w.ran, c)
	best := ""
	for start := range w.answers {
		if strings.HasPrefix(c.String(), start) && len(start) >= len(best) {
			best = start
		}
	}
	a, ok := w.answers[best]
	if !ok {
		return Output{}, fmt.Errorf("no fake for %q", c)
	}
	if a.do != nil {
		a.do(c)
	}
	return Output{Stdout: []byte(a.out), Stderr: []byte(a.stderr)}, a.err
}

// commands are what ran, without what follows "-".
func (w *world) commands() []string {
	var all []string
	for _, c := range w.ran {
		all = append(all, c.String())
	}
	return all
}

func (w *world) ranOne(start string) bool {
	for _, c := range w.commands() {
		if strings.HasPrefix(c, start) {
			return true
		}
	}
	return false
}

func (w *world) options(exe, version string) Options {
	return Options{
		Program:    Program{Name: "mst", Distribution: "maf-sandbox-mst", Module: testModule, Package: testPackage, Version: version},
		Executable: exe, Build: &debug.BuildInfo{}, Runner: w.run, LookPath: w.lookPath, OS: "linux",
		Getenv: func(name string) string { return w.env[name] },
	}
}

// released is what the linker notes in a binary of go install.
func released() *debug.BuildInfo {
	return &debug.BuildInfo{Path: testPackage, Main: debug.Module{Path: testModule, Version: "v1.0.0", Sum: "h1:AAAA"}}
}

// uv puts the program into a tool of uv.
func (w *world) uv(t *testing.T, version string) Options {
	t.Helper()
	exe := w.file(t, "tools/maf-sandbox-mst/bin/mst", "")
	w.file(t, "tools/maf-sandbox-mst/pyvenv.cfg", "")
	w.file(t, "tools/maf-sandbox-mst/"+uvReceipt, "[tool]\nrequirements = []\n")
	w.tools["uv"] = true
	w.answer("uv tool dir", w.path("tools")+"\n")
	w.answer("uv pip compile", "maf-sandbox-mst==2.0\n")
	w.answer("uv tool install", "")
	w.answer("mst version --json", `{"name":"x","version":"2.0"}`)
	return w.options(exe, version)
}

// pipx puts it into an environment of pipx.
func (w *world) pipx(t *testing.T, version, metadata string) Options {
	t.Helper()
	exe := w.file(t, "venvs/maf-sandbox-mst/bin/mst", "")
	w.file(t, "venvs/maf-sandbox-mst/pyvenv.cfg", "")
	w.file(t, "venvs/maf-sandbox-mst/"+pipxMetadata, metadata)
	w.tools["pipx"] = true
	w.answer("pipx environment --value PIPX_LOCAL_VENVS", w.path("venvs")+"\n")
	w.answer("pipx install --help", "  --upgrade, -U  Upgrade or downgrade\n")
	w.answer("pipx runpip maf-sandbox-mst install", `{"install":[{"metadata":{"name":"maf_sandbox_mst","version":"2.0"}}]}`)
	w.answer("pipx runpip maf-sandbox-mst compile", "maf-sandbox-mst==2.0\n")
	w.answer("pipx install --upgrade", "")
	w.answer("mst version --json", `{"version":"2.0"}`)
	return w.options(exe, version)
}

const pipxOrdinary = `{"backend":"pip","main_package":{"package":"maf-sandbox-mst","suffix":"","pip_args":[],"pinned":false}}`

// goInstall puts it into GOBIN.
func (w *world) goInstall(t *testing.T, version string) Options {
	t.Helper()
	exe := w.file(t, "gobin/mst", "old")
	w.env["GOBIN"] = w.path("gobin")
	w.tools["go"] = true
	w.answer("go list", `{"Path":"example.org/console","Versions":["v1.0.0","v1.10.0","v1.9.0","v2.0.0-rc.1","v1.11","nonsense"]}`)
	w.answers["go install"] = answer{do: func(c Command) {
		w.fakeInstall(t, c)
	}}
	w.answer("mst version --json", `{"version":"1.10.0"}`)
	o := w.options(exe, version)
	o.Build = released()
	return o
}

// fakeInstall does what go install does.
func (*world) fakeInstall(t *testing.T, c Command) {
	t.Helper()
	for _, v := range c.Env {
		if dir, ok := strings.CutPrefix(v, "GOBIN="); ok {
			if err := os.WriteFile(filepath.Join(dir, "mst"), []byte("new"), 0o700); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Errorf("%s has no GOBIN", c)
}

func refusal(t *testing.T, err error) *RefusedError {
	t.Helper()
	var r *RefusedError
	if !errors.As(err, &r) || !errors.Is(err, ErrRefused) {
		t.Fatalf("not refused: %v", err)
	}
	return r
}
