//go:build linux && amd64

package wheels

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

const (
	// scriptTimeout bounds a hang: the slowest script takes seconds.
	scriptTimeout = 2 * time.Minute
	// installTimeout bounds an index that does not answer.
	installTimeout = 5 * time.Minute
)

var packages = []string{"numpy", "pandas", "matplotlib"}

// errNeeds is returned when the machine lacks what the tests need.
var errNeeds = errors.New("needs")

// opened is the template that the tests share.
var opened struct {
	sync.Once
	venv     string
	platform host.Platform
	template *engine.Template
	err      error
}

// open gives the environment and the template of its image, or skips the test
// by name and reason.
func open(t *testing.T) (venv string, tm *engine.Template) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs numpy, pandas and matplotlib: left out with -short")
	}
	opened.Do(func() { opened.err = openAll(context.Background()) })
	if errors.Is(opened.err, errNeeds) {
		t.Skip(opened.err)
	}
	if opened.err != nil {
		t.Fatal(opened.err)
	}
	return opened.venv, opened.template
}

func closeAll() {
	if opened.template != nil {
		_ = opened.template.Close()
	}
	if opened.platform != nil {
		_ = opened.platform.Close()
	}
}

func openAll(ctx context.Context) (err error) {
	if opened.platform, _, err = host.Open(hosttest.Engine()); err != nil {
		return fmt.Errorf("%w an engine: %v", errNeeds, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("%w a cache folder: %v", errNeeds, err)
	}
	cache = filepath.Join(cache, "maf-sandbox-check", "wheels")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	if opened.venv, err = environment(ctx, cache); err != nil {
		return err
	}
	store, err := image.OpenStore(filepath.Join(cache, "images"))
	if err != nil {
		return err
	}
	// A new image each time: an old one may be that of an older capture.
	info, err := store.Build(ctx, image.Options{Venv: opened.venv}, filepath.Base(opened.venv))
	if err != nil {
		return err
	}
	opened.template, err = engine.Open(ctx, engine.Config{Image: info.Path, Platform: opened.platform, Memory: memory})
	return err
}

// environment gives a virtual environment with the packages, which is made once
// for each interpreter and kept.
func environment(ctx context.Context, cache string) (string, error) {
	var reasons []error
	for _, python := range pythons() {
		dir, err := install(ctx, cache, python)
		if err == nil {
			return dir, nil
		}
		reasons = append(reasons, err)
	}
	return "", fmt.Errorf("%w a Python with venv and pip that can install %s: %w", errNeeds, strings.Join(packages, ", "), errors.Join(reasons...))
}

// pythons lists interpreters to try, best first.
func pythons() []string {
	var list []string
	if home, err := os.UserHomeDir(); err == nil {
		for _, minor := range []string{"3.13", "3.12"} {
			found, err := filepath.Glob(filepath.Join(home, ".pyenv/versions", minor+".*", "bin/python3"))
			if err == nil && len(found) > 0 {
				list = append(list, found[len(found)-1])
			}
		}
	}
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if p, err := exec.LookPath(name); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func install(ctx context.Context, cache, python string) (string, error) {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %q", real, st.Size(), st.ModTime().UnixNano(), packages))
	dir := filepath.Join(cache, "venv-"+hex.EncodeToString(sum[:6]))
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	for _, args := range [][]string{
		{python, "-m", "venv", "--clear", dir},
		append([]string{filepath.Join(dir, "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"}, packages...),
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(out))
		}
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
