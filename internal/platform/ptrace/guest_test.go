//go:build linux && amd64

package ptrace

import (
	"runtime"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

func TestSystemCallContinuesBehindTheInstructionWithItsRegisters(t *testing.T) {
	m := newGuest(t, platformtest.Assemble(t, "0F 05 48 FF C0 0F 05")) // syscall; inc rax; syscall
	r := m.Regs()
	*r = platform.Regs{
		RAX: 1, RBX: 2, RCX: 3, RDX: 4, RSI: 5, RDI: 6, RSP: dataEnd, RBP: 7, R8: 8, R9: 9, R10: 10, R11: 11,
		R12: 12, R13: 13, R14: 14, R15: 15, RIP: codeAddr, RFLAGS: 0x246,
	}
	want := *r
	want.RIP, want.RCX, want.R11 = codeAddr+2, codeAddr+2, 0x246
	if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || *r != want {
		t.Fatalf("%+v with %+v, want %+v", e, *r, want)
	}
	r.RAX = 41
	if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || r.RAX != 42 || r.RIP != codeAddr+7 {
		t.Fatalf("%+v with %+v", e, *r)
	}
}

// Results that the kernel would take for its own (-ERESTARTSYS and its kin)
// reach the guest as they are, also when a signal is pending.
func TestResultsThatMeanARestartAreLeftAlone(t *testing.T) {
	m := newGuest(t, platformtest.Assemble(t, "0F 05 0F 05"))
	for _, result := range []int64{-512, -513, -514, -516} {
		r := m.Regs()
		*r = platform.Regs{RIP: codeAddr, RAX: 39, RSP: dataEnd, RFLAGS: 0x202}
		platformtest.Finish(t, m)
		r.RAX = uint64(result)
		m.Interrupt()
		if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || int64(r.RAX) != result || r.RIP != codeAddr+4 {
			t.Errorf("%d: %+v with rax %d at %#x", result, e, int64(r.RAX), r.RIP)
		}
	}
}

func TestExceptionsAreReportedByTheirVectors(t *testing.T) {
	for _, c := range []struct {
		name, code   string
		vector       uint8
		addr         uint64
		rip          uint64 // after codeAddr
		regs         platform.Regs
		ripElsewhere bool
	}{
		{name: "division by zero", code: "31 C9 F7 F1", vector: divideError, rip: 2},
		{name: "single step", code: "90 90", vector: debugException, rip: 1, regs: platform.Regs{RFLAGS: 0x302}},
		{name: "single step through a system call", code: "0F 05", vector: 0, rip: 2, regs: platform.Regs{RFLAGS: 0x302}},
		{name: "int3", code: "CC", vector: breakpoint, rip: 1},
		{name: "int1", code: "F1", vector: debugException, rip: 1},
		{name: "ud2", code: "0F 0B", vector: invalidOpcode},
		{name: "hlt", code: "F4", vector: generalProtection},
		{name: "mov dr7, rax", code: "0F 23 F8", vector: generalProtection},
		{name: "mov rax, dr0", code: "0F 21 C0", vector: generalProtection},
		{name: "out", code: "E6 80", vector: generalProtection},
		{name: "null read", code: "8A 04 25 00 00 00 00", vector: pageFault},
		{name: "write to text", code: "C6 03 00", vector: pageFault, addr: codeAddr + 0x800, regs: platform.Regs{RBX: codeAddr + 0x800}},
		{name: "beyond memory", code: "8A 03", vector: pageFault, addr: memSize, regs: platform.Regs{RBX: memSize}},
		{name: "execute data", code: "FF E3", vector: pageFault, addr: dataAddr, regs: platform.Regs{RBX: dataAddr}, ripElsewhere: true},
		{name: "non-canonical read", code: "8A 03", vector: generalProtection, regs: platform.Regs{RBX: 1 << 63}},
		{name: "the kernel's half", code: "8A 03", vector: pageFault, regs: platform.Regs{RBX: 0xFFFFFFFF81000000}, addr: 0xFFFFFFFF81000000},
		{name: "unaligned with alignment check", code: "48 8B 03", vector: alignmentCheck, regs: platform.Regs{RBX: dataAddr + 1, RFLAGS: 0x40202}},
		{name: "stack that is not canonical", code: "50", vector: stackFault, regs: platform.Regs{RSP: 1 << 63}},
		{name: "SSE division", code: "C7 44 24 80 00 00 00 00 0F AE 54 24 80 0F 57 C0 F3 0F 5E C0", vector: floatingPoint, rip: 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newGuest(t, platformtest.Assemble(t, c.code))
			r := m.Regs()
			*r = c.regs
			r.RIP = codeAddr
			if r.RSP == 0 {
				r.RSP = dataEnd - 256
			}
			if r.RFLAGS == 0 {
				r.RFLAGS = 0x202
			}
			e := platformtest.Finish(t, m)
			want := platform.Exit{Kind: platform.Fault, Vector: c.vector, Addr: c.addr}
			if c.vector == 0 && c.name != "division by zero" {
				want.Kind = platform.Syscall
			}
			// Which address the kernel's half is reported with is the kernel's choice.
			if c.name == "the kernel's half" {
				want.Addr = e.Addr
			}
			if e != want {
				t.Errorf("%+v, want %+v", e, want)
			}
			if at := r.RIP - codeAddr; at != c.rip && !c.ripElsewhere {
				t.Errorf("at %#x", r.RIP)
			}
		})
	}
}

