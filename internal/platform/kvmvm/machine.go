//go:build linux && amd64

package kvmvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/vdso"
)

// mode says where the processor stands between two runs.
type mode uint8

const (
	// inUser: the registers are the guest's own.
	inUser mode = iota
	// inStub: hardware KVM stopped in ring 0 behind a system call's OUT; the
	// way back is the stub's SYSRET.
	inStub
)

// Machine is one virtual machine. It implements platform.Machine.
type Machine struct {
	p      *Platform
	vm     *kvm.VM
	vcpu   *kvm.VCPU
	mem    []byte
	rights platform.Rights
	// backing is what Revert returns to; nil for a machine that boots.
	backing *platform.Backing

	regs platform.Regs
	mode mode
	// dead: KVM may still hold a half-done instruction that no register write
	// takes back, so the processor never runs again.
	dead bool

	clock     vdso.Clock
	tick      uint64
	tscOffset uint64
	// ringZero is the platform's when the machine was made.
	ringZero bool
	// fromZero says that the last system call arrived in ring 0; only kept while
	// ringZero is not known. Moving back to ring 3 overwrites the registers that
	// tell.
	fromZero bool
	apicBase uint64

	// found is the buffer of Revert's scan.
	found regions

	thread atomic.Int32

	mu     sync.Mutex // guards closed against Interrupt
	closed bool
}

// newMachine makes a virtual machine over guest memory, which it owns from
// then on.
func (p *Platform) newMachine(mem []byte, spans []platform.Span) (*Machine, error) {
	m := &Machine{p: p, mem: mem, rights: spans}
	err := m.create()
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	return m, nil
}

func (m *Machine) create() error {
	var err error
	if m.vm, err = m.p.sys.CreateVM(); err != nil {
		return err
	}
	if err = m.vm.SetMemory(m.mem); err != nil {
		return err
	}
	if m.vcpu, err = m.vm.CreateVCPU(); err != nil {
		return err
	}
	// CPUID first: newer kernels validate the rest against it.
	if err = m.vcpu.SetCPUID(m.p.cpuid); err != nil {
		return err
	}
	if err = m.vcpu.SetXCR0(m.p.xcr0); err != nil {
		return err
	}
	m.ringZero = m.p.ringZero.Load()
	if err = m.vcpu.SetMSRs(
		kvm.MSREntry{Index: msrSTAR, Data: starValue},
		kvm.MSREntry{Index: msrLSTAR, Data: stubAddr},
		kvm.MSREntry{Index: msrSFMASK, Data: sfmaskValue}); err != nil {
		return err
	}
	if m.tick = m.p.tickOf(m.vcpu); m.tick != 0 {
		if err = m.measureTSC(); err != nil {
			return err
		}
	}
	var s kvm.Sregs
	if err = m.vcpu.GetSregs(&s); err != nil {
		return err
	}
	m.apicBase = s.APICBase
	if !m.ringZero {
		*m.vcpu.ExitSregs() = s
		m.vcpu.SyncSregs()
	}
	return m.setUser(0, 0)
}

// measureTSC finds how far the guest's time stamp counter is from the host's.
// Of three readings the one that took least time is the best: the others may
// have been disturbed.
func (m *Machine) measureTSC() error {
	best := ^uint64(0)
	for range 3 {
		before := rdtsc()
		tsc, err := m.vcpu.GetMSR(msrTSC)
		if err != nil {
			return err
		}
		if took := rdtsc() - before; took < best {
			best, m.tscOffset = took, tsc-before-took/2
		}
	}
	return nil
}

// setUser puts the processor into ring 3 with the given segment bases.
func (m *Machine) setUser(fs, gs uint64) error {
	// APICBase has to stay what KVM made it.
	s := kvm.Sregs{APICBase: m.apicBase}
	userSregs(&s, fs, gs)
	m.mode = inUser
	if m.ringZero {
		return m.vcpu.SetSregs(&s)
	}
	*m.vcpu.ExitSregs() = s
	m.vcpu.MarkSregs()
	return nil
}

// sregs gives the special registers of the stopped processor. Where they are
// looked at after every system call they come and go with Run (kvm-pvm: an
// ioctl costs a fifth of an exit); elsewhere they are read when needed.
func (m *Machine) sregs() (*kvm.Sregs, error) {
	if !m.ringZero {
		return m.vcpu.ExitSregs(), nil
	}
	s := new(kvm.Sregs)
	return s, m.vcpu.GetSregs(s)
}

// Regs implements platform.Machine.
func (m *Machine) Regs() *platform.Regs { return &m.regs }

// SetFSBase implements platform.Machine.
func (m *Machine) SetFSBase(addr uint64) bool {
	if !userCanonical(addr) {
		return false
	}
	if m.ringZero {
		return m.vcpu.SetMSRs(kvm.MSREntry{Index: msrFSBase, Data: addr}) == nil
	}
	m.vcpu.ExitSregs().FS.Base = addr
	m.vcpu.MarkSregs()
	return true
}

