//go:build linux && amd64

package kvmvm

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// Where the tests' guests have their things.
const (
	codeAddr = platformtest.CodeAddr
	readOnly = platformtest.ReadOnly
	dataAddr = platformtest.DataAddr
	dataEnd  = platformtest.DataEnd
	heapAddr = platformtest.HeapAddr
	memSize  = platformtest.MemSize
	heapEnd  = platformtest.HeapEnd
	guard    = platformtest.Guard
)

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
	m, fd := platformtest.Boot(t, p, code)
	return m.(*Machine), fd
}

// newGuest is bootGuest without the memory file.
func newGuest(t *testing.T, code []byte) *Machine {
	t.Helper()
	return platformtest.Guest(t, testPlatform(t), code).(*Machine)
}

func clone(t *testing.T, p *Platform, b *platform.Backing, c *platform.Context) *Machine {
	t.Helper()
	return platformtest.Clone(t, p, b, c).(*Machine)
}

// eyes look at this platform's machines.
var eyes = platformtest.Eyes{
	Memory: func(t testing.TB, m platform.Machine, b *platform.Backing) {
		t.Helper()
		if m.(*Machine).backing != b {
			t.Fatal("the machine has another template")
		}
		if at, ok := m.(*Machine).differs(0, memSize); ok {
			t.Fatalf("page %#x differs from the template", at)
		}
	},
	Bytes:    func(_ testing.TB, m platform.Machine, lo, hi uint64) []byte { return m.(*Machine).mem[lo:hi] },
	Compared: []platform.Range{{Lo: 0, Hi: dataEnd}, {Lo: heapAddr, Hi: guard}},
	Patience: 2 * time.Second,
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
