//go:build linux && amd64

package host_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

// roleVariable has the test binary open a platform where there is no KVM.
const roleVariable = "MAF_SANDBOX_HOST_TEST"

func TestMain(m *testing.M) {
	name := os.Getenv(roleVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := unix.Mount("none", "/dev", "tmpfs", 0, ""); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, fallback, err := host.Open(name)
	if err != nil {
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, platform.ErrUnavailable), err)
		os.Exit(0)
	}
	fmt.Printf("%s %s; %v\n", p.Name(), p.Isolation(), fallback)
	_ = p.Close()
	os.Exit(0)
}

// withoutKVM opens a platform in a namespace without devices and gives what
// came of it.
func withoutKVM(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=" + name, "TMPDIR=" + os.TempDir()}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Skipf("this host does not permit a namespace to hide /dev/kvm in: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestWithoutKVMAutoTakesATracedProcessAndSaysWhy(t *testing.T) {
	if p, _, err := host.Open(host.Ptrace); err != nil {
		t.Skipf("needs engine ptrace: %v", err)
	} else {
		_ = p.Close()
	}
	out := withoutKVM(t, host.Auto)
	engine, why, _ := strings.Cut(out, "; ")
	if engine != "ptrace container" && engine != "ptrace os_process" || !strings.Contains(why, "/dev/kvm") {
		t.Errorf("%s", out)
	}
}

func TestWhoAsksForKVMGetsNothingLess(t *testing.T) {
	if out := withoutKVM(t, host.KVM); !strings.HasPrefix(out, "unavailable true: ") || !strings.Contains(out, "/dev/kvm") {
		t.Errorf("%s", out)
	}
}

func TestOtherNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "gvisor", strings.Repeat("x", 1000)} {
		if p, _, err := host.Open(name); !errors.Is(err, host.ErrName) || p != nil || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v, %v", name, p, err)
		}
	}
}
