//go:build linux && amd64

package kvmvm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// readCS is "mov eax, cs; syscall".
var readCS = []byte{0x8C, 0xC8, 0x0F, 0x05}

// checkRing has the guest itself say in which ring it runs.
func checkRing(t *testing.T, m *Machine) {
	t.Helper()
	if r := ring(t, m); r != 3 {
		t.Fatalf("the guest would go on in ring %d", r)
	}
	const at = codeAddr + 0x800
	m.Load(at, readCS)
	e := platform.Exit{}
	// On hardware KVM the way back from a system call that was forged in ring 3
	// is a SYSRET there, which faults once.
	for range 2 {
		*m.Regs() = platform.Regs{RIP: at, RSP: dataEnd, RFLAGS: 0x202}
		if e = platformtest.Finish(t, m); e.Kind != platform.Fault || m.Regs().RIP != sysretAddr {
			break
		}
	}
	if e.Kind != platform.Syscall {
		t.Fatalf("afterwards the guest ends with %+v at %#x", e, m.Regs().RIP)
	}
	if cs := m.Regs().RAX; cs&3 != 3 {
		t.Fatalf("the guest runs with code segment %#x", cs)
	}
}

// hostileGuests are instructions that a process may not execute, or addresses
// it may not touch.
var hostileGuests = []struct {
	name    string
	code    []byte
	regs    platform.Regs // RIP, RSP and RFLAGS have values of their own if 0
	kind    platform.ExitKind
	vectors []uint8
	addr    uint64
}{
	{name: "syscall", code: []byte{0x0F, 0x05}, kind: platform.Syscall},
	{name: "syscall with a wild stack pointer", code: []byte{0x0F, 0x05}, regs: platform.Regs{RSP: 0xDEADBEEFDEADBEEF}, kind: platform.Syscall},
	{name: "syscall with a non-canonical stack pointer", code: []byte{0x0F, 0x05}, regs: platform.Regs{RSP: 1 << 63}, kind: platform.Syscall},
	{name: "syscall with the stack in the kernel's half", code: []byte{0x0F, 0x05}, regs: platform.Regs{RSP: 0xFFFFFFFF80000000}, kind: platform.Syscall},
	{name: "syscall with the stack in the page tables", code: []byte{0x0F, 0x05}, regs: platform.Regs{RSP: ptAddr + 64}, kind: platform.Syscall},
	{name: "mov ss, then syscall, single-stepped", code: []byte{0x8E, 0xD0, 0x0F, 0x05}, regs: platform.Regs{RAX: selUserData, RSP: idtAddr + 256, RFLAGS: 0x302}},
	{name: "int3", code: []byte{0xCC}, kind: platform.Fault, vectors: []uint8{3}},
	{name: "ud2", code: []byte{0x0F, 0x0B}, kind: platform.Fault, vectors: []uint8{6}},
	{name: "ud2 with a wild stack pointer", code: []byte{0x0F, 0x0B}, regs: platform.Regs{RSP: 1 << 63}, kind: platform.Fault, vectors: []uint8{6}},
	{name: "ud2 with the stack in the page tables", code: []byte{0x0F, 0x0B}, regs: platform.Regs{RSP: pml4Addr + 64}, kind: platform.Fault, vectors: []uint8{6}},
	{name: "hlt", code: []byte{0xF4}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "cli", code: []byte{0xFA}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "sti", code: []byte{0xFB}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "in of another port", code: []byte{0xE4, 0x60}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "in of a high port", code: []byte{0xEC}, regs: platform.Regs{RDX: 0x3F8}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "out to another port", code: []byte{0xE6, 0x80}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "out to the port before", code: []byte{0xE6, 0x4F}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "out to the port behind", code: []byte{0xE6, 0x52}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "out over four ports", code: []byte{0xE7, 0x50}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "out to our port from own code", code: []byte{0xE6, 0x50}, kind: platform.Shutdown},
	{name: "in of our port", code: []byte{0xE4, 0x51}, kind: platform.Shutdown},
	{name: "insb of our port", code: []byte{0xF3, 0x6C}, regs: platform.Regs{RDX: 0x50, RCX: 4, RDI: dataAddr}, kind: platform.Shutdown},
	{name: "outsb to our port", code: []byte{0xF3, 0x6E}, regs: platform.Regs{RDX: 0x50, RCX: 4, RSI: dataAddr}, kind: platform.Shutdown},
	{name: "write to rodata", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: readOnly + 5}, kind: platform.Fault, vectors: []uint8{14}, addr: readOnly + 5},
	{name: "write to text", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: codeAddr + 9}, kind: platform.Fault, vectors: []uint8{14}, addr: codeAddr + 9},
	{name: "jump to data", code: []byte{0xFF, 0xE3}, regs: platform.Regs{RBX: dataAddr}, kind: platform.Fault, vectors: []uint8{14}, addr: dataAddr},
	{name: "jump to the heap", code: []byte{0xFF, 0xE3}, regs: platform.Regs{RBX: heapAddr}, kind: platform.Fault, vectors: []uint8{14}, addr: heapAddr},
	{name: "read of the descriptor table", code: []byte{0x8A, 0x03}, regs: platform.Regs{RBX: gdtAddr}, kind: platform.Fault, vectors: []uint8{14}, addr: gdtAddr},
	{name: "write to the exception stack", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: stackTop - 8}, kind: platform.Fault, vectors: []uint8{14}, addr: stackTop - 8},
	{name: "write to the top table", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: pml4Addr}, kind: platform.Fault, vectors: []uint8{14}, addr: pml4Addr},
	{name: "write to a page table", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: ptAddr}, kind: platform.Fault, vectors: []uint8{14}, addr: ptAddr},
	{name: "write to the stub", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: stubAddr}, kind: platform.Fault, vectors: []uint8{14}, addr: stubAddr},
	{name: "write to the clock", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: platform.ClockPage}, kind: platform.Fault, vectors: []uint8{14}, addr: platform.ClockPage},
	{name: "jump to the clock", code: []byte{0xFF, 0xE3}, regs: platform.Regs{RBX: platform.ClockPage}, kind: platform.Fault, vectors: []uint8{14}, addr: platform.ClockPage},
	{name: "null pointer", code: []byte{0x8A, 0x03}, kind: platform.Fault, vectors: []uint8{14}},
	{name: "jump to null", code: []byte{0xFF, 0xE3}, kind: platform.Fault, vectors: []uint8{14}},
	{name: "read in the kernel's half", code: []byte{0x8A, 0x03}, regs: platform.Regs{RBX: 0xFFFFFFFF80000000}, kind: platform.Fault, vectors: []uint8{14}},
	{name: "read of a hole", code: []byte{0x8A, 0x03}, regs: platform.Regs{RBX: dataEnd}, kind: platform.Fault, vectors: []uint8{14}, addr: dataEnd},
	{name: "read of a non-canonical address", code: []byte{0x8A, 0x03}, regs: platform.Regs{RBX: 1 << 47}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "jump to a non-canonical address", code: []byte{0xFF, 0xE3}, regs: platform.Regs{RBX: 1 << 63}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "start at a non-canonical address", regs: platform.Regs{RIP: 1 << 47}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "division by zero", code: []byte{0x31, 0xC9, 0xF7, 0xF1}, kind: platform.Fault, vectors: []uint8{0}},
	{name: "single step", code: []byte{0x90, 0x90}, regs: platform.Regs{RFLAGS: 0x302}, kind: platform.Fault, vectors: []uint8{1}},
	{name: "icebp", code: []byte{0xF1}, kind: platform.Fault, vectors: []uint8{1, 6, 13}},
	{name: "int 0x80", code: []byte{0xCD, 0x80}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "int 14", code: []byte{0xCD, 14}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "sysret", code: []byte{0x48, 0x0F, 0x07}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "sysenter", code: []byte{0x0F, 0x34}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "swapgs", code: []byte{0x0F, 0x01, 0xF8}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "lgdt", code: []byte{0x0F, 0x01, 0x13}, regs: platform.Regs{RBX: dataAddr}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "mov to cr3", code: []byte{0x0F, 0x22, 0xD8}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "mov to dr7", code: []byte{0x0F, 0x23, 0xF8}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "wrmsr", code: []byte{0x0F, 0x30}, regs: platform.Regs{RCX: msrLSTAR}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "rdmsr", code: []byte{0x0F, 0x32}, regs: platform.Regs{RCX: msrLSTAR}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "xsetbv", code: []byte{0x0F, 0x01, 0xD1}, kind: platform.Fault, vectors: []uint8{6, 13}},
	{name: "far return to the kernel's code segment", code: []byte{0x6A, selKernelCode, 0x53, 0x48, 0xCB}, regs: platform.Regs{RBX: codeAddr}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "iret to the kernel's code segment", code: []byte{
		0x6A, selKernelData, 0x54, 0x9C, 0x6A, selKernelCode, 0x53, 0x48, 0xCF, // push ss; push rsp; pushf; push cs; push rbx; iretq
	}, regs: platform.Regs{RBX: codeAddr}, kind: platform.Fault, vectors: []uint8{13}},
	{name: "read beyond memory", code: []byte{0x8A, 0x03}, regs: platform.Regs{RBX: memSize}, kind: platform.Shutdown},
	{name: "write beyond memory", code: []byte{0x88, 0x03}, regs: platform.Regs{RBX: heapEnd - 1}, kind: platform.Shutdown},
	{name: "copy from beyond memory", code: []byte{0xA4}, regs: platform.Regs{RSI: memSize, RDI: dataAddr}, kind: platform.Shutdown},
}

