//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/pagemap"
)

// Register values that every guest has (arch/x86/include/asm/segment.h).
const (
	userCode = 0x33
	userData = 0x2b
	// flagsAlways: bit 1 of RFLAGS is always set, bit 9 is IF.
	flagsAlways = 1<<9 | 1<<1
	// userFlags is what a process may have besides: the arithmetic flags, TF,
	// DF, NT, AC and ID.
	userFlags = 0x244DD5
	// noCall in orig_rax tells the kernel that there is no system call whose
	// result it may replace in order to restart it.
	noCall = ^uint64(0)
)

func cleanFlags(f uint64) uint64 { return f&userFlags | flagsAlways }

// userCanonical reports whether an address is one that a process can have.
func userCanonical(addr uint64) bool { return addr < userEnd }

// Machine is one traced process. It implements platform.Machine and
// platform.Bound.
type Machine struct {
	p      *Platform
	thread *thread
	child  *child
	size   uint64
	rights platform.Rights
	// backing is what Revert returns to; nil for a machine that boots.
	backing *platform.Backing
	// file holds the memory of a machine that boots, at the addresses as
	// offsets; -1 for a clone, whose memory only its process has.
	file int

	regs   platform.Regs
	fs, gs uint64
	// raw is the buffer for what the kernel gives and takes.
	raw unix.PtraceRegs
	// xstate is what the child gets before it runs next, if fresh.
	xstate []byte
	fresh  bool
	// dead: the guest ended its own process, and there is nothing to run.
	dead bool

	clock clock

	// found is the buffer of a scan of changed pages.
	found pagemap.Regions

	mu     sync.Mutex // guards closed against Interrupt
	closed bool
}

// newMachine makes a machine of a memory. It owns file, if there is one.
func (p *Platform) newMachine(g memory, file int, b *platform.Backing) (*Machine, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	m := &Machine{p: p, thread: startThread(), size: g.size, rights: g.spans, file: file, backing: b, regs: platform.Regs{RFLAGS: flagsAlways}}
	var err error
	m.thread.do(func() {
		if m.child, err = p.start(p.isolation, g.fd); err == nil {
			p.lives(m.child, true)
			err = m.child.confine(p.isolation, g)
		}
	})
	if err != nil {
		_ = m.Close() // which does not fail
		return nil, err
	}
	return m, nil
}

// OnThread implements platform.Bound.
func (m *Machine) OnThread(f func()) { m.thread.do(f) }

// Regs implements platform.Machine.
func (m *Machine) Regs() *platform.Regs { return &m.regs }

// SetFSBase implements platform.Machine.
func (m *Machine) SetFSBase(addr uint64) bool {
	if !userCanonical(addr) {
		return false
	}
	m.fs = addr
	return true
}

// Save implements platform.Machine.
func (m *Machine) Save(c *platform.Context) (err error) {
	if len(c.XSave) != m.p.xstateSize {
		c.XSave = make([]byte, m.p.xstateSize)
	}
	c.Regs, c.FSBase, c.GSBase = m.regs, m.fs, m.gs
	if m.fresh {
		copy(c.XSave, m.xstate)
		return nil
	}
	if m.dead {
		return fmt.Errorf("%w: its process has ended", platform.ErrMachine)
	}
	m.thread.do(func() { _, err = getXState(m.child.pid, c.XSave) })
	if err != nil {
		return fmt.Errorf("%w: extended state: %w", platform.ErrMachine, err)
	}
	return nil
}

// Restore implements platform.Machine.
func (m *Machine) Restore(c *platform.Context) error {
	if len(c.XSave) != m.p.xstateSize || !userCanonical(c.FSBase) || !userCanonical(c.GSBase) {
		return fmt.Errorf("%w: context of another kind", platform.ErrMachine)
	}
	if m.dead {
		return fmt.Errorf("%w: its process has ended", platform.ErrMachine)
	}
	m.regs, m.fs, m.gs = c.Regs, c.FSBase, c.GSBase
	m.xstate = append(m.xstate[:0], c.XSave...)
	m.fresh = true
	return nil
}

// Run implements platform.Machine.
func (m *Machine) Run() (e platform.Exit, err error) {
	if m.thread.here() {
		return m.run()
	}
	m.thread.do(func() { e, err = m.run() })
	return e, err
}

