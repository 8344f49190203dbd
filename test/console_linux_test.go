package test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

// Who gets less than a virtual machine without having asked for it is told so.
func TestWhoeverSitsAtATerminalIsToldTheIsolation(t *testing.T) {
	if !canRun() {
		t.Skip("needs an engine and python3")
	}
	cmd := exec.Command(cli.Program, "run", "../examples/analysis.py")
	cmd.Env = append(os.Environ(), "TERM=xterm", cli.CacheEnv+"="+filepath.Join(t.TempDir(), "cache"))
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	hang := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends the read below
	defer hang.Stop()
	screen, _ := io.ReadAll(tty) // EIO at the end, as terminals do
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v; screen %q", err, screen)
	}
	golden, err := os.ReadFile("../examples/analysis.golden")
	if err != nil || stdout.String() != string(golden) {
		t.Errorf("stdout %q, %v", stdout.String(), err)
	}
	told := regexp.MustCompile(`maf-sandbox: no usable KVM here: .*\(isolation (container|os_process)\)`).Match(screen)
	if told == has(host.KVM) {
		t.Errorf("KVM is usable: %v; the screen has %q", has(host.KVM), screen)
	}
}

func TestCtrlCInAConversationInterruptsTheProgramAndKeepsItsNames(t *testing.T) {
	if !canRun() {
		t.Skip("needs an engine and python3")
	}
	cmd := exec.Command(cli.Program, "repl")
	cmd.Env = append(os.Environ(), "TERM=xterm", cli.CacheEnv+"="+filepath.Join(t.TempDir(), "cache"))
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	hang := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends the reads below
	defer hang.Stop()

	var screen []byte
	for _, step := range []struct{ see, typed string }{
		{">>> ", "x = 7\r"},
		{">>> ", "print('st' + 'arted', flush=True); exec('while True: pass')\r"},
		{"started", "\x03"},
		{"KeyboardInterrupt", ""},
		{">>> ", "x * 6\r"},
		{"42", ""},
		{">>> ", "\x04"},
	} {
		var at int
		for at = bytes.Index(screen, []byte(step.see)); at < 0; at = bytes.Index(screen, []byte(step.see)) {
			var b [1024]byte
			n, err := tty.Read(b[:])
			if err != nil {
				t.Fatalf("%v while waiting for %q; screen %q", err, step.see, screen)
			}
			screen = append(screen, b[:n]...)
		}
		screen = screen[at+len(step.see):]
		if _, err := io.WriteString(tty, step.typed); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("end: %v", err)
	}
}
