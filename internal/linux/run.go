package linux

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// OutcomeKind says why Run ended.
type OutcomeKind uint8

// The ways in which a run ends.
const (
	// Parked: the driver waits for the next request.
	Parked OutcomeKind = iota + 1
	// Exited: the process called exit_group.
	Exited
	// Killed: a signal ended the process.
	Killed
	// Stopped: Stop was called; the process is between two instructions. A
	// long system call under way was cut short.
	Stopped
)

// Outcome is how a run ended.
type Outcome struct {
	Kind OutcomeKind
	// Status is the driver's word when parked, the exit status when exited.
	Status int64
	// Signal ended a killed process; Addr and IP tell more of a fault.
	Signal   syscall.Signal
	Addr, IP uint64
	Fault    bool
}

// control is what other goroutines may touch.
type control struct {
	interrupt atomic.Bool // deliver SIGINT
	stop      atomic.Bool // leave Run
	tick      atomic.Bool // look for another thread
	running   atomic.Bool // the machine runs, or is about to
	threads   atomic.Int32
	wake      chan struct{}
}

func (c *control) init() { c.wake = make(chan struct{}, 1) }

// clear forgets requests of an earlier run.
func (c *control) clear() {
	c.interrupt.Store(false)
	c.stop.Store(false)
	c.tick.Store(false)
	select {
	case <-c.wake:
	default:
	}
}

func (c *control) poke(m platform.Machine) {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	m.Interrupt()
}

// Interrupt sends the process SIGINT, as a terminal's Ctrl-C would. It belongs to
// the run under way: one that comes before the driver has begun the program is
// the first thing the program meets, and one that the program has not met when
// the run ends is gone. It may be called from any goroutine.
func (p *Process) Interrupt() {
	p.ctl.interrupt.Store(true)
	p.ctl.poke(p.cpu)
}

// Stop makes Run return Stopped as soon as possible. It may be called from any
// goroutine.
func (p *Process) Stop() {
	p.ctl.stop.Store(true)
	p.ctl.poke(p.cpu)
}

// Threads is how many threads the guest has. It may be called from any
// goroutine.
func (p *Process) Threads() int { return int(p.ctl.threads.Load()) }

// Clear forgets an Interrupt or Stop that has not acted. It is called between
// runs.
func (p *Process) Clear() { p.ctl.clear() }

// Run runs the process until it parks or ends. The caller holds the goroutine
// locked to its thread.
func (p *Process) Run() (Outcome, error) {
	p.outcome, p.failure, p.favourite, p.rearm = nil, nil, nil, true
	defer p.stopTicker()
	for {
		if p.ctl.stop.Load() {
			if t := p.current; t.waiting {
				p.resume(t, interruptedCall)
			}
			return Outcome{Kind: Stopped, IP: p.cpu.Regs().RIP}, nil
		}
		if p.ctl.interrupt.CompareAndSwap(true, false) {
			p.interrupt()
		}
		if p.ctl.tick.CompareAndSwap(true, false) {
			p.yield = true
		}
		if t := p.current; p.yield || t.waiting || t.exited || p.prefer != nil {
			p.schedule()
		}
		if p.failure != nil {
			return Outcome{}, p.failure
		}
		if t := p.current; t.waiting || t.exited {
			continue // for an interrupt or a stop
		}
		p.deliver()
		if p.outcome != nil {
			return *p.outcome, nil
		}
		if p.rearm {
			p.ctl.threads.Store(int32(len(p.threads)))
			p.arm()
		}
		p.ctl.running.Store(true)
		if p.ctl.tick.Load() { // which Look has set and not interrupted for
			p.ctl.running.Store(false)
			continue
		}
		exit, err := p.cpu.Run()
		p.ctl.running.Store(false)
		if err != nil {
			return Outcome{}, err
		}
		switch exit.Kind {
		case platform.Syscall:
			p.syscall()
		case platform.Fault:
			p.fault(exit)
		case platform.Interrupted:
		case platform.Shutdown:
			// The guest did this to itself, so it is no error of the machine.
			p.kill(sigInfo{signo: syscall.SIGSEGV, addr: exit.Addr, fault: true})
		default:
			return Outcome{}, fmt.Errorf("%w: unknown exit %d", platform.ErrMachine, exit.Kind)
		}
		if p.outcome != nil {
			return *p.outcome, nil
		}
	}
}

// stopping reports whether Stop was called. Whatever moves more than a few
// megabytes for one system call asks between the pieces, so that no call keeps
// the host busy for longer than a few milliseconds after it.
func (p *Process) stopping() bool { return p.ctl.stop.Load() }

// end makes Run return o.
func (p *Process) end(o Outcome) { p.outcome = &o }

// fault turns a processor exception into the signal Linux sends for it.
func (p *Process) fault(e platform.Exit) {
	s := sigInfo{signo: syscall.SIGSEGV, addr: e.Addr, fault: true, code: siKernel}
	switch e.Vector {
	case 0, 16, 19: // divide error, x87, SIMD
		s.signo, s.addr = syscall.SIGFPE, p.cpu.Regs().RIP
	case 1, 3: // debug, breakpoint
		s.signo, s.addr = syscall.SIGTRAP, p.cpu.Regs().RIP
	case 6: // invalid opcode
		s.signo, s.addr = syscall.SIGILL, p.cpu.Regs().RIP
	case 17: // alignment check
		s.signo = syscall.SIGBUS
	case 14:
		s.code = segvMapErr
	}
	p.raiseFault(s)
}