func (m *Machine) run() (platform.Exit, error) {
	switch {
	case m.dead:
		return platform.Exit{Kind: platform.Shutdown, Vector: 8}, nil
	case m.child.stopped:
		m.child.stopped = false
		return platform.Exit{Kind: platform.Interrupted}, nil
	case !userCanonical(m.regs.RIP):
		return platform.Exit{Kind: platform.Fault, Vector: generalProtection}, nil
	}
	if err := m.enter(); err != nil {
		return m.failed(err)
	}
	s, err := m.child.wait()
	if err != nil {
		return platform.Exit{}, err
	}
	if !s.Stopped() {
		return m.ended(s)
	}
	if err := getRegs(m.child.pid, &m.raw); err != nil {
		return m.failed(err)
	}
	return m.exit(s.StopSignal())
}

// failed deals with a request about the child that the kernel refused: it has
// none for a process that has been killed.
func (m *Machine) failed(err error) (platform.Exit, error) {
	if errors.Is(err, unix.ESRCH) {
		for !m.child.reaped {
			s, err := m.child.wait()
			if err != nil {
				return platform.Exit{}, err
			}
			if !s.Stopped() {
				return m.ended(s)
			}
		}
	}
	return platform.Exit{}, fmt.Errorf("%w: %w", platform.ErrMachine, err)
}

// ended says how a child ended.
func (m *Machine) ended(s unix.WaitStatus) (platform.Exit, error) {
	m.dead = true
	if s.Signaled() && s.Signal() == unix.SIGSYS {
		// A system call got past the tracer, to the filter.
		return platform.Exit{Kind: platform.Shutdown, Vector: generalProtection}, nil
	}
	return platform.Exit{}, fmt.Errorf("%w: the guest's process was ended from outside, %s", platform.ErrMachine, ending(s))
}

// enter lets the child run to its next system call or signal.
func (m *Machine) enter() error { return m.enterBy(sysemu) }

// enterBy gives the registers to the kernel and lets the child run.
func (m *Machine) enterBy(resume func(pid int) error) error {
	r, g := &m.raw, &m.regs
	// Selectors are not the guest's to choose: it may have loaded those of
	// 32-bit code.
	*r = unix.PtraceRegs{
		Rax: g.RAX, Rbx: g.RBX, Rcx: g.RCX, Rdx: g.RDX, Rsi: g.RSI, Rdi: g.RDI, Rsp: g.RSP, Rbp: g.RBP,
		R8: g.R8, R9: g.R9, R10: g.R10, R11: g.R11, R12: g.R12, R13: g.R13, R14: g.R14, R15: g.R15,
		Rip: g.RIP, Eflags: cleanFlags(g.RFLAGS), Cs: userCode, Ss: userData,
		Orig_rax: noCall, Fs_base: m.fs, Gs_base: m.gs,
	}
	if err := setRegs(m.child.pid, r); err != nil {
		return fmt.Errorf("set registers: %w", err)
	}
	if err := m.settle(); err != nil {
		return err
	}
	return resume(m.child.pid)
}

// settle gives the extended state to the kernel if that is still to be done.
func (m *Machine) settle() error {
	if !m.fresh {
		return nil
	}
	if err := setXState(m.child.pid, m.xstate); err != nil {
		return fmt.Errorf("set extended state: %w", err)
	}
	m.fresh = false
	return nil
}

// leave takes the guest's registers from the kernel's.
func (m *Machine) leave() {
	r := &m.raw
	m.regs = platform.Regs{
		RAX: r.Rax, RBX: r.Rbx, RCX: r.Rcx, RDX: r.Rdx, RSI: r.Rsi, RDI: r.Rdi, RSP: r.Rsp, RBP: r.Rbp,
		R8: r.R8, R9: r.R9, R10: r.R10, R11: r.R11, R12: r.R12, R13: r.R13, R14: r.R14, R15: r.R15,
		RIP: r.Rip, RFLAGS: cleanFlags(r.Eflags),
	}
	m.fs, m.gs = r.Fs_base, r.Gs_base
}

// Vectors of exceptions (SDM vol. 3, table 6-1).
const (
	divideError       = 0
	debugException    = 1
	breakpoint        = 3
	invalidOpcode     = 6
	stackFault        = 12
	generalProtection = 13
	pageFault         = 14
	alignmentCheck    = 17
	floatingPoint     = 19
)

// syscallStop is the signal of a stop at a system call (PTRACE_O_TRACESYSGOOD).
const syscallStop = unix.SIGTRAP | 0x80

