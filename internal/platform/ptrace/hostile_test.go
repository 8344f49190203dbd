//go:build linux && amd64

package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// An outcome is a set of ways in which an attempt may end. Processors differ in
// which of the sound ones they choose.
type outcome uint8

const (
	faults outcome = 1 << iota
	shutsDown
	// harmless: the guest goes on, as any process could.
	harmless
)

func (o outcome) String() string {
	s := ""
	for i, name := range []string{"fault", "shutdown", "harmless"} {
		if o&(1<<i) != 0 {
			s += name + " "
		}
	}
	return s
}

// An attempt is something a hostile guest does. A system call follows it.
type attempt struct {
	code string
	// regs: RIP, RSP and RFLAGS have values of their own if 0.
	regs platform.Regs
	may  outcome
}

// A lab lets hostile guests loose on clones of one template and looks at what
// is left.
type lab struct {
	p   *Platform
	b   *platform.Backing
	c   *platform.Context
	sum uint32
	m   *Machine // the subject, nil when the last one died
	// reverts counts those of the subject.
	reverts int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{p: testPlatform(t)}
	l.b, l.c = testTemplate(t, l.p, nil)
	l.sum = l.sumBacking()
	before := children(t)
	t.Cleanup(func() {
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		checkMemory(t, l.subject(t), l.b)
		l.discard(t)
		if n := children(t); n > before {
			t.Errorf("%d children before, %d after", before, n)
		}
	})
	return l
}

func (l *lab) discard(t *testing.T) {
	t.Helper()
	if l.m == nil {
		return
	}
	if err := l.m.Close(); err != nil {
		t.Error(err)
	}
	l.m, l.reverts = nil, 0
}

// subject gives the machine to try things on.
func (l *lab) subject(t *testing.T) *Machine {
	t.Helper()
	if l.m == nil {
		m, err := l.p.Clone(l.b, memSize, testSpans, l.c)
		if err != nil {
			t.Fatal(err)
		}
		l.m = m.(*Machine)
	}
	return l.m
}

// try makes an attempt and checks what it led to, for the guest, for the host
// and for the next guest.
func (l *lab) try(t *testing.T, a attempt) {
	t.Helper()
	code := append(assemble(t, a.code), 0x0F, 0x05)
	m := l.subject(t)
	if !m.Load(codeAddr, code) {
		t.Fatal("code not loaded")
	}
	r := a.regs
	for reg, v := range map[*uint64]uint64{&r.RIP: codeAddr, &r.RSP: dataEnd - 256, &r.RFLAGS: 0x202} {
		if *reg == 0 {
			*reg = v
		}
	}
	*m.Regs() = r
	e, got := l.attend(t, m)
	if got&a.may == 0 {
		t.Errorf("ended with %+v at %#x, want: %v", e, m.Regs().RIP, a.may)
	}
	if m.dead {
		l.checkDead(t)
		l.discard(t)
		l.checkHost(t)
		l.checkOther(t)
		return
	}
	if f := m.Regs().RFLAGS; f&0x3000 != 0 || f&0x200 == 0 {
		t.Errorf("the guest has privileged flags: %#x", f)
	}
	l.checkText(t, code)
	l.revert(t)
}

// attend runs a guest to its first real exit.
func (l *lab) attend(t *testing.T, m *Machine) (platform.Exit, outcome) {
	t.Helper()
	var late atomic.Bool
	defer time.AfterFunc(patience, func() { late.Store(true); m.Interrupt() }).Stop()
	for {
		e, err := m.Run()
		switch {
		case err != nil:
			l.discard(t)
			t.Fatalf("run: %v", err)
		case e.Kind == platform.Syscall:
			return e, harmless
		case e.Kind == platform.Fault:
			return e, faults
		case e.Kind == platform.Shutdown:
			return e, shutsDown
		case late.Load():
			t.Fatalf("still at %#x", m.Regs().RIP)
		}
	}
}

// checkDead: what was shut down never runs again.
func (l *lab) checkDead(t *testing.T) {
	t.Helper()
	if e, err := l.m.Run(); err != nil || e.Kind != platform.Shutdown {
		t.Errorf("after a shutdown: %+v, %v", e, err)
	}
	if err := l.m.Restore(l.c); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("restored after a shutdown: %v", err)
	}
	if _, err := l.m.Revert(l.c); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("reverted after a shutdown: %v", err)
	}
}

