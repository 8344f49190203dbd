//go:build linux

package owner_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

// The test binary is its own second process: the variables name what to do.
const (
	roleVariable   = "MAF_SANDBOX_OWNER_TEST"
	folderVariable = "MAF_SANDBOX_OWNER_TEST_FOLDER"
)

// hang ends a test that would never end, in emulation on a busy machine too.
const hang = 2 * time.Minute

func TestMain(m *testing.M) {
	role, dir := os.Getenv(roleVariable), os.Getenv(folderVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if role == "race" {
		wait() // for the start signal
	}
	if role != "bystander" {
		_, err := owner.Acquire(dir, "shared")
		switch {
		case errors.Is(err, owner.ErrBusy):
			fmt.Println("busy")
			wait()
			os.Exit(0)
		case err != nil:
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	wait() // until the parent closes standard input, or kills
	os.Exit(0)
}

func wait() {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		os.Exit(2)
	}
}

// other is the test binary in a role.
type other struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, role, dir string, files ...*os.File) *other {
	t.Helper()
	return startAs(t, os.Geteuid(), role, dir, files...)
}

func startAs(t *testing.T, user int, role, dir string, files ...*os.File) *other {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if user != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	}
	cmd.Env = []string{roleVariable + "=" + role, folderVariable + "=" + dir}
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(hang, func() { _ = cmd.Process.Kill() })
	o := &other{cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() { stop.Stop(); o.kill() })
	return o
}

// says is the next line of the process.
func (o *other) says(t *testing.T) string {
	t.Helper()
	s, err := o.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

// kill kills with SIGKILL and waits until the process is gone.
func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}