// Code segments of 32-bit programs, which a Linux process can switch to by a
// far jump. Every way into the kernel from there is a fault of the guest.
func TestNoSystemCallComesFrom32BitCode(t *testing.T) {
	// jmp far [rbx], to 16 bytes behind the start
	enter := func(code string) string { return "FF 2B 90 90 90 90 90 90 90 90 90 90 90 90 90 90 " + code }
	for name, code := range map[string]string{
		"int 0x80 in 64-bit code":                            "B8 14 00 00 00 CD 80",
		"int 0x80 that looks like a system call in RCX only": "48 8D 0D 02 00 00 00 CD 80",
		"int 0x80 in 32-bit code":                            enter("B8 14 00 00 00 CD 80"),
		"sysenter in 64-bit code":                            "B8 14 00 00 00 0F 34",
		"sysenter in 32-bit code":                            enter("B8 14 00 00 00 0F 34"),
		"syscall in 32-bit code":                             enter("B8 14 00 00 00 0F 05"),
		"a fault in 32-bit code":                             enter("0F 0B"),
		"a loop in 32-bit code":                              enter("EB FE"),
		"retf to 32-bit code":                                "6A 23 68 10 00 40 00 48 CB 90 90 90 90 90 90 90 CD 80",
		"iret to 32-bit code":                                "6A 2B 54 9C 6A 23 68 20 00 40 00 48 CF" + " 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 CD 80",
	} {
		t.Run(name, func(t *testing.T) {
			m := newGuest(t, append(platformtest.Assemble(t, code), 0x0F, 0x0B))
			m.CopyOut(dataAddr, []byte{0x10, 0x00, 0x40, 0x00, 0x23, 0x00}) // 0x23:0x400010
			m.Regs().RSP, m.Regs().RBX = dataEnd-256, dataAddr
			stop := func() {}
			if name == "a loop in 32-bit code" {
				stop = interruptAlways(m)
			}
			if e := platformtest.Finish(t, m); e.Kind != platform.Fault {
				t.Errorf("%+v", e)
			}
			stop()
			goesOn(t, m)
		})
	}
}

// interruptAlways interrupts a machine until stop is called.
func interruptAlways(m *Machine) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				m.Interrupt()
				runtime.Gosched()
			}
		}
	}()
	return func() { close(end); <-ended }
}

// goesOn has a machine run 64-bit code of ours once more.
func goesOn(t *testing.T, m *Machine) {
	t.Helper()
	// mov eax, cs; mov ecx, ds; mov edx, fs; mov ebx, gs; syscall
	m.Load(codeAddr+0x900, platformtest.Assemble(t, "8C C8 8C D9 8C E2 8C EB 8C D6 0F 05"))
	m.SetFSBase(dataAddr)
	*m.Regs() = platform.Regs{RIP: codeAddr + 0x900, RSP: dataEnd, RFLAGS: 0x202}
	e := platformtest.Finish(t, m)
	r := m.Regs()
	if e.Kind != platform.Syscall || r.RAX != userCode || r.RDX != 0 || r.RBX != 0 || r.RSI != userData {
		t.Errorf("afterwards %+v with selectors %#x, %#x, %#x, %#x", e, r.RAX, r.RDX, r.RBX, r.RSI)
	}
	var c platform.Context
	if err := m.Save(&c); err != nil {
		t.Fatal(err)
	}
	if c.FSBase != dataAddr {
		t.Errorf("the segment base is %#x", c.FSBase)
	}
}

