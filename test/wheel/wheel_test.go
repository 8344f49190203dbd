// Package wheel tests the wheel and the self-update with the real uv, pipx and
// go, against indexes on this machine.
package wheel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

const (
	distribution = "maf-sandbox-mst"
	module       = "github.com/maf-sandbox/maf-sandbox-go"
	// patience bounds a hang of one process.
	patience = 5 * time.Minute
)

// world is an environment in which nothing of the developer's tools shows.
type world struct {
	home string
	bin  string // the tools under test
	env  []string
}

// newWorld makes a world; bin, if not empty, comes first on its PATH.
func newWorld(t *testing.T, bin string) *world {
	t.Helper()
	home := t.TempDir()
	path := bin + string(filepath.ListSeparator) + os.Getenv("PATH")
	return &world{home, bin, []string{
		"HOME=" + home, "TMPDIR=" + t.TempDir(), "LANG=C.UTF-8", "PATH=" + strings.TrimPrefix(path, string(filepath.ListSeparator)),
		"PIP_CONFIG_FILE=" + os.DevNull, "PIP_DISABLE_PIP_VERSION_CHECK=1", "GOENV=off",
	}}
}

func (w *world) set(env ...string) { w.env = append(w.env, env...) }

// run gives stdout, and stderr apart.
func (w *world) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	program := args[0]
	if tool := filepath.Join(w.bin, program); w.bin != "" && filepath.Base(program) == program {
		program = tool
	}
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Dir = w.home
	cmd.Env = w.env
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func (w *world) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, err := w.run(t, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// report runs an update of the installed program.
func (w *world) report(t *testing.T, mst string, args ...string) selfupdate.Report {
	t.Helper()
	var r selfupdate.Report
	out := w.must(t, append([]string{mst, "update"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return r
}

func (w *world) refused(t *testing.T, mst string, args ...string) string {
	t.Helper()
	out, errOut, err := w.run(t, append([]string{mst, "update"}, args...)...)
	if err == nil {
		t.Fatalf("update %v: %s", args, out)
	}
	return errOut
}

func (w *world) version(t *testing.T, mst, want string) {
	t.Helper()
	if got := w.must(t, mst, "version"); got != "mst "+want+"\n" {
		t.Errorf("mst version: %q, want %s", got, want)
	}
}

// lifecycle is what every owner offers: the program of version 0.1.0 is at mst,
// its index has 0.1.0, 0.2.0, 0.3.0-rc.1 and two that nobody may take.
func lifecycle(t *testing.T, w *world, mst string, manager selfupdate.Manager, pre string) {
	t.Helper()
	steps := []struct {
		args []string
		want selfupdate.Report // without the installation
		then string
	}{
		{[]string{"--check"}, selfupdate.Report{Status: "update_available", Current: "0.1.0", Latest: "0.2.0", Channel: "stable"}, "0.1.0"},
		{[]string{"--check", "--prerelease"}, selfupdate.Report{Status: "update_available", Current: "0.1.0", Latest: pre, Channel: "prerelease"}, "0.1.0"},
		{nil, selfupdate.Report{Status: "updated", Previous: "0.1.0", Installed: "0.2.0"}, "0.2.0"},
		{nil, selfupdate.Report{Status: "current", Previous: "0.2.0", Installed: "0.2.0"}, "0.2.0"},
		{[]string{"--prerelease"}, selfupdate.Report{Status: "updated", Previous: "0.2.0", Installed: pre}, pre},
		{[]string{"--check"}, selfupdate.Report{Status: "newer_than_index", Current: pre, Latest: "0.2.0", Channel: "stable"}, pre},
		{[]string{"--to", "0.1.0"}, selfupdate.Report{Status: "downgraded", Previous: pre, Installed: "0.1.0"}, "0.1.0"},
		{[]string{"--to", "v0.1.0"}, selfupdate.Report{Status: "current", Previous: "0.1.0", Installed: "0.1.0"}, "0.1.0"},
	}
	for _, s := range steps {
		got := w.report(t, mst, s.args...)
		inst := got.Installation
		got.Installation = selfupdate.Installation{}
		if got != s.want {
			t.Fatalf("update %v: %+v, want %+v", s.args, got, s.want)
		}
		// What needs no process does not ask whether the owner is there.
		if inst.Manager != manager || !inst.SelfUpdatable && (len(s.args) < 2 || s.args[0] != "--to" || got.Status != "current") {
			t.Errorf("update %v: installation %+v", s.args, inst)
		}
		w.version(t, mst, s.then)
	}
	if msg := w.refused(t, mst, "--to", "9.9.9"); !strings.Contains(msg, "install: ") || !strings.Contains(msg, "9.9.9") {
		t.Errorf("a version that does not exist: %s", msg)
	}
	w.version(t, mst, "0.1.0")
	if msg := w.refused(t, mst, "--to", "x y"); !strings.Contains(msg, `invalid target version "x y"`) {
		t.Errorf("no version: %s", msg)
	}
	if msg := w.refused(t, mst, "--timeout", "1ns"); !strings.Contains(msg, "not done within 1ns") {
		t.Errorf("without time: %s", msg)
	}
	w.version(t, mst, "0.1.0")
}

// build builds the test's program as a wheel's.
func build(t *testing.T, version string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "mst")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.stamped="+version, "-o", out, "./testdata/mst")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, msg)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func target() string { return fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH) }
