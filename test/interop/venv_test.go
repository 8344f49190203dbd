//go:build unix

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// installTimeout bounds an index that does not answer.
	installTimeout = 5 * time.Minute
	// patience bounds a hang of a Python program.
	patience = 60 * time.Second
	// newestFor is how long the newest version that was found counts as it.
	newestFor = 7 * 24 * time.Hour
)

// peers are the versions of the package maf-sandbox-tui under test: the one
// whose behaviour was recorded, and whatever is newest.
var peers = []struct{ name, requirement string }{
	{"0.1.0", "maf-sandbox-tui==0.1.0"},
	{"newest", "maf-sandbox-tui"},
}

// venvs are made once for each run of the tests.
var venvs sync.Map

// eachPeer runs a test with every version. A version that cannot be had is
// skipped by name and reason.
func eachPeer(t *testing.T, f func(t *testing.T, venv string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs the Python packages maf-sandbox-tui: left out with -short")
	}
	for _, peer := range peers {
		t.Run(peer.name, func(t *testing.T) {
			made, _ := venvs.LoadOrStore(peer.name, sync.OnceValues(func() (string, error) {
				return environment(peer.name, peer.requirement)
			}))
			venv, err := made.(func() (string, error))()
			if err != nil {
				t.Skipf("needs a Python 3.12 or newer that can install %s: %v", peer.requirement, err)
			}
			f(t, venv)
		})
	}
}

// environment gives a virtual environment with the package, which is kept in
// the user's cache.
func environment(name, requirement string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "maf-sandbox-check", "interop")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	var reasons []error
	for _, python := range pythons() {
		venv, err := install(cache, python, name, requirement)
		if err == nil {
			return venv, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", python, err))
	}
	if len(reasons) == 0 {
		return "", errors.New("no such Python under pyenv or on PATH")
	}
	return "", errors.Join(reasons...)
}

// pythons lists interpreters that are new enough, newest first.
func pythons() []string {
	var candidates []string
	if home, err := os.UserHomeDir(); err == nil {
		for _, minor := range []string{"3.14", "3.13", "3.12"} {
			found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", minor+".*", "bin/python3"))
			slices.Reverse(found)
			candidates = append(candidates, found...)
		}
	}
	if found, err := exec.LookPath("python3"); err == nil {
		candidates = append(candidates, found)
	}
	return slices.DeleteFunc(candidates, func(python string) bool {
		return exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 12))").Run() != nil
	})
}

func install(cache, python, name, requirement string) (string, error) {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", real, st.Size(), st.ModTime().UnixNano()))
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:6]))
	done := filepath.Join(dir, "complete")
	if st, err := os.Stat(done); err == nil && (strings.Contains(requirement, "==") || time.Since(st.ModTime()) < newestFor) {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{
		{python, "-m", "venv", "--clear", dir},
		{filepath.Join(dir, "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", requirement},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args[1:], " "), err, lastLine(out))
		}
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// ran is what a program did.
type ran struct {
	code           int
	stdout, stderr string
}

// mst runs the console of the Python package over a discovery folder.
func mst(t *testing.T, venv, dir string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(venv, "bin/mst"), args...)
	command.Env = pythonEnv(dir)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("mst %s: %v", strings.Join(args, " "), err)
	}
	return ran{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// pythonEnv is an environment without what the tester has set.
func pythonEnv(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8",
		"PYTHONWARNINGS=ignore", "MAF_SANDBOX_TUI_RUNTIME_DIR=" + dir,
	}
}

// pythonHost starts testdata/host.py, with a folder, a name and a kind for each
// host that it is to be, and waits until all are announced. It ends with the
// test.
func pythonHost(t *testing.T, venv string, hosts ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(filepath.Join(venv, "bin/python"), append([]string{"testdata/host.py"}, hosts...)...)
	command.Env = pythonEnv(hosts[0])
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	bound := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Wait()
		bound.Stop()
	})
	line := make([]byte, len("ready"))
	if _, err := stdout.Read(line); err != nil || string(line) != "ready" {
		_ = command.Process.Kill()
		t.Fatalf("the Python hosts %q did not start: %q, %v\n%s", hosts, line, err, stderr.String())
	}
	return command
}

// shortDir is a discovery folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}
