// Package windows runs programs that were built for Windows, under Wine where
// that is installed.
package windows

import (
	"bytes"
	"context"
	"debug/pe"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience bounds a hang; the first start makes Wine's folder, which takes half
// a minute on a busy machine.
const patience = 3 * time.Minute

// wine is a Windows of its own for one test, or skips it by name and reason.
type wine struct {
	program, prefix string
	env             []string
}

func newWine(t *testing.T) *wine {
	t.Helper()
	if runtime.GOARCH != "amd64" || runtime.GOOS == "windows" {
		t.Skip("programs for Windows on x86-64 run under Wine on x86-64")
	}
	if testing.Short() {
		t.Skip("starts Wine: left out with -short")
	}
	program := ""
	for _, name := range []string{"wine64", "wine", "/usr/lib/wine/wine64"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("needs Wine (Debian's package wine64)")
	}
	prefix, err := os.MkdirTemp("", "wine")
	if err != nil {
		t.Fatal(err)
	}
	w := &wine{program, prefix, append(os.Environ(), "WINEPREFIX="+prefix, "WINEDEBUG=-all", "DISPLAY=")}
	t.Cleanup(func() {
		// The server of this prefix outlives its programs, and writes to it.
		server := exec.Command(filepath.Join(filepath.Dir(program), "wineserver"), "-k")
		if _, err := os.Stat(server.Path); err != nil {
			server = exec.Command("/usr/lib/wine/wineserver", "-k")
		}
		server.Env = w.env
		_ = server.Run() // it may have ended
		_ = os.RemoveAll(prefix)
	})
	return w
}

// run runs a program for Windows and gives what it wrote, and its exit status.
func (w *wine) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = w.env
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second // Wine's server keeps its outputs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), errOut.String(), cmd.ProcessState.ExitCode()
}

// built builds a program for Windows.
func built(t *testing.T, name string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", append(args[:1:1], append([]string{"-o", out}, args[1:]...)...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, msg)
	}
	return out
}

func TestTheConsoleWorksOnWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for another system: left out with -short")
	}
	mst := built(t, "mst.exe", "build", "./cmd/mst")
	t.Run("is built", func(t *testing.T) {
		f, err := pe.Open(mst)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
			t.Errorf("built for machine %#x", f.Machine)
		}
	})
	w := newWine(t)
	w.starts(t, mst, "version")
	t.Run("commands", func(t *testing.T) {
		for _, r := range []struct {
			args   string
			status int
			want   string
		}{
			{"version", 0, "installation: file (self-update disabled)\n"},
			{"hosts", 0, "No opted-in MAF hosts.\n"},
			{"list --json", 0, "[]\n"},
			{"list --sort nope", 2, ""},
			{"help purge-thread", 0, "Dispose of all sandboxes of a conversation"},
		} {
			out, errOut, status := w.run(t, append([]string{mst}, strings.Fields(r.args)...)...)
			if status != r.status || !strings.Contains(out, r.want) {
				t.Errorf("mst %s: %d, %q, %q", r.args, status, out, errOut)
			}
		}
		// Its end is not looked at: Wine before 9 cannot remove the
		// demonstration's folder in the way that Go does.
		out, errOut, _ := w.run(t, mst, "--demo", "list", "--columns", "instance,state", "--no-headers")
		if !strings.Contains(out, "9f15a25d8c0d4ea0ab1af045d9481001  running\n") {
			t.Errorf("mst --demo list: %q, %q", out, errOut)
		}
	})
	t.Run("discovery folders are private", func(t *testing.T) {
		tests := built(t, "rundir.test.exe", "test", "-c", "./control/internal/rundir")
		out, errOut, status := w.run(t, tests, "-test.v")
		if status != 0 || !strings.Contains(out, "--- PASS: TestAFolderThatLetsOthersInIsRefusedAndNotChanged") {
			t.Errorf("exit status %d\n%s%s", status, out, errOut)
		}
	})
}