// Save implements platform.Machine.
func (m *Machine) Save(c *platform.Context) error {
	s, err := m.sregs()
	if err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	if len(c.XSave) != kvm.XSaveSize {
		c.XSave = make([]byte, kvm.XSaveSize)
	}
	if err := m.vcpu.GetXSave(c.XSave); err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	c.Regs, c.FSBase, c.GSBase = m.regs, s.FS.Base, s.GS.Base
	return nil
}

// Restore implements platform.Machine.
func (m *Machine) Restore(c *platform.Context) error {
	if len(c.XSave) != kvm.XSaveSize || !userCanonical(c.FSBase) || !userCanonical(c.GSBase) {
		return fmt.Errorf("%w: context of another kind", platform.ErrMachine)
	}
	if m.dead {
		return fmt.Errorf("%w: it was shut down", platform.ErrMachine)
	}
	err := m.setUser(c.FSBase, c.GSBase)
	if err == nil {
		err = m.vcpu.SetXSave(c.XSave)
	}
	m.vcpu.ResetEvents()
	if err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	m.regs = c.Regs
	return nil
}

// Run implements platform.Machine.
func (m *Machine) Run() (platform.Exit, error) {
	if m.dead {
		return platform.Exit{Kind: platform.Shutdown, Vector: 8}, nil
	}
	m.thread.Store(int32(unix.Gettid()))
	if !userCanonical(m.regs.RIP) {
		// SYSRET to such an address would fault in ring 0.
		return platform.Exit{Kind: platform.Fault, Vector: 13}, nil
	}
	m.enter()
	for {
		reason, err := m.vcpu.Run()
		if errors.Is(err, kvm.ErrInterrupted) {
			// Clear the request first and let the caller look at its flags
			// afterwards, so that none is lost. Go's own pre-emption signal
			// ends up here too.
			m.vcpu.SetImmediateExit(false)
			done, err := m.leaveStubs()
			if err != nil {
				return platform.Exit{}, err
			}
			if done {
				return platform.Exit{Kind: platform.Interrupted}, nil
			}
			continue
		}
		if err != nil {
			m.dead = true
			return platform.Exit{}, fmt.Errorf("%w: %w", platform.ErrMachine, err)
		}
		e, err := m.exit(reason)
		m.dead = err != nil || e.Kind == platform.Shutdown
		return e, err
	}
}

// enter hands the registers to KVM.
func (m *Machine) enter() {
	r := kvm.Regs(m.regs)
	r.RFLAGS = cleanFlags(r.RFLAGS)
	if m.mode == inStub {
		r.RCX, r.R11 = r.RIP, r.RFLAGS
		r.RIP, r.RFLAGS = sysretAddr, 1<<1
		m.mode = inUser
	}
	*m.vcpu.Regs() = r
	m.vcpu.MarkRegs()
}

