//go:build linux && amd64

package ptrace

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// Settings of the kernel: who may trace whom (Yama.rst), and how many user
// namespaces there may be.
const (
	yama       = "/proc/sys/kernel/yama/ptrace_scope"
	namespaces = "/proc/sys/user/max_user_namespaces"
)

// set sets one, for the test only where that can be taken back. It is a setting of
// the whole machine, which must be one for tests.
func set(t *testing.T, name, value string) {
	t.Helper()
	if os.Getenv("MAF_SANDBOX_TEST_VM") == "" || os.Geteuid() != 0 {
		t.Skip("needs root of the test VM: it changes settings of the whole machine")
	}
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err) // Debian's kernels have it
	}
	if err := os.WriteFile(name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	if name == yama && value == "3" {
		return
	}
	t.Cleanup(func() {
		if err := os.WriteFile(name, old, 0); err != nil {
			t.Error(err)
		}
	})
}

// ordinary is a user with a guest.
func ordinary() *exec.Cmd {
	cmd := role("user")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

func TestYamaLetsAParentTraceItsChild(t *testing.T) {
	const refused = "this host does not permit to trace a child (ptrace) (kernel.yama.ptrace_scope is 2; "
	for _, c := range []struct {
		scope       string
		private     bool // user namespaces are permitted
		says, lacks string
	}{
		{"0", true, "container, ", ""},
		{"0", false, "os_process, ", "user.max_user_namespaces is 0"},
		{"1", true, "container, ", ""},
		{"1", false, "os_process, ", "user.max_user_namespaces is 0"},
		// Who made a child's user namespace has every right over the child.
		{"2", true, "container, ", ""},
		{"2", false, refused, "CAP_SYS_PTRACE"},
	} {
		t.Run(fmt.Sprintf("scope %s, namespaces %v", c.scope, c.private), func(t *testing.T) {
			set(t, yama, c.scope)
			if !c.private {
				set(t, namespaces, "0")
			}
			out, err := ordinary().Output()
			if !strings.HasPrefix(string(out), c.says) || !strings.Contains(string(out), c.lacks) || (err == nil) == (c.says == refused) {
				t.Errorf("%v, %s; want %s with %s", err, out, c.says, c.lacks)
			}
		})
	}
}

func TestWhereTracingIsForbiddenForGoodThereAreNoGuestsAndTheReasonIsSaid(t *testing.T) {
	if !expect.Systemd.Promised() {
		t.Skip("needs the last step of the test VM: it cannot be taken back")
	}
	set(t, yama, "3")
	for name, cmd := range map[string]*exec.Cmd{"root": role("user"), "a user": ordinary()} {
		out, err := cmd.Output()
		if err == nil || !strings.Contains(string(out), "kernel.yama.ptrace_scope is 3; it has to be 0 or 1, which takes a reboot") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

func TestARefusalToTraceNamesYamasSetting(t *testing.T) {
	for scope, want := range map[string]struct{ says, command string }{
		"":  {"seccomp profile", ""},
		"0": {"seccomp profile", ""},
		"1": {"seccomp profile", ""},
		"2": {"CAP_SYS_PTRACE", "sudo sysctl -w kernel.yama.ptrace_scope=1"},
		"3": {"takes a reboot", ""},
	} {
		r := tracingRefused(unix.EPERM, scope)
		if !strings.Contains(r.Error(), want.says) || r.Command != want.command {
			t.Errorf("scope %q: %v; %q", scope, r, r.Command)
		}
	}
}
