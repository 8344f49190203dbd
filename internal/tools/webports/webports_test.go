//go:build linux

package webports

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
)

// insideEnv has this test program look at what it finds in a namespace.
const insideEnv = "WEBPORTS_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" {
		os.Exit(m.Run())
	}
	if !inside() {
		status, err := again()
		if err != nil {
			fmt.Println("none:", err)
			os.Exit(0)
		}
		os.Exit(status)
	}
	fmt.Println("taken:", taken(), "user:", os.Geteuid())
	c, err := net.Dial("tcp", "127.0.0.1:80")
	fmt.Println("reaches somebody:", c != nil, err != nil)
	os.Exit(7)
}

func TestInANamespaceThePortsAreFree(t *testing.T) {
	// Outside they may be somebody's; inside nothing of that is seen.
	if l, err := net.Listen("tcp", "127.0.0.1:80"); err == nil {
		defer func() { _ = l.Close() }()
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.Output()
	if err == nil {
		t.Skipf("needs namespaces: %s", out)
	}
	want := fmt.Sprintf("taken: <nil> user: %d\nreaches somebody: false true\n", os.Geteuid())
	if cmd.ProcessState.ExitCode() != 7 || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
