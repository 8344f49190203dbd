package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

// run writes one wheel for each target and gives their paths.
func run(ctx context.Context, o options) ([]string, error) {
	version, err := pep440.Parse(o.version)
	if err != nil {
		return nil, err
	}
	var readme []byte
	if o.readme != "" {
		if readme, err = os.ReadFile(o.readme); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	var paths []string
	for _, t := range o.targets {
		exe, notices, err := o.program(ctx, t, version.String())
		if err != nil {
			return paths, fmt.Errorf("%s: %w", t, err)
		}
		path, err := write(o.out, wheel.Spec{
			Name: o.name, Version: o.version, Target: t, Command: o.command, Executable: exe,
			Summary: o.summary, Readme: string(readme), License: o.license, Notices: notices, Time: o.time,
		})
		if err != nil {
			return paths, fmt.Errorf("%s: %w", t, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// write puts a wheel under its name in one step.
func write(dir string, s wheel.Spec) (string, error) {
	f, err := os.CreateTemp(dir, ".wheel-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	path := filepath.Join(dir, s.Filename())
	err = errors.Join(wheel.Write(f, s), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}

// program gives the executable for a target, and the licence texts that go
// with it.
func (o options) program(ctx context.Context, t wheel.Target, version string) (exe []byte, notices map[string][]byte, err error) {
	if o.binary != "" {
		exe, err := readFile(o.binary)
		return exe, nil, err
	}
	dir, err := os.MkdirTemp("", "wheel-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Without symbol table, build identity and paths.
	link := "-s -w -buildid="
	if o.stamp != "" {
		link += " -X " + o.stamp + "=" + version
	}
	out := filepath.Join(dir, "program")
	if _, err := o.run(ctx, t, "build", "-trimpath", "-buildvcs=false", "-ldflags", link, "-o", out, o.pkg); err != nil {
		return nil, nil, err
	}
	if exe, err = readFile(out); err != nil {
		return nil, nil, err
	}
	notices, err = o.notices(ctx, t)
	return exe, notices, err
}

// run runs the go command for a target.
func (o options) run(ctx context.Context, t wheel.Target, args ...string) ([]byte, error) {
	settings, err := o.settings(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, o.goCommand, args...)
	// GOAMD64 and GOARM64 too: a wheel runs on every processor of its kind.
	cmd.Env = append(settings, "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

// kept are the settings of this machine that say where modules come from and
// where files are kept. None of them changes what is built.
var kept = []string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH", "GOMODCACHE", "GOCACHE", "GOPATH", "GOTOOLCHAIN"}

// settings is the environment of the go command: this one without what would
// have the same source become other bytes, in the environment, in what "go env
// -w" wrote, or in a go.work.
func (o options) settings(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, o.goCommand, append([]string{"env", "-json"}, kept...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOEXPERIMENT=") })
	for _, name := range kept {
		if value := values[name]; value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	return append(environ, "GOENV=off", "GOWORK=off", "GOFIPS140=off"), nil
}

// notices collects the licences of Go itself and of every module with a package
// in the program: nearly all ask for that wherever a binary goes.
func (o options) notices(ctx context.Context, t wheel.Target) (map[string][]byte, error) {
	root, err := o.run(ctx, t, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	if err := licences(found, "go", strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	list, err := o.run(ctx, t, "list", "-deps", "-json=Module", o.pkg)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct{ Module *struct{ Path, Dir string } }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil {
			continue // the standard library
		}
		if err := licences(found, p.Module.Path, p.Module.Dir); err != nil {
			return nil, err
		}
	}
}

// licences adds a module's licence texts.
func licences(found map[string][]byte, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		stem, _, _ := strings.Cut(strings.ToUpper(e.Name()), ".")
		switch stem {
		case "LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS", "COPYRIGHT":
		default:
			continue
		}
		name := strings.ReplaceAll(module, "/", "_") + "-" + e.Name()
		if _, ok := found[name]; ok || !e.Type().IsRegular() {
			continue
		}
		if found[name], err = readFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads a file that fits into a wheel.
func readFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > wheel.MaxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes; at most %d go into a wheel", st.Size(), wheel.MaxFile)}
	}
	return os.ReadFile(path)
}