func TestGuestsThatMisbehaveAreReportedAndStayInRing3(t *testing.T) {
	for _, tt := range hostileGuests {
		t.Run(tt.name, func(t *testing.T) {
			m := newGuest(t, tt.code)
			r := tt.regs
			for reg, v := range map[*uint64]uint64{&r.RIP: codeAddr, &r.RSP: dataEnd, &r.RFLAGS: 0x202} {
				if *reg == 0 {
					*reg = v
				}
			}
			*m.Regs() = r
			e := platformtest.Finish(t, m)
			if tt.kind == 0 && (e.Kind == platform.Syscall || e.Kind == platform.Fault) {
				checkRing(t, m) // which of the two differs between processors
				return
			}
			if strings.Contains(tt.name, "our port") && e.Kind == platform.Fault && e.Vector == 13 {
				// A processor that takes no I/O bitmap from a busy task (QEMU's)
				// refuses the ports to ring 3, where only kvm-pvm needs them.
				checkRing(t, m)
				return
			}
			if e.Kind != tt.kind || tt.vectors != nil && !slices.Contains(tt.vectors, e.Vector) {
				t.Fatalf("got %+v at %#x, want kind %d, exception %v", e, m.Regs().RIP, tt.kind, tt.vectors)
			}
			if tt.addr != 0 && e.Addr != tt.addr {
				t.Errorf("the address is %#x, want %#x", e.Addr, tt.addr)
			}
			if m.Regs().RFLAGS&0x3000 != 0 {
				t.Errorf("the guest has I/O privilege: %#x", m.Regs().RFLAGS)
			}
			switch tt.kind {
			case platform.Shutdown:
				checkDead(t, m)
			case platform.Fault:
				if tt.regs.RSP != 0 && m.Regs().RSP != tt.regs.RSP {
					t.Errorf("the stack pointer became %#x", m.Regs().RSP)
				}
				checkRing(t, m)
			default:
				checkRing(t, m)
			}
		})
	}
}