// revert puts the subject back and compares it with the template: all of its
// memory now and then, and what the template holds bytes of every time.
func (l *lab) revert(t *testing.T) {
	t.Helper()
	if _, err := l.m.Revert(l.c); err != nil {
		t.Fatal(err)
	}
	if l.reverts++; l.reverts%32 == 0 {
		checkMemory(t, l.m, l.b)
	}
	for _, r := range []platform.Range{{Lo: codeAddr, Hi: dataEnd}, {Lo: heapAddr, Hi: guard}} {
		if !bytes.Equal(bytesAt(t, l.m, r.Lo, r.Hi), l.piece(r.Lo, r.Hi)) {
			t.Errorf("after the revert memory of %#x to %#x differs", r.Lo, r.Hi)
		}
	}
	var err error
	l.m.OnThread(func() { err = l.m.settle() })
	var got platform.Context
	if err := errors.Join(err, l.m.Save(&got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*l.c, got); diff != "" {
		t.Errorf("after the revert: %s", diff)
	}
}

// checkText compares what a guest may not write to with the template, before
// anything is put back.
func (l *lab) checkText(t *testing.T, code []byte) {
	t.Helper()
	text := bytes.Clone(l.piece(codeAddr, dataAddr))
	copy(text, code)
	if got := bytesAt(t, l.m, codeAddr, dataAddr); !bytes.Equal(got, text) {
		t.Error("the guest's text or constants were written to")
	}
}

// piece gives the template's bytes of a range that the backing holds.
func (l *lab) piece(lo, hi uint64) []byte {
	_, b := l.b.Split(lo, hi)
	return b
}

func (l *lab) sumBacking() uint32 {
	sum := uint32(0)
	for _, r := range l.b.Ranges {
		sum = crc32.Update(sum, crc32.IEEETable, l.piece(r.Lo, r.Hi))
	}
	return sum
}

// checkHost sees to it that the memory all guests start from is what it was.
func (l *lab) checkHost(t *testing.T) {
	t.Helper()
	if l.sumBacking() != l.sum {
		t.Fatal("the template's memory was written to")
	}
}

// checkOther makes another machine, which has to work.
func (l *lab) checkOther(t *testing.T) {
	t.Helper()
	b, err := l.p.Clone(l.b, memSize, testSpans, l.c)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	defer func() { _ = m.Close() }()
	m.Load(codeAddr+0x900, []byte{0xFF, 0xC0, 0x0F, 0x05}) // inc eax; syscall
	*m.Regs() = platform.Regs{RIP: codeAddr + 0x900, RAX: 41, RSP: dataEnd, RFLAGS: 0x202}
	if e := finish(t, m); e.Kind != platform.Syscall || m.Regs().RAX != 42 {
		t.Fatalf("the next machine ends with %+v and says %d", e, m.Regs().RAX)
	}
}

// What ring 3 may not execute is a fault here, too. The list comes from the KVM
// platform: selectors and ports in it are those of its guests.
func TestPrivilegedInstructionsEndInAFault(t *testing.T) {
	l := newLab(t)
	for _, i := range platformtest.Privileged {
		t.Run(i.Name, func(t *testing.T) {
			far := []byte{0, 8, 0x40, 0, 0x10, 0, 0, 0, 0x10, 0} // a far pointer to the kernel's code segment
			l.subject(t).CopyOut(dataAddr+512, far)
			l.try(t, attempt{code: i.Code, may: faults | shutsDown, regs: platform.Regs{
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
			l.try(t, attempt{code: i.Code, may: faults | shutsDown | harmless, regs: platform.Regs{
				RAX: userData, RBX: dataAddr + 512, RSI: stubBase, RDI: dataAddr + 1024,
			}})
		})
	}
}

func TestEverySoftwareInterruptIsAFault(t *testing.T) {
	l := newLab(t)
	for n := range 256 {
		t.Run(fmt.Sprint("int ", n), func(t *testing.T) {
			l.try(t, attempt{code: fmt.Sprintf("CD %02X", n), may: faults})
		})
	}
}

// foreign are addresses that are not the guest's, or not to be written to.
var foreign = []struct {
	name string
	addr uint64
}{
	{"null", 0},
	{"lowest address a process can map", 64 << 10},
	{"clock", platform.ClockPage + 64},
	{"text", codeAddr + 0x900},
	{"rodata", readOnly + 64},
	{"guard above the stack", dataEnd + 64},
	{"guard below the heap", heapAddr - 64},
	{"end of memory", memSize},
	{"heap of a larger guest", heapEnd - 64},
	{"end of what can be mapped", maxSize},
	{"stub", stubBase + 0x800},
	{"below the stub", stubBase - 64},
	{"above the stub", stubEnd},
	{"where the stack was", userEnd - 0x1000},
	{"last canonical address", 1<<47 - 64},
	{"first non-canonical address", 1 << 47},
	{"non-canonical address", 1 << 63},
	{"kernel's half", 0xFFFFFFFF80000000},
	{"vsyscall page", vsyscallPage + 64},
	{"last bytes", ^uint64(0) - 63},
}

func TestNothingButItsOwnMemoryCanBeChangedOrExecutedByAGuest(t *testing.T) {
	l := newLab(t)
	for _, p := range foreign {
		for _, w := range platformtest.Touches {
			t.Run(w.Name+"/"+p.name, func(t *testing.T) {
				l.try(t, attempt{code: w.Code, may: faults, regs: platform.Regs{
					RBX: p.addr, RDI: p.addr, RCX: 64, RBP: dataAddr + 4096,
				}})
			})
		}
	}
}

// Whatever the stack pointer and the instruction pointer are when something
// happens, the host gets to know of it and nothing is written.
func TestWildPointersAtAnExceptionWriteNothing(t *testing.T) {
	l := newLab(t)
	events := []struct{ name, code string }{
		{"ud2", "0F 0B"}, {"int3", "CC"}, {"page fault", "8A 04 25 00 00 00 00"}, {"single step", "90"}, {"system call", "0F 05"},
	}
	for _, p := range foreign {
		for _, e := range events {
			t.Run("stack at "+p.name+"/"+e.name, func(t *testing.T) {
				regs := platform.Regs{RSP: p.addr | 8}
				if e.name == "single step" {
					regs.RFLAGS = 0x302
				}
				l.try(t, attempt{code: e.code, may: faults | harmless, regs: regs})
			})
		}
		if p.addr != 0 { // which stands for the usual one
			t.Run("start at "+p.name, func(t *testing.T) {
				l.try(t, attempt{may: faults, regs: platform.Regs{RIP: p.addr}})
			})
		}
	}
}

// A page is either writable or executable, whoever wrote the code.
func TestCodeThatAGuestWritesNeverRuns(t *testing.T) {
	l := newLab(t)
	for name, at := range map[string]uint64{
		"data": dataAddr, "heap": heapAddr + 70<<10, "fresh heap": guard + 5<<20, "stack": dataEnd - 64, "last bytes of memory": memSize - 8,
	} {
		t.Run(name, func(t *testing.T) {
			// mov dword [rbx], syscall; jmp rbx
			l.try(t, attempt{code: "C7 03 0F 05 90 90 FF E3", may: faults, regs: platform.Regs{RBX: at}})
		})
		t.Run("host's bytes in "+name, func(t *testing.T) {
			if !l.subject(t).CopyOut(at, []byte{0x0F, 0x05}) {
				t.Fatal("not written")
			}
			l.try(t, attempt{code: "FF E3", may: faults, regs: platform.Regs{RBX: at}})
		})
	}
}

func TestTheHostIsBoundByTheGuestsRights(t *testing.T) {
	l := newLab(t)
	m := l.subject(t)
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
	m := l.subject(t)
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
		if !bytes.Equal(bytesAt(t, m, heapAddr, heapAddr+uint64(len(want))), expected) {
			t.Errorf("%d to %d", c.src, c.dst)
		}
	}
}

func TestInterruptEndsAStormOfExits(t *testing.T) {
	for name, code := range map[string]string{
		"system calls": "B8 27 00 00 00 0F 05 EB F7", "faults": "0F 0B",
	} {
		t.Run(name, func(t *testing.T) {
			m := newGuest(t, assemble(t, code))
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