// exit turns a stop into the seam's words.
func (m *Machine) exit(s unix.Signal) (platform.Exit, error) {
	m.leave()
	if m.raw.Cs != userCode || !userCanonical(m.fs) || !userCanonical(m.gs) {
		// It went over to 32-bit code, or has the kernel's addresses as the base
		// of a segment, which no process can be given.
		if !userCanonical(m.fs) {
			m.fs = 0
		}
		if !userCanonical(m.gs) {
			m.gs = 0
		}
		return platform.Exit{Kind: platform.Fault, Vector: generalProtection}, nil
	}
	switch s {
	case syscallStop:
		return m.syscallExit()
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGTRAP, unix.SIGSYS:
		return m.faultExit(s)
	}
	// Interrupt, or some other process of the same user.
	return platform.Exit{Kind: platform.Interrupted}, nil
}

func (m *Machine) syscallExit() (platform.Exit, error) {
	// SYSCALL leaves RIP and RFLAGS in RCX and R11. The gates for 32-bit
	// programs (INT 0x80, SYSENTER) do not, and take another table's numbers: to
	// a 64-bit program they do not exist. A guest that has made the registers
	// look like that has made a system call. A processor with FRED leaves them
	// alone; then the kernel is asked.
	if m.regs.RCX != m.regs.RIP || m.regs.R11 != m.raw.Eflags {
		arch, err := callArch(m.child.pid)
		if err != nil || arch != unix.AUDIT_ARCH_X86_64 {
			m.regs.RAX = m.raw.Orig_rax
			return platform.Exit{Kind: platform.Fault, Vector: generalProtection}, nil
		}
		m.regs.RCX, m.regs.R11 = m.regs.RIP, m.regs.RFLAGS
	}
	m.regs.RAX = m.raw.Orig_rax
	return platform.Exit{Kind: platform.Syscall}, nil
}

// Values of si_code (include/uapi/asm-generic/siginfo.h).
const (
	siKernel    = 0x80
	busAlign    = 1
	fpeDivide   = 1
	fpeOverflow = 2
)

// faultExit finds the exception behind a signal, as arch/x86/kernel/traps.c and
// arch/x86/mm/fault.c raise them.
func (m *Machine) faultExit(s unix.Signal) (platform.Exit, error) {
	code, addr, err := signalInfo(m.child.pid)
	if err != nil {
		return m.failed(err)
	}
	if code <= 0 { // SI_USER, SI_TKILL: sent by a process
		return platform.Exit{Kind: platform.Interrupted}, nil
	}
	e := platform.Exit{Kind: platform.Fault, Vector: generalProtection}
	switch {
	case s == unix.SIGSEGV && code != siKernel:
		e.Vector, e.Addr = pageFault, addr
	case s == unix.SIGSYS: // the vsyscall page, by the filter
		e.Vector, e.Addr = pageFault, vsyscallPage
	case s == unix.SIGBUS && code == siKernel:
		e.Vector = stackFault
	case s == unix.SIGBUS && code == busAlign:
		e.Vector = alignmentCheck
	case s == unix.SIGBUS:
		// Its file is shorter than it was, or the memory is broken: not the
		// guest's doing.
		return platform.Exit{}, fmt.Errorf("%w: the host has no page for address %#x of the guest", platform.ErrMachine, addr)
	case s == unix.SIGILL:
		e.Vector = invalidOpcode
	case s == unix.SIGFPE && (code == fpeDivide || code == fpeOverflow):
		e.Vector = divideError
	case s == unix.SIGFPE:
		e.Vector = floatingPoint
	case s == unix.SIGTRAP && code == siKernel:
		e.Vector = breakpoint
	case s == unix.SIGTRAP:
		e.Vector = debugException
	}
	return e, nil
}

// Interrupt implements platform.Machine.
func (m *Machine) Interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		// A stop that comes while the child does not run is there when it runs
		// next.
		m.child.signal(unix.SIGSTOP)
	}
}

// Close implements platform.Machine.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	if m.child != nil {
		m.p.lives(m.child, false)
		m.thread.do(m.child.kill)
		m.child.close()
	}
	m.thread.stop()
	if m.file >= 0 {
		return unix.Close(m.file)
	}
	return nil
}

var (
	_ platform.Machine = (*Machine)(nil)
	_ platform.Bound   = (*Machine)(nil)
)