// checkDead: what was shut down never runs again, whatever registers it gets.
func checkDead(t *testing.T, m *Machine) {
	t.Helper()
	*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
	if e := platformtest.Finish(t, m); e.Kind != platform.Shutdown {
		t.Errorf("after its shutdown the guest ran on: %+v", e)
	}
	var c platform.Context
	if err := m.Save(&c); err != nil {
		t.Error(err)
	}
	if err := m.Restore(&c); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("after its shutdown the guest could be restored: %v", err)
	}
}

func TestSystemCallContinuesBehindTheInstructionWithItsRegisters(t *testing.T) {
	// loop: syscall; inc rbx; jmp loop
	m := newGuest(t, []byte{0x0F, 0x05, 0x48, 0xFF, 0xC3, 0xEB, 0xF9})
	m.Regs().R15 = 0x1122334455667788
	m.Regs().RFLAGS = 0x2C7 // CF PF ZF SF
	for i := range uint64(200) {
		if e := platformtest.Finish(t, m); e.Kind != platform.Syscall {
			t.Fatalf("call %d: %+v", i, e)
		}
		r := m.Regs()
		if r.RIP != codeAddr+2 || r.RBX != i || r.R15 != 0x1122334455667788 || r.RFLAGS&0x3000 != 0 || r.RSP != dataEnd {
			t.Fatalf("call %d: %+v", i, r)
		}
		if i == 0 && r.RFLAGS&0x8D5 != 0xC5 {
			t.Fatalf("flags are %#x", r.RFLAGS)
		}
		r.RAX = i
	}
}

