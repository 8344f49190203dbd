//go:build linux && amd64

package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// Outcomes of attempts.
const (
	faults    = platformtest.Faults
	shutsDown = platformtest.ShutsDown
	harmless  = platformtest.Harmless
)

type attempt = platformtest.Attempt

// newLab makes a lab whose attempts are followed by a look at what a guest may not
// write to and at its flags. No process is left of it.
func newLab(t *testing.T) *platformtest.Lab {
	t.Helper()
	before := children(t)
	t.Cleanup(func() {
		if n := children(t); n > before {
			t.Errorf("%d children before, %d after", before, n)
		}
	})
	var l *platformtest.Lab
	eyes := eyes
	eyes.After = func(t *testing.T, tested platform.Machine, _ platformtest.Outcome, code []byte) bool {
		t.Helper()
		m := tested.(*Machine)
		if m.dead {
			checkDead(t, m)
			return true
		}
		if f := m.Regs().RFLAGS; f&0x3000 != 0 || f&0x200 == 0 {
			t.Errorf("the guest has privileged flags: %#x", f)
		}
		text := bytes.Clone(l.Piece(codeAddr, dataAddr))
		copy(text, code)
		if got := bytesAt(t, m, codeAddr, dataAddr); !bytes.Equal(got, text) {
			t.Error("the guest's text or constants were written to")
		}
		return false
	}
	l = platformtest.NewLab(t, testPlatform(t), eyes)
	return l
}

// checkDead: what was shut down never runs again.
func checkDead(t *testing.T, m *Machine) {
	t.Helper()
	if e, err := m.Run(); err != nil || e.Kind != platform.Shutdown {
		t.Errorf("after a shutdown: %+v, %v", e, err)
	}
	var c platform.Context
	if err := m.Restore(&c); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("restored after a shutdown: %v", err)
	}
	if _, err := m.Revert(&c); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("reverted after a shutdown: %v", err)
	}
}

// What ring 3 may not execute is a fault here, too. The list comes from the KVM
// platform: selectors and ports in it are those of its guests.
func TestPrivilegedInstructionsEndInAFault(t *testing.T) {
	l := newLab(t)
	for _, i := range platformtest.Privileged {
		t.Run(i.Name, func(t *testing.T) {
			far := []byte{0, 8, 0x40, 0, 0x10, 0, 0, 0, 0x10, 0} // a far pointer to the kernel's code segment
			l.Subject(t).CopyOut(dataAddr+512, far)
			l.Try(t, attempt{Code: i.Code, May: faults | shutsDown, Regs: platform.Regs{
				RAX: 0x18, RBX: dataAddr + 512, RCX: 8, RDX: 0x3F8, RSI: dataAddr, RDI: dataAddr,
			}})
		})
	}
}

// TestOddInstructionsHurtNobody: whichever way they end, nothing is left of it.
func TestOddInstructionsHurtNobody(t *testing.T) {
	l := newLab(t)
	for _, i := range platformtest.Odd {
		t.Run(i.Name, func(t *testing.T) {
			l.Try(t, attempt{Code: i.Code, May: faults | shutsDown | harmless, Regs: platform.Regs{
				RAX: userData, RBX: dataAddr + 512, RSI: stubBase, RDI: dataAddr + 1024,
			}})
		})
	}
}

func TestEverySoftwareInterruptIsAFault(t *testing.T) {
	l := newLab(t)
	for n := range 256 {
		t.Run(fmt.Sprint("int ", n), func(t *testing.T) {
			l.Try(t, attempt{Code: fmt.Sprintf("CD %02X", n), May: faults})
		})
	}
}

// foreign are addresses that are not the guest's, or not to be written to.
var foreign = append([]platformtest.Place{
	{Name: "lowest address a process can map", Addr: 64 << 10},
	{Name: "end of what can be mapped", Addr: maxSize},
	{Name: "stub", Addr: stubBase + 0x800},
	{Name: "below the stub", Addr: stubBase - 64},
	{Name: "above the stub", Addr: stubEnd},
	{Name: "where the stack was", Addr: userEnd - 0x1000},
}, platformtest.Foreign...)

