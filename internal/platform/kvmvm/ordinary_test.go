//go:build linux && amd64

package kvmvm

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// TestTheProbeFindsWhereSystemCallsArrive: in ring 0, except on kvm-pvm. The
// test VM is there for the former.
func TestTheProbeFindsWhereSystemCallsArrive(t *testing.T) {
	testPlatform(t)
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if err := p.Probe(); err != nil {
		t.Fatal(err)
	}
	if inTestVM && !p.ringZero.Load() {
		t.Error("the test VM has no ordinary KVM: system calls do not arrive in ring 0")
	}
	t.Logf("ring 0: %v", p.ringZero.Load())
}

// The clock page promises that a guest's time stamp counter is the host's plus
// a constant. The test VM does not call its counter invariant, so the engine
// asks the host for the time there; the counter itself is right all the same.
func TestTheGuestsCounterIsTheHostsPlusAnOffset(t *testing.T) {
	// rdtsc; shl rdx, 32; or rax, rdx; syscall
	m := newGuest(t, []byte{0x0F, 0x31, 0x48, 0xC1, 0xE2, 0x20, 0x48, 0x09, 0xD0, 0x0F, 0x05})
	if err := m.measureTSC(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
		before := rdtsc() + m.tscOffset
		if e := platformtest.Finish(t, m); e.Kind != platform.Syscall {
			t.Fatalf("%+v", e)
		}
		after := rdtsc() + m.tscOffset
		if tsc := m.Regs().RAX; tsc-before > after-before {
			t.Fatalf("the guest's counter is %d, the host expects %d to %d", tsc, before, after)
		}
	}
}
