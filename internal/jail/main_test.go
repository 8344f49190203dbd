//go:build linux && amd64

package jail_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
)

// The test binary is its own worker: the variable names what to do.
const roleVariable = "MAF_SANDBOX_JAIL_TEST"

// hang ends a test that would never end, in emulation on a busy machine too.
const hang = 2 * time.Minute

func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv(roleVariable), ":")
	switch role {
	case "":
		os.Exit(m.Run())
	case "jailed", "free", "second-wall":
		runAttempt(role, arg)
	case "done":
		say("done\n")
		os.Exit(0)
	case "life":
		runLife(arg)
	}
	os.Exit(97)
}

// child is the test binary in a role. Its standard output is collected in out.
func child(t *testing.T, role string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe")
	// The race detector and the coverage tool have no part in this.
	cmd.Env = []string{roleVariable + "=" + role, "PATH=/usr/bin:/bin", "GOTRACEBACK=single"}
	// What it may have left behind must not hold the test up.
	cmd.WaitDelay = time.Second
	out = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	// A connected socket, such as a worker has, as descriptor 3.
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	cmd.ExtraFiles = []*os.File{theirs}
	return cmd, out
}

// ending is how a child ended.
func ending(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	if cmd.Process == nil {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop := time.AfterFunc(hang, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// keptSocket is the descriptor of the connected socket in a child.
const keptSocket = 3

func enterOrDie(spec jail.Spec) jail.Report {
	r, err := jail.Enter(spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(98)
	}
	return r
}
