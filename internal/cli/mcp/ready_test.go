package mcp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestWhatIsMissingIsToldBeforeAnyClient(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("text", []byte("no image\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		name string
		args []string
		want string
	}{
		{"an image that there is not", []string{"--image", "nosuch"}, `"nosuch": not found; 'maf-sandbox image ls' lists`},
		{"an image's file that there is not", []string{"--image", "./nosuch.img"}, "./nosuch.img: not found"},
		{"a file without its folder", []string{"--image", "text"}, "a file is named with its folder: ./text"},
		{"a file that is no image", []string{"--image", "./text"}, "the image ./text cannot be used: "},
		{"a folder", []string{"--image", "./"}, "the image ./ cannot be used: "},
		{"a name that none has", []string{"--image", "a b"}, `"a b": not found`},
	} {
		t.Run(r.name, func(t *testing.T) {
			o, err := parse(t, r.args...)
			if err != nil {
				t.Fatal(err)
			}
			err = o.ready()
			if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(cli.Explain(err), r.want) || cli.ExitStatus(err) != cli.ExitSandbox {
				t.Errorf("got %q, want %q", cli.Explain(err), r.want)
			}
		})
	}
}

func TestACacheThatCannotBeMadeIsToldBeforeAnyClient(t *testing.T) {
	o, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Factory.CacheDir = func() (string, error) { return filepath.Join(file, "cache"), nil }
	if err := o.ready(); !strings.Contains(cli.Explain(err), "no image store: ") {
		t.Errorf("got %v", err)
	}
}

func TestAMachineWithoutPythonIsToldBeforeAnyClient(t *testing.T) {
	t.Setenv("PATH", "/desktop\x1b[2J")
	o, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	told := cli.Explain(o.ready())
	for _, want := range []string{`no python3 on the PATH that this process was given, "/desktop\x1b[2J": 'maf-sandbox image build' in your shell`, "install Python 3.9 or later"} {
		if !strings.Contains(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	}
}

func TestLimitsThatCannotBeHadAreToldBeforeAnyClient(t *testing.T) {
	t.Setenv("PATH", python(t))
	for _, offer := range ceiling.Probe() {
		o, err := parse(t, "--limits", string(offer.Enforcement))
		if err != nil {
			t.Fatal(err)
		}
		switch err := o.ready(); {
		case offer.Err == nil && err != nil:
			t.Errorf("%s: %v", offer.Enforcement, err)
		case offer.Err != nil && !strings.Contains(cli.Explain(err), "--limits "+string(offer.Enforcement)+" cannot be had: "):
			t.Errorf("%s: got %v, want %v", offer.Enforcement, err, offer.Err)
		}
	}
}

// python is a folder with something that goes by that name.
func python(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return dir
}