// A guest may load what selectors and bases it likes; the next run has ours.
func TestSegmentsAreOursAtEveryEntry(t *testing.T) {
	for name, code := range map[string]string{
		"data selectors":                          "B8 2B 00 00 00 8E D8 8E C0 8E E0 8E E8 0F 05",
		"null selectors":                          "31 C0 8E D8 8E C0 8E E0 8E E8 0F 05",
		"a selector that there is not":            "B8 FB FF 00 00 8E E0 0F 05",
		"the kernel's selector":                   "B8 10 00 00 00 8E D8 0F 05",
		"wrfsbase of the kernel's half":           "48 C7 C0 00 00 00 80 F3 48 0F AE D0 0F 05",
		"wrgsbase of the kernel's half":           "48 C7 C0 00 00 00 80 F3 48 0F AE D8 0F 05",
		"wrgsbase beyond what a process can have": "48 B8 00 F0 FF FF FF 7F 00 00 F3 48 0F AE D8 0F 05",
	} {
		t.Run(name, func(t *testing.T) {
			m := newGuest(t, platformtest.Assemble(t, code))
			if e := platformtest.Finish(t, m); e.Kind != platform.Syscall && e.Kind != platform.Fault {
				t.Errorf("%+v", e)
			}
			goesOn(t, m)
		})
	}
}

func TestX32NumbersReachThePersonalityAsTheyAre(t *testing.T) {
	m := newGuest(t, platformtest.Assemble(t, "B8 27 00 00 40 0F 05"))
	if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || m.Regs().RAX != 0x40000027 {
		t.Errorf("%+v, rax %#x", e, m.Regs().RAX)
	}
}

// The three calls of the vsyscall page, which no tracer sees, and one between
// them.
func TestTheVsyscallPageIsClosed(t *testing.T) {
	for _, at := range []uint64{vsyscallPage, vsyscallPage + 0x400, vsyscallPage + 0x800, vsyscallPage + 8} {
		m := newGuest(t, platformtest.Assemble(t, "FF D0 0F 05")) // call rax; syscall
		r := m.Regs()
		r.RAX, r.RDI, r.RSI, r.RSP = at, dataAddr, dataAddr+64, dataEnd-64
		if e := platformtest.Finish(t, m); e.Kind != platform.Fault {
			t.Errorf("%#x: %+v, rax %#x", at, e, r.RAX)
		}
		if b := bytesAt(t, m, dataAddr, dataAddr+128); string(b) != string(make([]byte, 128)) {
			t.Errorf("%#x: the kernel wrote % x", at, b)
		}
		goesOn(t, m)
	}
}

// The stub is there for everybody to jump to, and worth nothing.
func TestJumpIntoTheStubIsAnOrdinarySystemCall(t *testing.T) {
	for _, at := range []uint64{callAddr, tableAddr, exitAddr} {
		m := newGuest(t, platformtest.Assemble(t, "FF E3")) // jmp rbx
		r := m.Regs()
		r.RBX, r.RAX, r.RBP, r.RDI = at, 39, dataAddr, 7
		if e := platformtest.Finish(t, m); e.Kind != platform.Syscall {
			t.Errorf("%#x: %+v", at, e)
		}
		goesOn(t, m)
	}
	m := newGuest(t, platformtest.Assemble(t, "C6 03 00"))
	m.Regs().RBX = callAddr
	if e := platformtest.Finish(t, m); e.Kind != platform.Fault || e.Addr != callAddr {
		t.Errorf("a write to the stub ends as %+v", e)
	}
}

func TestInterruptEndsAnEndlessLoopEveryTime(t *testing.T) {
	platformtest.InterruptEndsEndlessLoops(t, testPlatform(t), nil)
}

func TestInterruptBetweenSystemCallsLosesNone(t *testing.T) {
	platformtest.InterruptsLoseNoSystemCall(t, testPlatform(t))
}

// An interruption that arrives while the stub works is not lost.
func TestInterruptDuringAResetIsKept(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, []byte{0xEB, 0xFE})
	m := clone(t, p, b, c)
	m.Interrupt()
	if err := m.give(platform.UserLo, memSize); err != nil {
		t.Fatal(err)
	}
	if e, err := m.Run(); err != nil || e.Kind != platform.Interrupted {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestClockOfAGuestIsTheHosts(t *testing.T) {
	// mov rax, [clock]; mov rbx, [clock+16]; syscall
	m := newGuest(t, platformtest.Assemble(t, "48 8B 04 25 00 F0 3F 00 48 8B 1C 25 10 F0 3F 00 0F 05"))
	m.StartClock(5e9)
	if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || m.Regs().RAX != m.clock.TSC0 || m.Regs().RBX != 5e9 {
		t.Errorf("%+v: the guest reads %d and %d", e, m.Regs().RAX, m.Regs().RBX)
	}
	last, _ := m.Clock()
	for range 100 {
		m.SyncClock()
		mono, _ := m.Clock()
		if mono < last {
			t.Fatalf("the clock goes back from %d to %d", last, mono)
		}
		last = mono
	}
}
