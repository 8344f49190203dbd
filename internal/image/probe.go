//go:build unix

package image

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed probe.py
var probeScript string

const (
	// probeTimeout is for an interpreter's start; one that takes longer hangs.
	probeTimeout = 60 * time.Second
	// maxReply bounds what a helper program may print, in bytes.
	maxReply = 1 << 20
)

// facts is what probe.py prints.
type facts struct {
	Executable     string   `json:"executable"`
	BasePrefix     string   `json:"base_prefix"`
	Implementation string   `json:"implementation"`
	Version        string   `json:"version"`
	Major          int      `json:"major"`
	Minor          int      `json:"minor"`
	Tag            string   `json:"tag"`
	ABIFlags       string   `json:"abi_flags"`
	Bits           int      `json:"bits"`
	Libc           string   `json:"libc"`
	StdLib         string   `json:"stdlib"`
	DynLoad        string   `json:"dynload"`
	Venv           string   `json:"venv"`
	VenvHome       string   `json:"venv_home"`
	Site           []string `json:"site"`
	Sources        []string `json:"sources"`
}

// python is an interpreter that can be captured.
type python struct {
	facts
	// real is the program file itself, with no links on the way.
	real string
	elf  *program
	// packages lists the site-packages folders to capture, and root the
	// environment's folder that they are in.
	packages []string
	root     string
}

// helperEnv is all that programs which help with a capture see of the
// environment, so that it cannot change what is captured.
func helperEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
}

// findPython resolves what the user asked for to an interpreter.
func findPython(ctx context.Context, o Options) (*python, error) {
	switch {
	case o.Python != "" && o.Venv != "":
		return nil, errors.New("give an interpreter or a virtual environment, not both")
	case o.Venv != "":
		name := filepath.Join(o.Venv, "bin", "python")
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is not a virtual environment (%s is missing): %w", o.Venv, name, ErrNotFound)
		}
		return inspect(ctx, name, true)
	case strings.ContainsRune(o.Python, '/'):
		if _, err := os.Stat(o.Python); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("python %s: %w", o.Python, ErrNotFound)
		}
		return inspect(ctx, o.Python, false)
	case o.Python != "":
		name, err := exec.LookPath(o.Python)
		if err != nil {
			return nil, fmt.Errorf("python %s: not on PATH: %w", o.Python, ErrNotFound)
		}
		return inspect(ctx, name, false)
	}
	return firstPython(ctx, o.logf)
}

// firstPython takes the first python3 on PATH that can be captured.
func firstPython(ctx context.Context, logf func(string, ...any)) (*python, error) {
	var first error
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		name := filepath.Join(dir, "python3")
		st, err := os.Stat(name)
		if !filepath.IsAbs(dir) || err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			continue
		}
		py, err := inspect(ctx, name, false)
		if err == nil || ctx.Err() != nil {
			return py, err
		}
		logf("not used: %v", err)
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, fmt.Errorf("%w; the first one on PATH: %w", ErrNoPython, first)
	}
	return nil, ErrNoPython
}

// inspect asks a program who it is, follows shims and virtual environments to
// the interpreter behind it, and refuses what cannot be captured. own takes
// the interpreter's own packages along where there is no environment.
func inspect(ctx context.Context, name string, own bool) (*python, error) {
	if err := refuseFile(name); err != nil {
		return nil, err
	}
	// The first question is asked in the caller's environment: a version
	// manager's shim may need it to find the interpreter.
	outer, err := ask(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	if err := outer.refuse(name); err != nil {
		return nil, err
	}
	real, err := baseProgram(outer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	inner, err := ask(ctx, real, helperEnv())
	if err != nil {
		return nil, err
	}
	if err := inner.refuse(real); err != nil {
		return nil, err
	}
	py := &python{facts: *inner, real: real}
	if outer.Venv != "" {
		py.root, py.packages = outer.Venv, outer.Site
	} else if own {
		py.root, py.packages = inner.BasePrefix, inner.Site
	}
	if py.elf, err = readProgram(real); err != nil {
		return nil, err
	}
	return py, nil
}

// ask runs the probe; a nil env is the caller's.
func ask(ctx context.Context, name string, env []string) (*facts, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := runHelper(ctx, env, name, "-I", "-S", "-c", probeScript)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer as Python 3.9 or later would: %w", name, err)
	}
	f := new(facts)
	if err := json.Unmarshal(out, f); err != nil {
		return nil, fmt.Errorf("%s does not answer as Python 3.9 or later would: %w", name, err)
	}
	if !filepath.IsAbs(f.Executable) || !filepath.IsAbs(f.BasePrefix) || !filepath.IsAbs(f.StdLib) || f.Tag == "" {
		return nil, fmt.Errorf("%s does not know where it is installed", name)
	}
	return f, nil
}

// runHelper runs a program to its end and returns what it printed.
func runHelper(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := helper(ctx, env, name, args...)
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if line := lastLine(errs.Bytes()); line != "" {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// helper prepares a program that is ended, with all its children, with ctx.
func helper(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// limited keeps the first maxReply bytes and drops the rest.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxReply - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// maxLine bounds what is repeated of another program's words, in bytes: one that
// is no Python may repeat the whole probe.
const maxLine = 200

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	return line
}

// baseProgram finds the program file behind what answered.
func baseProgram(f *facts) (string, error) {
	real, err := filepath.EvalSymlinks(f.Executable)
	if err != nil {
		return "", err
	}
	if f.Venv == "" || !within(real, f.Venv) {
		return real, nil
	}
	// An environment made with --copies: pyvenv.cfg says where it came from.
	version := fmt.Sprintf("python%d.%d", f.Major, f.Minor)
	for _, name := range []string{version, "python3", "python"} {
		if p, err := filepath.EvalSymlinks(filepath.Join(f.VenvHome, name)); err == nil && filepath.IsAbs(f.VenvHome) {
			return p, nil
		}
	}
	return "", fmt.Errorf("the interpreter that the virtual environment was made from is gone: %w", ErrNotFound)
}

// within reports whether p is folder or lies in it.
func within(p, folder string) bool {
	rel, err := filepath.Rel(folder, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