func TestJumpIntoTheStubsOnlyHurtsTheGuest(t *testing.T) {
	stacks := []uint64{dataEnd, stackTop - 40, stackTop - 45, 1 << 63}
	offsets := []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 0xFE, 0xFF}
	for i := range uint64(faultStep) {
		for _, v := range []uint64{0, 14, 31, 32} {
			offsets = append(offsets, faultBase-stubAddr+v*faultStep+i)
		}
	}
	offsets = append(offsets, 0xFFE, 0xFFF)
	m := newGuest(t, nil)
	for _, off := range offsets {
		for _, sp := range stacks {
			if m.dead {
				m = newGuest(t, nil)
			}
			*m.Regs() = platform.Regs{
				RIP: stubAddr + off, RSP: sp, RFLAGS: 0x202,
				RAX: dataAddr, RCX: codeAddr, R11: ^uint64(0), RBX: dataAddr, RDX: portSyscall,
			}
			e := platformtest.Finish(t, m)
			switch e.Kind {
			case platform.Syscall, platform.Fault:
				checkRing(t, m)
			case platform.Shutdown:
			default:
				t.Fatalf("stub+%#x, stack %#x: %+v", off, sp, e)
			}
		}
	}
}

// On hardware KVM the way of the first system call once decided where all
// later ones were taken to arrive.
func TestForgedFirstSystemCallDoesNotOpenRing0(t *testing.T) {
	testPlatform(t)
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	b, _, err := p.Boot(memSize, platformtest.Spans, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	defer func() { _ = m.Close() }()
	m.Load(codeAddr, append([]byte{0x0F, 0x05}, readCS...))
	*m.Regs() = platform.Regs{RIP: stubAddr, RCX: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
	platformtest.Finish(t, m) // the forged call
	*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
	for range 2 {
		if e := platformtest.Finish(t, m); e.Kind != platform.Syscall && e.Kind != platform.Fault {
			t.Fatalf("%+v", e)
		}
		if r := ring(t, m); r != 3 {
			t.Fatalf("the guest goes on in ring %d", r)
		}
	}
}

func TestInterruptEndsAnEndlessLoopEveryTime(t *testing.T) {
	platformtest.InterruptEndsEndlessLoops(t, testPlatform(t), func(m platform.Machine) error {
		if r := ring(t, m.(*Machine)); r != 3 {
			return fmt.Errorf("interrupted in ring %d", r)
		}
		return nil
	})
}

func TestInterruptBetweenSystemCallsLosesNone(t *testing.T) {
	platformtest.InterruptsLoseNoSystemCall(t, testPlatform(t))
}
