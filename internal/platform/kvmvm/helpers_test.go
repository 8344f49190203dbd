//go:build linux && amd64

package kvmvm

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Where the tests' guests have their things.
const (
	codeAddr = platform.UserLo
	readOnly = codeAddr + platform.PageSize
	dataAddr = readOnly + platform.PageSize
	dataEnd  = dataAddr + 16*platform.PageSize
	heapAddr = 0x800000
	memSize  = heapAddr + 32<<20
	// The heap's span is for the largest guest; memory ends earlier.
	heapEnd = memSize + 32<<20
	guard   = heapAddr + 1<<20 // where the template's part of the heap ends
)

var testSpans = []platform.Span{
	{Lo: codeAddr, Hi: readOnly, Prot: platform.Read | platform.Exec},
	{Lo: readOnly, Hi: dataAddr, Prot: platform.Read},
	{Lo: dataAddr, Hi: dataEnd, Prot: platform.Read | platform.Write},
	{Lo: heapAddr, Hi: heapEnd, Prot: platform.Read | platform.Write},
}

var openPlatform = sync.OnceValues(New)

// inTestVM says that this is the project's test VM (test/vm/run), whose KVM is
// ordinary and whose processor is emulated.
var inTestVM = os.Getenv("MAF_SANDBOX_TEST_VM") != ""

// testPlatform gives the platform that all tests share.
func testPlatform(t *testing.T) *Platform {
	t.Helper()
	p, err := openPlatform()
	if err != nil && inTestVM {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("NO VIRTUAL MACHINE WAS TESTED: %v", err)
	}
	return p
}

// bootGuest makes a machine whose code page holds code.
func bootGuest(t *testing.T, p *Platform, code []byte) (*Machine, int) {
	t.Helper()
	b, fd, err := p.Boot(memSize, testSpans, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if !m.Load(codeAddr, code) {
		t.Fatal("code not loaded")
	}
	*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
	return m, fd
}

// newGuest is bootGuest without the memory file.
func newGuest(t *testing.T, code []byte) *Machine {
	t.Helper()
	m, fd := bootGuest(t, testPlatform(t), code)
	_ = unix.Close(fd)
	return m
}

// finish runs a guest to its first real exit.
func finish(t *testing.T, m *Machine) platform.Exit {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	late := make(chan struct{})
	watchdog := time.AfterFunc(20*time.Second, func() { close(late); m.Interrupt() })
	defer watchdog.Stop()
	for {
		e, err := m.Run()
		if err != nil {
			t.Fatalf("run: %v", err)
		}
		if e.Kind != platform.Interrupted {
			return e
		}
		select {
		case <-late:
			t.Fatal("the guest did not exit")
		default:
		}
	}
}

// ring gives the ring in which the guest would go on.
func ring(t *testing.T, m *Machine) int {
	t.Helper()
	if m.mode == inStub {
		return 3 // SYSRET leads nowhere else
	}
	// What is to be taken over by the next run is taken over by one that ends
	// before the first instruction: KVM is asked, not our own copy.
	m.vcpu.SetImmediateExit(true)
	_, err := m.vcpu.Run()
	m.vcpu.SetImmediateExit(false)
	if !errors.Is(err, kvm.ErrInterrupted) {
		t.Fatalf("a run that was to end at once: %v", err)
	}
	var s kvm.Sregs
	if err := m.vcpu.GetSregs(&s); err != nil {
		t.Fatal(err)
	}
	return int(s.CS.Selector & 3)
}

// openDescriptors counts this process's descriptors.
func openDescriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