func TestNothingButItsOwnMemoryCanBeChangedOrExecutedByAGuest(t *testing.T) {
	newLab(t).TouchEverything(t, foreign, faults)
}

func TestWildPointersAtAnExceptionWriteNothing(t *testing.T) {
	newLab(t).WildPointers(t, foreign, faults)
}

// A page is either writable or executable, whoever wrote the code.
func TestCodeThatAGuestWritesNeverRuns(t *testing.T) { newLab(t).WrittenCode(t) }

func TestTheHostIsBoundByTheGuestsRights(t *testing.T) {
	l := newLab(t)
	m := l.Subject(t)
	for _, c := range []struct {
		name    string
		addr, n uint64
		read    bool
		write   bool
	}{
		{"data", dataAddr, 4096, true, true},
		{"text", codeAddr, 16, true, false},
		{"rodata", readOnly, 16, true, false},
		{"rodata into data", dataAddr - 8, 16, true, false},
		{"last byte of memory", memSize - 1, 1, true, true},
		{"over the end of memory", memSize - 1, 2, false, false},
		{"clock", platform.ClockPage, 8, false, false},
		{"stub", stubBase, 8, false, false},
		{"a hole", dataEnd, 8, false, false},
		{"wrapping", ^uint64(0) - 3, 8, false, false},
		{"nothing anywhere", 1 << 63, 0, true, true},
	} {
		b := make([]byte, c.n)
		if got := m.CopyIn(b, c.addr); got != c.read {
			t.Errorf("%s: read %v", c.name, got)
		}
		if got := m.CopyOut(c.addr, b); got != c.write {
			t.Errorf("%s: write %v", c.name, got)
		}
		if got := m.Zero(c.addr, c.n); got != c.write {
			t.Errorf("%s: zero %v", c.name, got)
		}
		if got := m.Move(c.addr, dataAddr, c.n); got != c.write {
			t.Errorf("%s: move to %v", c.name, got)
		}
		if got := m.Move(dataAddr, c.addr, c.n); got != c.read {
			t.Errorf("%s: move from %v", c.name, got)
		}
	}
}

func TestMoveMayOverlap(t *testing.T) {
	l := newLab(t)
	m := l.Subject(t)
	const n = 700 << 10 // more than the buffer
	want := make([]byte, 2<<20)
	for i := range want {
		want[i] = byte(i * 13 >> 5)
	}
	for _, c := range []struct{ dst, src uint64 }{{0, 100}, {100, 0}, {300 << 10, 1}, {1, 300 << 10}, {5, 5}} {
		if !m.CopyOut(heapAddr, want) {
			t.Fatal("not written")
		}
		if !m.Move(heapAddr+c.dst, heapAddr+c.src, n) {
			t.Fatal("not moved")
		}
		expected := bytes.Clone(want)
		copy(expected[c.dst:c.dst+n], want[c.src:c.src+n])
		if !bytes.Equal(bytesAt(t, m.(*Machine), heapAddr, heapAddr+uint64(len(want))), expected) {
			t.Errorf("%d to %d", c.src, c.dst)
		}
	}
}

func TestInterruptEndsAStormOfExits(t *testing.T) {
	for name, code := range map[string]string{
		"system calls": "B8 27 00 00 00 0F 05 EB F7", "faults": "0F 0B",
	} {
		t.Run(name, func(t *testing.T) {
			m := newGuest(t, platformtest.Assemble(t, code))
			time.AfterFunc(10*time.Millisecond, m.Interrupt)
			for n := 0; ; n++ {
				e, err := m.Run()
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == platform.Interrupted {
					break
				}
			}
		})
	}
}
