//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"encoding/hex"
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
			l.subject(t).CopyOut(dataAddr+512, farPointer(stubAddr+0x800, selKernelCode))
			l.try(t, attempt{code: i.Code, may: faults | shutsDown, regs: platform.Regs{
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
			l.try(t, attempt{code: i.Code, may: faults | shutsDown | harmless, regs: platform.Regs{
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
			l.try(t, attempt{code: fmt.Sprintf("CD %02X", n), may: faults | shutsDown | harmless})
		})
	}
}

// foreign are addresses that are not the guest's, or not to be written to.
var foreign = []struct {
	name string
	addr uint64
}{
	{"null", 0},
	{"descriptor table", gdtAddr + selUserCode&^3},
	{"interrupt table", idtAddr + 14*16},
	{"task segment", tssAddr + ioBitmap},
	{"stubs", stubAddr + 0x800},
	{"below the exception stack", stackLow - 64},
	{"exception stack", stackTop - 64},
	{"top table", pml4Addr},
	{"directory pointers", pdptAddr},
	{"directory", pdAddr},
	{"page table", ptAddr},
	{"last page table", ptEnd - 64},
	{"clock", platform.ClockPage + 64},
	{"text", codeAddr + 0x900},
	{"rodata", readOnly + 64},
	{"guard above the stack", dataEnd + 64},
	{"guard below the heap", heapAddr - 64},
	{"end of memory", memSize},
	{"heap of a larger guest", heapEnd - 64},
	{"end of the largest heap", heapEnd + 64},
	{"end of what can be mapped", maxSize},
	{"last canonical address", 1<<47 - 64},
	{"first non-canonical address", 1 << 47},
	{"non-canonical address", 1 << 63},
	{"kernel's half", 0xFFFFFFFF80000000},
	{"vsyscall page", 0xFFFFFFFFFF600000},
	{"last bytes", ^uint64(0) - 63},
}

func TestNothingButItsOwnMemoryCanBeChangedOrExecutedByAGuest(t *testing.T) {
	l := newLab(t)
	for _, p := range foreign {
		for _, w := range platformtest.Touches {
			t.Run(w.Name+"/"+p.name, func(t *testing.T) {
				// kvm-pvm cannot store a descriptor table beyond memory and tries for ever.
				l.try(t, attempt{code: w.Code, may: faults | shutsDown | endless, regs: platform.Regs{
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
		{"ud2", "0F 0B"}, {"int3", "CC"}, {"page fault", "8A 04 25 00 00 00 00"}, {"single step", "90"}, {"cpuid", "0F A2"},
	}
	for _, p := range foreign {
		for _, e := range events {
			t.Run("stack at "+p.name+"/"+e.name, func(t *testing.T) {
				regs := platform.Regs{RSP: p.addr | 8}
				if e.name == "single step" {
					regs.RFLAGS = 0x302
				}
				l.try(t, attempt{code: e.code, may: faults | shutsDown | harmless, regs: regs})
			})
		}
		if p.addr != 0 { // which stands for the usual one
			t.Run("start at "+p.name, func(t *testing.T) {
				l.try(t, attempt{may: faults | shutsDown, regs: platform.Regs{RIP: p.addr}})
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
	for name, code := range map[string]string{
		"the next instruction":   "C6 05 00 00 00 00 90",
		"by string move":         "48 8D 3D 00 00 00 00 48 89 FE B9 10 00 00 00 F3 A4",
		"by locked exchange":     "48 8D 1D 00 00 00 00 48 87 03",
		"by bit string":          "48 8D 1D 00 00 00 00 F0 48 0F AB 03",
		"by non-temporal stores": "48 8D 3D 00 00 00 00 66 0F 76 C9 66 0F F7 C1",
	} {
		t.Run("own text "+name, func(t *testing.T) {
			l.try(t, attempt{code: code, may: faults | shutsDown, regs: platform.Regs{RAX: ^uint64(0)}})
		})
	}
}

func TestEdgesOfMemory(t *testing.T) {
	l := newLab(t)
	for _, a := range []attempt{
		{name: "first byte of data", code: "88 03", regs: platform.Regs{RBX: dataAddr}, may: harmless},
		{name: "last byte of data", code: "88 03", regs: platform.Regs{RBX: dataEnd - 1}, may: harmless},
		{name: "first byte of the heap", code: "88 03", regs: platform.Regs{RBX: heapAddr}, may: harmless},
		{name: "last byte of memory", code: "88 03", regs: platform.Regs{RBX: memSize - 1}, may: harmless},
		{name: "over the end of data", code: "48 89 03", regs: platform.Regs{RBX: dataEnd - 4}, may: faults},
		{name: "over the end of memory", code: "48 89 03", regs: platform.Regs{RBX: memSize - 4}, may: faults | shutsDown},
		{name: "string over the end of memory", code: "F3 AA", regs: platform.Regs{RDI: memSize - 4096, RCX: 8192}, may: faults | shutsDown},
		{name: "state over the end of memory", code: "0F AE 03", regs: platform.Regs{RBX: memSize - 256}, may: faults | shutsDown},
		{name: "stack into the guard at once", code: "48 81 EC 00 00 10 00 50", may: faults},
		{name: "stack into the guard by pushes", code: "50 EB FD", may: faults},
		{name: "stack into the guard by calls", code: "E8 FB FF FF FF", may: faults},
		{name: "instruction over the end of text", code: "", regs: platform.Regs{RIP: readOnly - 1}, may: faults},
		{name: "start behind the end of text", code: "", regs: platform.Regs{RIP: readOnly}, may: faults},
		{name: "return to the end of memory", code: "53 C3", regs: platform.Regs{RBX: memSize}, may: faults | shutsDown},
	} {
		t.Run(a.name, func(t *testing.T) {
			if a.regs.RIP == readOnly-1 {
				l.subject(t).Load(readOnly-1, []byte{0x0F}) // of a two-byte instruction
				defer l.revert(t)
				*l.m.Regs() = platform.Regs{RIP: readOnly - 1, RSP: dataEnd, RFLAGS: 0x202}
				if e := finish(t, l.m); e.Kind != platform.Fault || e.Vector != 14 || e.Addr != readOnly {
					t.Errorf("%+v", e)
				}
				return
			}
			l.try(t, a)
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
			code, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s.code), []byte(" "), nil)))
			if err != nil {
				t.Fatal(err)
			}
			m := l.subject(t)
			m.Load(codeAddr, code)
			*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for round := range 50 {
				for range round {
					if e := finish(t, m); e.Kind != s.kind {
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
			checkRing(t, m)
			l.revert(t)
		})
	}
}
