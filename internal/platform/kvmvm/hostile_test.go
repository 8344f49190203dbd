//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"runtime"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// privileged are instructions that a process may not execute, or not with
// these operands. Each is tried with RAX a kernel selector and RBX at data that
// a far pointer to ring 0 is in.
var privileged = []struct{ name, code string }{
	{"hlt", "F4"},
	{"cli", "FA"},
	{"sti", "FB"},
	{"lgdt [rbx]", "0F 01 13"},
	{"lidt [rbx]", "0F 01 1B"},
	{"lldt ax", "0F 00 D0"},
	{"ltr ax", "0F 00 D8"},
	{"lmsw ax", "0F 01 F0"},
	{"clts", "0F 06"},
	{"mov cr0, rax", "0F 22 C0"},
	{"mov cr2, rax", "0F 22 D0"},
	{"mov cr3, rax", "0F 22 D8"},
	{"mov cr4, rax", "0F 22 E0"},
	{"mov cr8, rax", "44 0F 22 C0"},
	{"mov rax, cr0", "0F 20 C0"},
	{"mov rax, cr3", "0F 20 D8"},
	{"mov dr0, rax", "0F 23 C0"},
	{"mov dr7, rax", "0F 23 F8"},
	{"mov rax, dr6", "0F 21 F0"},
	{"wrmsr", "0F 30"},
	{"wrmsr of LSTAR", "B9 82 00 00 C0 0F 30"},
	{"wrmsr of EFER", "B9 80 00 00 C0 0F 30"},
	{"wrmsr of GSBASE", "B9 01 01 00 C0 0F 30"},
	{"rdmsr", "0F 32"},
	{"rdmsr of TSC", "B9 10 00 00 00 0F 32"},
	{"wbinvd", "0F 09"},
	{"invd", "0F 08"},
	{"invlpg [rbx]", "0F 01 3B"},
	{"invpcid rax, [rbx]", "66 0F 38 82 03"},
	{"rdpmc", "0F 33"},
	{"sysretq", "48 0F 07"},
	{"sysretl", "0F 07"},
	{"sysexit", "0F 35"},
	{"sysenter", "0F 34"},
	{"swapgs", "0F 01 F8"},
	{"xsetbv", "0F 01 D1"},
	{"xsaves [rbx]", "0F C7 2B"},
	{"stac", "0F 01 CB"},
	{"clac", "0F 01 CA"},
	{"rsm", "0F AA"},
	{"vmlaunch", "0F 01 C2"},
	{"vmxoff", "0F 01 C4"},
	{"vmptrld [rbx]", "0F C7 33"},
	{"vmread rax, rbx", "0F 78 D8"},
	{"vmrun", "0F 01 D8"},
	{"vmload", "0F 01 DA"},
	{"vmsave", "0F 01 DB"},
	{"stgi", "0F 01 DC"},
	{"clgi", "0F 01 DD"},
	{"skinit", "0F 01 DE"},
	{"invlpga", "0F 01 DF"},
	{"encls", "0F 01 CF"},
	{"monitor", "0F 01 C8"},
	{"mwait", "0F 01 C9"},
	{"in al, 0x60", "E4 60"},
	{"in ax, 0x50", "66 E5 50"},
	{"in eax, dx", "ED"},
	{"in al, dx of the last port", "BA FF FF 00 00 EC"},
	{"out 0x52, al", "E6 52"},
	{"out 0x50, ax", "66 E7 50"},
	{"out 0x51, eax", "E7 51"},
	{"out dx, eax", "EF"},
	{"rep insb", "F3 6C"},
	{"rep insw", "66 F3 6D"},
	{"rep insd", "F3 6D"},
	{"rep outsb", "F3 6E"},
	{"rep outsw", "66 F3 6F"},
	{"rep outsd", "F3 6F"},
	{"rep insw of the guest's port", "BA 50 00 00 00 66 F3 6D"},
	{"rep outsd to the guest's port", "BA 51 00 00 00 F3 6F"},
	{"jmp far [rbx]", "48 FF 2B"},
	{"jmp far [rbx], 32 bits", "FF 2B"},
	{"call far [rbx]", "48 FF 1B"},
	{"retf to the kernel's code segment", "6A 08 53 48 CB"},
	{"retf to the task segment", "6A 28 53 48 CB"},
	{"iretq to the kernel's segments", "6A 10 54 9C 6A 08 53 48 CF"},
	{"iretq with a null stack segment", "6A 00 54 9C 6A 23 53 48 CF"},
	{"iretq of a nested task", "9C 81 0C 24 00 40 00 00 9D 48 CF"},
	{"mov ss, eax", "8E D0"},
	{"mov ds, eax", "8E D8"},
	{"mov fs, eax", "8E E0"},
	{"lss rsp, [rbx]", "48 0F B2 23"},
	{"lgs rax, [rbx]", "48 0F B5 03"},
	{"into", "CE"},
	{"bound", "62"},
	{"ud0", "0F FF C1"},
	{"ud1", "0F B9 C1"},
	{"int1", "F1"},
	{"lock nop", "F0 90"},
	{"an instruction of 16 bytes", "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90"},
	{"single step by popf", "9C 81 0C 24 00 01 00 00 9D 90 90"},
	{"div by zero", "31 C9 F7 F1"},
	{"div with overflow", "BA FF FF FF 7F B9 01 00 00 00 F7 F1"},
	{"x87 error", "D9 7C 24 80 66 C7 44 24 80 40 03 D9 6C 24 80 D9 EE D9 E8 D8 F1 9B"},
}

