package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// built is the program as its users have it.
func built(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "mst")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return program
}

// BenchmarkVersion is the whole process of "mst version".
func BenchmarkVersion(b *testing.B) {
	program := built(b)
	for b.Loop() {
		if err := exec.Command(program, "version").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstPaint is from the start of the process to the console's first
// screen.
func BenchmarkFirstPaint(b *testing.B) {
	program := built(b)
	empty := filepath.Join(b.TempDir(), "none")
	for b.Loop() {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "TERM=xterm-256color", "MAF_SANDBOX_TUI_RUNTIME_DIR="+empty)
		tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 140, Rows: 36})
		if err != nil {
			b.Fatal(err)
		}
		var seen strings.Builder
		var buf [8192]byte
		for !strings.Contains(seen.String(), "LIVE INSTANCES") {
			n, err := tty.Read(buf[:])
			if err != nil {
				b.Fatal(err)
			}
			seen.Write(buf[:n])
		}
		b.StopTimer()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
		_ = tty.Close()
		b.StartTimer()
	}
}
