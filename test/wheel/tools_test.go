package wheel

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Versions are pinned, so that a new release cannot make a check fail that
// passed yesterday.
const (
	uvVersion      = "uv==0.13.9"
	pipxVersion    = "pipx==1.18.4"
	oldPipxVersion = "pipx==1.15.0" // the last one without install --upgrade
)

// tools gives a folder with programs that pip installs, kept in the user's
// cache, or skips the test by name and reason.
func tools(t *testing.T, requirements ...string) (bin, python string) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs " + strings.Join(requirements, ", ") + ": left out with -short")
	}
	if runtime.GOOS == "windows" {
		t.Skip("environments have another layout on Windows")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("needs a cache folder: %v", err)
	}
	var reasons []string
	for _, python := range pythons() {
		bin, err := install(t.Context(), filepath.Join(cache, "maf-sandbox-check", "updaters"), python, requirements)
		if err == nil {
			return bin, python
		}
		reasons = append(reasons, err.Error())
	}
	t.Skipf("needs a Python with venv and pip that can install %s: %s", strings.Join(requirements, ", "), strings.Join(reasons, "; "))
	return "", ""
}

// pythons lists interpreters to try, best first. Pyenv's shims do not count:
// what they start depends on the folder.
func pythons() []string {
	var list []string
	if home, err := os.UserHomeDir(); err == nil {
		for _, minor := range []string{"3.13", "3.12", "3.11"} {
			if found, err := filepath.Glob(filepath.Join(home, ".pyenv/versions", minor+".*", "bin/python3")); err == nil && len(found) > 0 {
				list = append(list, found[len(found)-1])
			}
		}
	}
	if p, err := exec.LookPath("python3"); err == nil && !strings.Contains(p, "/shims/") {
		list = append(list, p)
	}
	return append(list, "/usr/bin/python3")
}

func install(ctx context.Context, cache, python string, requirements []string) (string, error) {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q", real, requirements))
	dir := filepath.Join(cache, fmt.Sprintf("venv-%x", sum[:6]))
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return filepath.Join(dir, "bin"), nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, args := range [][]string{
		{python, "-m", "venv", "--clear", dir},
		append([]string{filepath.Join(dir, "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"}, requirements...),
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
		}
	}
	return filepath.Join(dir, "bin"), os.WriteFile(done, nil, 0o600)
}
