//go:build linux && amd64

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed collect.py
var collectScript string

// program gives the text that runs a module from its test number first on.
func program(module, mark string, first int) string {
	return fmt.Sprintf("%s\n\nmain(%q, %q, %d)\n", collectScript, module, mark, first)
}

// interpreterFlags are those with which the engine boots an interpreter.
var interpreterFlags = []string{"-I", "-S", "-B", "-X", "utf8"}

// errNoTests is returned when no interpreter has CPython's tests.
var errNoTests = errors.New("no CPython with its test package (a build of pyenv has it; a distribution's may not)")

// Interpreter is a CPython that has its tests.
type Interpreter struct {
	// Path is the program, Minor its version, such as "3.12".
	Path, Minor string
	// Folder is that of the package test.
	Folder string
}

const probe = `import sys, json, test.test_json, test
print(json.dumps({"Path": sys.executable, "Minor": "%d.%d" % sys.version_info[:2], "Folder": test.__path__[0]}))`

func openInterpreter(ctx context.Context, path string) (*Interpreter, error) {
	out, err := exec.CommandContext(ctx, path, "-I", "-S", "-B", "-c", probe).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errNoTests)
	}
	p := new(Interpreter)
	if err := json.Unmarshal(out, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// findInterpreter finds one of the given minor version.
func findInterpreter(ctx context.Context, minor string) (*Interpreter, error) {
	candidates := []string{"python" + minor, "/usr/bin/python" + minor}
	if home, err := os.UserHomeDir(); err == nil {
		more, err := filepath.Glob(filepath.Join(home, ".pyenv/versions", minor+".*", "bin/python"+minor))
		if err == nil {
			slices.Reverse(more)
			candidates = append(candidates, more...)
		}
	}
	for _, c := range candidates {
		if p, err := openInterpreter(ctx, c); err == nil && p.Minor == minor {
			return p, nil
		}
	}
	return nil, errNoTests
}

// modules lists the interpreter's test modules, sorted.
func (p *Interpreter) modules() ([]string, error) {
	entries, err := os.ReadDir(p.Folder)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		name, source := strings.CutSuffix(e.Name(), ".py")
		if !strings.HasPrefix(name, "test_") {
			continue
		}
		if !source {
			if _, err := os.Stat(filepath.Join(p.Folder, name, "__init__.py")); err != nil {
				continue
			}
		}
		list = append(list, "test."+name)
	}
	return list, nil
}

// stamp changes when the interpreter does.
func (p *Interpreter) stamp() (string, error) {
	real, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d", real, st.Size(), st.ModTime().UnixNano()), nil
}
