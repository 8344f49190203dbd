//go:build linux && amd64

package kvmvm

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// TestPrivilegedInstructionsEndInAFault: none of them does anything.
func TestPrivilegedInstructionsEndInAFault(t *testing.T) {
	l := newLab(t)
	for _, i := range platformtest.Privileged {
		t.Run(i.Name, func(t *testing.T) {
			l.Subject(t).CopyOut(dataAddr+512, farPointer(stubAddr+0x800, selKernelCode))
			l.Try(t, attempt{Code: i.Code, May: faults | shutsDown, Regs: platform.Regs{
				RAX: selKernelData, RBX: dataAddr + 512, RCX: 8, RDX: 0x3F8, RSI: dataAddr, RDI: dataAddr,
			}})
		})
	}
}

// farPointer is an m16:64 operand; its first bytes serve as m16:32 too.
func farPointer(addr uint64, sel byte) []byte {
	return []byte{byte(addr), byte(addr >> 8), byte(addr >> 16), byte(addr >> 24), sel, 0, 0, 0, sel, 0}
}

// TestOddInstructionsHurtNobody: whichever way they end, nothing is left of it.
func TestOddInstructionsHurtNobody(t *testing.T) {
	l := newLab(t)
	for _, i := range platformtest.Odd {
		t.Run(i.Name, func(t *testing.T) {
			l.Try(t, attempt{Code: i.Code, May: faults | shutsDown | harmless, Regs: platform.Regs{
				RAX: selUserData, RBX: dataAddr + 512, RSI: pml4Addr, RDI: dataAddr + 1024,
			}})
		})
	}
}

// One of them is CPUID on kvm-pvm (0x1A): as harmless as that.
func TestEverySoftwareInterruptIsAFaultOrHarmless(t *testing.T) {
	l := newLab(t)
	for n := range 256 {
		t.Run(fmt.Sprint("int ", n), func(t *testing.T) {
			l.Try(t, attempt{Code: fmt.Sprintf("CD %02X", n), May: faults | shutsDown | harmless})
		})
	}
}

// foreign are addresses that are not the guest's, or not to be written to.
var foreign = append([]platformtest.Place{
	{Name: "descriptor table", Addr: gdtAddr + selUserCode&^3},
	{Name: "interrupt table", Addr: idtAddr + 14*16},
	{Name: "task segment", Addr: tssAddr + ioBitmap},
	{Name: "stubs", Addr: stubAddr + 0x800},
	{Name: "below the exception stack", Addr: stackLow - 64},
	{Name: "exception stack", Addr: stackTop - 64},
	{Name: "top table", Addr: pml4Addr},
	{Name: "directory pointers", Addr: pdptAddr},
	{Name: "directory", Addr: pdAddr},
	{Name: "page table", Addr: ptAddr},
	{Name: "last page table", Addr: ptEnd - 64},
	{Name: "end of the largest heap", Addr: heapEnd + 64},
	{Name: "end of what can be mapped", Addr: maxSize},
}, platformtest.Foreign...)

func TestNothingButItsOwnMemoryCanBeChangedOrExecutedByAGuest(t *testing.T) {
	// kvm-pvm cannot store a descriptor table beyond memory and tries for ever.
	newLab(t).TouchEverything(t, foreign, faults|shutsDown|endless)
}

func TestWildPointersAtAnExceptionWriteNothing(t *testing.T) {
	newLab(t).WildPointers(t, foreign, faults|shutsDown)
}

// A page is either writable or executable, whoever wrote the code.
func TestCodeThatAGuestWritesNeverRuns(t *testing.T) { newLab(t).WrittenCode(t) }

func TestEdgesOfMemory(t *testing.T) {
	l := newLab(t)
	for _, a := range []attempt{
		{Name: "first byte of data", Code: "88 03", Regs: platform.Regs{RBX: dataAddr}, May: harmless},
		{Name: "last byte of data", Code: "88 03", Regs: platform.Regs{RBX: dataEnd - 1}, May: harmless},
		{Name: "first byte of the heap", Code: "88 03", Regs: platform.Regs{RBX: heapAddr}, May: harmless},
		{Name: "last byte of memory", Code: "88 03", Regs: platform.Regs{RBX: memSize - 1}, May: harmless},
		{Name: "over the end of data", Code: "48 89 03", Regs: platform.Regs{RBX: dataEnd - 4}, May: faults},
		{Name: "over the end of memory", Code: "48 89 03", Regs: platform.Regs{RBX: memSize - 4}, May: faults | shutsDown},
		{Name: "string over the end of memory", Code: "F3 AA", Regs: platform.Regs{RDI: memSize - 4096, RCX: 8192}, May: faults | shutsDown},
		{Name: "state over the end of memory", Code: "0F AE 03", Regs: platform.Regs{RBX: memSize - 256}, May: faults | shutsDown},
		{Name: "stack into the guard at once", Code: "48 81 EC 00 00 10 00 50", May: faults},
		{Name: "stack into the guard by pushes", Code: "50 EB FD", May: faults},
		{Name: "stack into the guard by calls", Code: "E8 FB FF FF FF", May: faults},
		{Name: "instruction over the end of text", Code: "", Regs: platform.Regs{RIP: readOnly - 1}, May: faults},
		{Name: "start behind the end of text", Code: "", Regs: platform.Regs{RIP: readOnly}, May: faults},
		{Name: "return to the end of memory", Code: "53 C3", Regs: platform.Regs{RBX: memSize}, May: faults | shutsDown},
	} {
		t.Run(a.Name, func(t *testing.T) {
			if a.Regs.RIP == readOnly-1 {
				l.Subject(t).Load(readOnly-1, []byte{0x0F}) // of a two-byte instruction
				defer l.Revert(t)
				m := l.Subject(t)
				*m.Regs() = platform.Regs{RIP: readOnly - 1, RSP: dataEnd, RFLAGS: 0x202}
				if e := platformtest.Finish(t, m); e.Kind != platform.Fault || e.Vector != 14 || e.Addr != readOnly {
					t.Errorf("%+v", e)
				}
				return
			}
			l.Try(t, a)
		})
	}
}

// A guest that faults or calls for ever is the host's to end: what the host is
// asked to do between two instructions is bounded.
func TestInterruptEndsAStormOfExits(t *testing.T) {
	l := newLab(t)
	for _, s := range []struct {
		name, code string
		kind       platform.ExitKind
	}{
		{"system calls", "0F 05 EB FC", platform.Syscall},
		{"breakpoints", "CC EB FD", platform.Fault},
		{"invalid instructions", "0F 0B", platform.Fault},
		{"page faults", "8A 04 25 00 00 00 00", platform.Fault},
		{"privileged instructions", "FA", platform.Fault},
		{"faults on a wild stack", "48 C7 C4 00 00 00 80 50", platform.Fault},
	} {
		t.Run(s.name, func(t *testing.T) {
			m := l.Subject(t)
			m.Load(codeAddr, platformtest.Assemble(t, s.code))
			*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for round := range 50 {
				for range round {
					if e := platformtest.Finish(t, m); e.Kind != s.kind {
						t.Fatalf("%+v at %#x", e, m.Regs().RIP)
					}
				}
				m.Interrupt()
				// An exit that is complete may be told before the interrupt.
				interrupted := false
				for range 2 {
					e, err := m.Run()
					if err != nil {
						t.Fatal(err)
					}
					interrupted = interrupted || e.Kind == platform.Interrupted
				}
				if !interrupted {
					t.Fatal("two exits came after the interrupt and none was it")
				}
			}
			checkRing(t, m.(*Machine))
			l.Revert(t)
		})
	}
}
