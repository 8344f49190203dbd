//go:build unix

package selfupdate

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const shell = "/bin/sh"

func TestExecRunsAProcess(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := Exec(t.Context(), Command{Path: shell, Args: []string{"-c", `cat; pwd -P; echo "$MST_TEST"; echo bad >&2; exit 3`}, Env: []string{"MST_TEST=value"}, Dir: dir, Stdin: "in\n"})
	if err == nil || err.Error() != "exit status 3" {
		t.Errorf("%v", err)
	}
	if got := string(out.Stdout); got != "in\n"+dir+"\nvalue\n" {
		t.Errorf("%q", got)
	}
	if string(out.Stderr) != "bad\n" || out.Cut {
		t.Errorf("%q, %v", out.Stderr, out.Cut)
	}
}

func TestExecEndsEverythingThatItStarted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("needs a FIFO: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		// A shell's background processes ignore the interrupt.
		_, err := Exec(ctx, Command{Path: shell, Args: []string{"-c", `sleep 1000 3>"$0" >/dev/null 2>&1 & wait`, fifo}})
		done <- err
	}()
	// Opens when the grandchild has the other end; ends when all have closed it.
	r, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the grandchild lives")
	}
}

func TestALimitEndsARealProcess(t *testing.T) {
	w := newWorld(t)
	o := w.uv(t, "1.0")
	o.Runner = nil
	uv := w.file(t, "bin/uv", "#!"+shell+"\nexec sleep 1000\n")
	o.LookPath = func(string) (string, error) { return uv, nil }
	o.Timeout = 50 * time.Millisecond
	err := runErr(t, o)
	if s := stepError(t, err); s.Step != StepProbe || s.Timeout != o.Timeout || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done within 50ms") {
		t.Error(err)
	}
}