// TestPrivilegedInstructionsEndInAFault: none of them does anything.
func TestPrivilegedInstructionsEndInAFault(t *testing.T) {
	l := newLab(t)
	for _, i := range privileged {
		t.Run(i.name, func(t *testing.T) {
			l.subject(t).CopyOut(dataAddr+512, farPointer(stubAddr+0x800, selKernelCode))
			l.try(t, attempt{code: i.code, may: faults | shutsDown, regs: platform.Regs{
				RAX: selKernelData, RBX: dataAddr + 512, RCX: 8, RDX: 0x3F8, RSI: dataAddr, RDI: dataAddr,
			}})
		})
	}
}

// farPointer is an m16:64 operand; its first bytes serve as m16:32 too.
func farPointer(addr uint64, sel byte) []byte {
	return []byte{byte(addr), byte(addr >> 8), byte(addr >> 16), byte(addr >> 24), sel, 0, 0, 0, sel, 0}
}

// allowed are instructions that a process may execute on some processors.
var allowed = []struct{ name, code string }{
	{"vmcall", "0F 01 C1"},
	{"vmmcall", "0F 01 D9"},
	{"enclu", "0F 01 D7"},
	{"getsec", "0F 37"},
	{"cpuid", "0F A2"},
	{"rdtsc", "0F 31"},
	{"rdtscp", "0F 01 F9"},
	{"xgetbv", "0F 01 D0"},
	{"rdfsbase rax", "F3 48 0F AE C0"},
	{"wrfsbase rbx", "F3 48 0F AE D3"},
	{"wrgsbase rbx", "F3 48 0F AE DB"},
	{"wrfsbase of the kernel's half", "48 C7 C3 00 00 00 80 F3 48 0F AE D3"},
	{"rdpkru", "31 C9 0F 01 EE"},
	{"wrpkru", "31 C0 31 C9 31 D2 FF C8 0F 01 EF"},
	{"umonitor rax", "F3 0F AE F0"},
	{"umwait eax", "31 C0 31 D2 F2 0F AE F0"},
	{"tpause eax", "31 C0 31 D2 66 0F AE F0"},
	{"sgdt [rbx]", "0F 01 03"},
	{"sidt [rbx]", "0F 01 0B"},
	{"sldt rax", "0F 00 C0"},
	{"str rax", "0F 00 C8"},
	{"smsw rax", "48 0F 01 E0"},
	{"verr ax", "0F 00 E0"},
	{"verw ax", "0F 00 E8"},
	{"lar eax, eax", "0F 02 C0"},
	{"lsl eax, eax", "0F 03 C0"},
	{"prefetch of the page tables", "0F 18 0E"},
	{"prefetchw of the page tables", "0F 0D 0E"},
	{"prefetch of the kernel's half", "48 C7 C6 00 00 00 80 0F 18 0E"},
	{"clflush of data", "0F AE 3B"},
	{"clflush of the page tables", "0F AE 3E"},
	{"rdrand rax", "48 0F C7 F0"},
	{"rdseed rax", "48 0F C7 F8"},
	{"xbegin", "C7 F8 00 00 00 00"},
	{"xabort", "C6 F8 00"},
	{"xend", "0F 01 D5"},
	{"serialize", "0F 01 E8"},
	{"I/O privilege by popf", "9C 81 0C 24 00 30 00 00 9D"},
	{"I/O privilege by iretq", "6A 1B 54 68 02 32 00 00 6A 23 48 8D 05 05 00 00 00 50 48 CF 90"},
	{"no interrupts by popf", "9C 81 24 24 FF FD FF FF 9D"},
	{"unaligned access with alignment check", "9C 81 0C 24 00 00 04 00 9D 48 8B 43 01"},
	{"nested task flag", "9C 81 0C 24 00 40 00 00 9D"},
	{"string store backwards", "FD B9 10 00 00 00 F3 AA"},
	{"breakpoint in the shadow of mov ss", "B8 1B 00 00 00 8E D0 CC"},
	{"null segments", "31 C0 8E D8 8E C0 8E E0 8E E8"},
	{"masked x87 error", "DB E3 D9 EE D9 E8 D8 F1 9B"},
	{"SSE error", "C7 44 24 80 00 00 00 00 0F AE 54 24 80 0F 57 C0 F3 0F 5E C0"},
	{"amx tile configuration", "C4 E2 78 49 C0"},
	{"vsyscall", "48 C7 C0 00 00 60 FF FF D0"},
}

// TestOddInstructionsHurtNobody: whichever way they end, nothing is left of it.
func TestOddInstructionsHurtNobody(t *testing.T) {
	l := newLab(t)
	for _, i := range allowed {
		t.Run(i.name, func(t *testing.T) {
			l.try(t, attempt{code: i.code, may: faults | shutsDown | harmless, regs: platform.Regs{
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

// touches are ways to change memory at RBX or RDI, or to execute it.
var touches = []struct{ name, code string }{
	{"mov", "88 03"},
	{"lock cmpxchg", "F0 48 0F B1 03"},
	{"rep stosb", "F3 AA"},
	{"fxsave", "0F AE 03"},
	{"sgdt", "0F 01 03"},
	{"push", "48 89 DC 48 83 C4 08 50"},
	{"call there", "48 89 DC 48 83 C4 08 E8 00 00 00 00"},
	{"enter", "48 89 DC 48 83 C4 08 C8 40 00 1F"},
	{"jmp", "FF E3"},
}

func TestNothingButItsOwnMemoryCanBeChangedOrExecutedByAGuest(t *testing.T) {
	l := newLab(t)
	for _, p := range foreign {
		for _, w := range touches {
			t.Run(w.name+"/"+p.name, func(t *testing.T) {
				// kvm-pvm cannot store a descriptor table beyond memory and tries for ever.
				l.try(t, attempt{code: w.code, may: faults | shutsDown | endless, regs: platform.Regs{
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