// leaveStubs makes an interrupted processor stand between two instructions of
// the guest. It reports false when it must run on to get there.
func (m *Machine) leaveStubs() (bool, error) {
	r := *m.vcpu.Regs()
	if !inStubs(r.RIP) {
		m.regs = platform.Regs(r)
		return true, m.stayUser()
	}
	if r.RIP != sysretAddr {
		return false, nil // in front of an OUT, which will exit
	}
	// Do what the SYSRET would.
	s, err := m.sregs()
	if err == nil {
		err = m.setUser(s.FS.Base, s.GS.Base)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	r.RIP, r.RFLAGS = r.RCX, cleanFlags(r.R11)
	m.regs = platform.Regs(r)
	return true, nil
}

// exit turns a VM exit into the seam's words.
func (m *Machine) exit(reason uint32) (platform.Exit, error) {
	m.regs = platform.Regs(*m.vcpu.Regs())
	switch reason {
	case kvm.ExitIO:
		port, out := m.vcpu.IO()
		if port == portSyscall && out && inStubs(m.regs.RIP) {
			return m.syscallExit()
		}
		if port == portFault && out && inStubs(m.regs.RIP) {
			return m.faultExit()
		}
		// The guest used a port by itself. KVM would finish reading one, or a
		// string instruction, only when the processor runs next.
		return platform.Exit{Kind: platform.Shutdown, Vector: 13}, nil
	case kvm.ExitMMIO:
		return platform.Exit{Kind: platform.Shutdown, Vector: 14, Addr: m.vcpu.MMIOAddr()}, nil
	case kvm.ExitHLT, kvm.ExitShutdown, kvm.ExitInternalError, kvm.ExitException:
		return platform.Exit{Kind: platform.Shutdown, Vector: 8}, nil
	}
	return platform.Exit{}, fmt.Errorf("%w: KVM exit %d", platform.ErrMachine, reason)
}

func (m *Machine) syscallExit() (platform.Exit, error) {
	if m.ringZero {
		m.mode = inStub
	}
	m.regs.RIP, m.regs.RFLAGS = m.regs.RCX, cleanFlags(m.regs.R11)
	return platform.Exit{Kind: platform.Syscall}, m.stayUser()
}

// stayUser puts the processor back into ring 3 where kvm-pvm has left it: it
// takes a system call made with a non-canonical stack pointer to ring 0, unlike
// all others, and the guest would go on there.
func (m *Machine) stayUser() error {
	if m.ringZero {
		return nil // the way back is SYSRET
	}
	s := m.vcpu.ExitSregs()
	m.fromZero = s.CS.Selector&3 == 0
	if s.CS.Selector&3 == 3 {
		return nil
	}
	if err := m.setUser(s.FS.Base, s.GS.Base); err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	return nil
}

// hasErrorCode are the exceptions that push one (SDM vol. 3, table 6-1).
const hasErrorCode = 1<<8 | 1<<10 | 1<<11 | 1<<12 | 1<<13 | 1<<14 | 1<<17 | 1<<21 | 1<<29 | 1<<30

// faultExit reads the frame that the processor pushed and puts the guest back
// to the instruction that faulted.
func (m *Machine) faultExit() (platform.Exit, error) {
	stub := (m.regs.RIP - faultBase) / faultStep
	sp := m.regs.RSP
	// The guest may have jumped here with a stack pointer of its own.
	if stub >= vectors || sp < stackLow || sp > stackTop-40 {
		return platform.Exit{Kind: platform.Shutdown, Vector: 8}, nil
	}
	e := platform.Exit{Kind: platform.Fault, Vector: uint8(stub)}
	s, err := m.sregs()
	if err != nil {
		return platform.Exit{}, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	frame := m.mem[sp:stackTop]
	le := binary.LittleEndian
	if hasErrorCode&(1<<e.Vector) != 0 {
		e.Code, frame = le.Uint64(frame), frame[8:]
	}
	if len(frame) < 40 {
		return platform.Exit{Kind: platform.Shutdown, Vector: 8}, nil
	}
	if e.Vector == 14 {
		e.Addr = s.CR2
	}
	m.regs.RIP, m.regs.RFLAGS, m.regs.RSP = le.Uint64(frame), cleanFlags(le.Uint64(frame[16:])), le.Uint64(frame[24:])
	if le.Uint64(frame[8:])&3 != 3 {
		// The stub itself faulted, in ring 0: nothing to go back to.
		e.Kind = platform.Shutdown
	}
	if err := m.setUser(s.FS.Base, s.GS.Base); err != nil {
		return platform.Exit{}, fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	return e, nil
}

// Interrupt implements platform.Machine.
func (m *Machine) Interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.vcpu.SetImmediateExit(true)
	if t := m.thread.Load(); t != 0 {
		// SIGURG is the runtime's own pre-emption signal: it needs no handler
		// of ours and a stray one does no harm.
		_ = unix.Tgkill(unix.Getpid(), int(t), syscall.SIGURG)
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
	var errs []error
	if m.vcpu != nil {
		errs = append(errs, m.vcpu.Close())
	}
	if m.vm != nil {
		errs = append(errs, m.vm.Close())
	}
	errs = append(errs, unmapGuest(m.mem))
	m.mem = nil
	return errors.Join(errs...)
}

// StartClock implements platform.Machine.
func (m *Machine) StartClock(monotonic uint64) {
	m.setClock(monotonic, uint64(time.Now().UnixNano()))
}

// SyncClock implements platform.Machine.
func (m *Machine) SyncClock() {
	mono, _ := m.Clock()
	m.setClock(mono, uint64(time.Now().UnixNano()))
}

func (m *Machine) setClock(mono, real uint64) {
	m.clock = vdso.Clock{TSC0: m.tsc(), Mult: m.tick, Mono0: mono, Real0: real}
	b := m.clock.Bytes()
	copy(m.mem[platform.ClockPage:], b[:])
}

// Clock implements platform.Machine.
func (m *Machine) Clock() (monotonic, realtime uint64) {
	if m.tick == 0 {
		// Without a usable counter the guest asks for every reading.
		elapsed := m.tsc() - m.clock.TSC0
		return m.clock.Mono0 + elapsed, m.clock.Real0 + elapsed
	}
	return m.clock.At(m.tsc())
}

// epoch is what a host without a usable time stamp counter counts from.
var epoch = time.Now()

// tsc is the guest's time stamp counter now, or nanoseconds where there is no
// usable one.
func (m *Machine) tsc() uint64 {
	if m.tick == 0 {
		return uint64(time.Since(epoch))
	}
	return rdtsc() + m.tscOffset
}
