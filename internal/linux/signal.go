package linux

import (
	"encoding/binary"
	"math/bits"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

const (
	maxSignal = 65
	// maxFrames bounds nested signal handlers: each one's context is kept
	// outside the guest.
	maxFrames = 16
	// maxAllFrames bounds those of all threads together.
	maxAllFrames = 128

	sigDfl = 0
	sigIgn = 1

	saSiginfo  = 0x4
	saOnStack  = 0x08000000
	saRestart  = 0x10000000
	saNoDefer  = 0x40000000
	saRestorer = 0x04000000
	saResethnd = 0x80000000

	ssOnStack = 1
	ssDisable = 2
	// minAltStack is MINSIGSTKSZ.
	minAltStack = 2048

	siKernel   = 0x80
	siTkill    = -6
	segvMapErr = 1
)

// Action is a signal's disposition as rt_sigaction passes it.
type Action struct {
	Handler, Flags, Restorer, Mask uint64
}

// AltStack is the alternate signal stack.
type AltStack struct {
	SP, Size uint64
	Flags    uint32
}

type sigInfo struct {
	signo syscall.Signal
	code  int32
	addr  uint64
	fault bool
	// host says that it comes from Interrupt.
	host bool
	// ip is where a fault happened.
	ip uint64
}

// frame is what a handler interrupted. It stays on the host's side: what
// sigreturn restores is never read from guest memory, so it cannot be forged.
type frame struct {
	context platform.Context
	mask    uint64
	// sp identifies the frame, and onAlt says which stack it is on.
	sp    uint64
	onAlt bool
}

// signals are the process's: what every thread shares.
type signals struct {
	actions [maxSignal]Action
	// queue holds signals that every thread blocks.
	queue signalQueue
}

// signalQueue holds pending signals, each number at most once.
type signalQueue struct {
	pending uint64
	info    []sigInfo
}

func (q *signalQueue) add(s sigInfo) {
	if q.pending&bit(s.signo) == 0 {
		q.pending |= bit(s.signo)
		q.info = append(q.info, s)
	}
}

// take removes and gives a pending signal.
func (q *signalQueue) take(n syscall.Signal) (s sigInfo) {
	q.pending &^= bit(n)
	for i, s := range q.info {
		if s.signo == n {
			q.info = append(q.info[:i], q.info[i+1:]...)
			return s
		}
	}
	return s
}

func bit(n syscall.Signal) uint64 { return 1 << (uint(n) - 1) }

// ignoredByDefault are signals whose default action is to do nothing, or to
// stop, which a single process without a shell treats the same.
func ignoredByDefault(n syscall.Signal) bool {
	switch n {
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGWINCH, syscall.SIGCONT,
		syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		return true
	}
	return false
}

// ignored reports whether a signal does nothing.
func (p *Process) ignored(n syscall.Signal) bool {
	h := p.sig.actions[n].Handler
	return h == sigIgn || h == sigDfl && ignoredByDefault(n)
}

// raise sends the process a signal: to its first thread that does not block it,
// which is the main one whenever it can be (kernel/signal.c, complete_signal). It gives that thread, nil when there is
// none.
func (p *Process) raise(s sigInfo) *thread {
	for _, t := range p.threads {
		if t.mask&bit(s.signo) == 0 {
			p.raiseIn(t, s)
			return t
		}
	}
	p.sig.queue.add(s)
	return nil
}

// raiseIn sends a thread a signal.
func (p *Process) raiseIn(t *thread, s sigInfo) {
	// A blocked one stays: sigwait may ask for it.
	if p.ignored(s.signo) && t.mask&bit(s.signo) == 0 {
		return
	}
	t.queue.add(s)
	if t != p.current && t.mask&bit(s.signo) == 0 {
		p.prefer = t
	}
}

// deliverable gives the lowest signal that a thread is to handle now, or zero.
func (p *Process) deliverable(t *thread) syscall.Signal {
	ready := (t.queue.pending | p.sig.queue.pending) &^ t.mask
	if ready == 0 {
		return 0
	}
	return syscall.Signal(bits.TrailingZeros64(ready) + 1)
}

// takeSignal removes and gives a signal that is pending for a thread.
func (p *Process) takeSignal(t *thread, n syscall.Signal) sigInfo {
	if t.queue.pending&bit(n) != 0 {
		return t.queue.take(n)
	}
	return p.sig.queue.take(n)
}

// raiseFault delivers a synchronous signal at once; without a handler that can
// run, it ends the process.
func (p *Process) raiseFault(s sigInfo) {
	a := p.sig.actions[s.signo]
	s.ip = p.cpu.Regs().RIP
	p.current.lastFault = s
	if a.Handler <= sigIgn || p.current.mask&bit(s.signo) != 0 || !p.enter(s, a) {
		p.kill(s)
	}
}

func (p *Process) kill(s sigInfo) {
	s.ip = p.cpu.Regs().RIP
	if f := p.current.lastFault; !s.fault && f.signo == s.signo {
		// A handler that has had its say sends the signal once more to end the
		// process (faulthandler does): the fault is still the reason.
		s = f
	}
	p.end(Outcome{Kind: Killed, Signal: s.signo, Addr: s.addr, IP: s.ip, Fault: s.fault})
}

// deliver runs the handlers of the current thread's pending signals that are
// not blocked.
func (p *Process) deliver() {
	t := p.current
	for p.outcome == nil {
		n := p.deliverable(t)
		if n == 0 {
			break
		}
		s, a := p.takeSignal(t, n), p.sig.actions[n]
		switch {
		case p.ignored(n):
		case a.Handler == sigDfl || !p.enter(s, a):
			p.kill(s)
		}
	}
	p.leaveSuspension(t)
}

// suspend makes a thread wait with another mask.
func (p *Process) suspend(t *thread, mask uint64) {
	old := t.mask
	t.suspended = &old
	t.mask = mask &^ unblockable
}

// leaveSuspension ends what suspend began.
func (p *Process) leaveSuspension(t *thread) {
	if t.suspended != nil {
		t.mask, t.suspended = *t.suspended, nil
	}
}

// enter makes the guest continue in a handler, as the kernel's setup_rt_frame
// does: return address, ucontext and siginfo on the stack.
func (p *Process) enter(s sigInfo, a Action) bool {
	p.dropAbandoned()
	t := p.current
	if len(t.frames) >= maxFrames || p.frames >= maxAllFrames || a.Flags&saRestorer == 0 {
		return false
	}
	f := frame{mask: t.mask}
	if t.suspended != nil {
		f.mask, t.suspended = *t.suspended, nil
	}
	if p.cpu.Save(&f.context) != nil {
		return false
	}
	r := p.cpu.Regs()
	// 128 bytes below the stack pointer are the ABI's red zone.
	sp := r.RSP - 128
	onAlt := p.onAltStack(r.RSP)
	if a.Flags&saOnStack != 0 && t.alt.Flags&ssDisable == 0 && t.alt.Size != 0 && !onAlt {
		sp, onAlt = t.alt.SP+t.alt.Size, true
	}
	const infoSize, ucontextSize = 128, 968
	info := (sp - infoSize) &^ 15
	uc := (info - ucontextSize) &^ 15
	ret := uc - 8
	if !p.cpu.CopyOut(info, s.encode()) || !p.cpu.CopyOut(uc, encodeUcontext(r, f.mask, s)) ||
		!p.cpu.CopyOut(ret, binary.LittleEndian.AppendUint64(nil, a.Restorer)) {
		return false
	}
	f.sp, f.onAlt = ret, onAlt
	t.frames = append(t.frames, f)
	p.frames++
	t.mask |= a.Mask
	if a.Flags&saNoDefer == 0 {
		t.mask |= bit(s.signo)
	}
	if a.Flags&saResethnd != 0 {
		p.sig.actions[s.signo].Handler = sigDfl
	}
	r.RSP, r.RIP = ret, a.Handler
	r.RDI, r.RSI, r.RDX, r.RAX = uint64(s.signo), info, uc, 0
	r.RFLAGS &^= 0x10500 // RF, DF, TF
	return true
}

// dropAbandoned forgets the newest frames that longjmp has left behind: the
// stack they are on has been unwound past them.
func (p *Process) dropAbandoned() {
	t, sp := p.current, p.cpu.Regs().RSP
	onAlt := p.onAltStack(sp)
	for n := len(t.frames); n > 0; n-- {
		if f := &t.frames[n-1]; f.onAlt != onAlt || f.sp >= sp {
			return
		}
		p.dropFrame()
	}
}

// dropFrame forgets the current thread's newest frame.
func (p *Process) dropFrame() {
	t := p.current
	n := len(t.frames) - 1
	t.frames[n] = frame{} // its extended state is 4 KiB
	t.frames = t.frames[:n]
	p.frames--
}

func (p *Process) onAltStack(sp uint64) bool {
	alt := &p.current.alt
	return sp > alt.SP && sp <= alt.SP+alt.Size
}

// encode gives a siginfo_t (include/uapi/asm-generic/siginfo.h).
func (s sigInfo) encode() []byte {
	b := make([]byte, 128)
	binary.LittleEndian.PutUint32(b, uint32(s.signo))
	binary.LittleEndian.PutUint32(b[8:], uint32(s.code))
	if s.fault {
		binary.LittleEndian.PutUint64(b[16:], s.addr)
	} else {
		binary.LittleEndian.PutUint32(b[16:], processID)
		binary.LittleEndian.PutUint32(b[20:], userID)
	}
	return b
}

// encodeUcontext gives a ucontext_t for handlers that look at registers
// (arch/x86/include/uapi/asm/sigcontext.h); nothing of it is read back.
func encodeUcontext(r *platform.Regs, mask uint64, s sigInfo) []byte {
	b := make([]byte, 968)
	for i, v := range []uint64{
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.RDI, r.RSI, r.RBP, r.RBX,
		r.RDX, r.RAX, r.RCX, r.RSP, r.RIP, r.RFLAGS, 0x33, 0, 0, mask, s.addr,
	} {
		binary.LittleEndian.PutUint64(b[40+i*8:], v)
	}
	binary.LittleEndian.PutUint64(b[296:], mask)
	return b
}

// sysRtSigreturn restores what the newest handler interrupted. A handler that
// was left by longjmp leaves its frame behind; frames deeper in the stack than
// the one that returns are dropped.
func sysRtSigreturn(p *Process, _ *args) uint64 {
	r := p.cpu.Regs()
	sp := r.RSP - 8 // the restorer popped the return address
	t := p.current
	for len(t.frames) > 0 {
		f := t.frames[len(t.frames)-1]
		p.dropFrame()
		if f.sp != sp {
			continue
		}
		t.mask = f.mask
		err := p.cpu.Restore(&f.context)
		if err != nil {
			p.kill(sigInfo{signo: syscall.SIGSEGV})
		}
		return p.cpu.Regs().RAX
	}
	p.kill(sigInfo{signo: syscall.SIGSEGV})
	return 0
}

func sysRtSigaction(p *Process, a *args) uint64 {
	n := a[0]
	if n == 0 || n >= maxSignal || a[3] != 8 {
		return fail(syscall.EINVAL)
	}
	old := p.sig.actions[n]
	if a[1] != 0 {
		var b [32]byte
		if !p.cpu.CopyIn(b[:], a[1]) {
			return fail(syscall.EFAULT)
		}
		if syscall.Signal(n) == syscall.SIGKILL || syscall.Signal(n) == syscall.SIGSTOP {
			return fail(syscall.EINVAL)
		}
		le := binary.LittleEndian
		p.sig.actions[n] = Action{le.Uint64(b[:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]) &^ unblockable}
	}
	if a[2] != 0 {
		b := make([]byte, 0, 32)
		for _, v := range []uint64{old.Handler, old.Flags, old.Restorer, old.Mask} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		if !p.cpu.CopyOut(a[2], b) {
			return fail(syscall.EFAULT)
		}
	}
	return 0
}

// unblockable are SIGKILL and SIGSTOP.
const unblockable = 1<<8 | 1<<18

func sysRtSigprocmask(p *Process, a *args) uint64 {
	if a[3] != 8 {
		return fail(syscall.EINVAL)
	}
	old := p.current.mask
	if a[1] != 0 {
		set, ok := p.u64(a[1])
		if !ok {
			return fail(syscall.EFAULT)
		}
		set &^= unblockable
		switch a[0] {
		case 0:
			p.current.mask |= set
		case 1:
			p.current.mask &^= set
		case 2:
			p.current.mask = set
		default:
			return fail(syscall.EINVAL)
		}
	}
	if a[2] != 0 && !p.putU64(a[2], old) {
		return fail(syscall.EFAULT)
	}
	return 0
}

func sysRtSigpending(p *Process, a *args) uint64 {
	if a[1] != 8 || !p.putU64(a[0], (p.current.queue.pending|p.sig.queue.pending)&p.current.mask) {
		return fail(syscall.EFAULT)
	}
	return 0
}

func sysSigaltstack(p *Process, a *args) uint64 {
	le := binary.LittleEndian
	old := p.current.alt
	on := p.onAltStack(p.cpu.Regs().RSP)
	if a[0] != 0 {
		var b [24]byte
		if !p.cpu.CopyIn(b[:], a[0]) {
			return fail(syscall.EFAULT)
		}
		n := AltStack{SP: le.Uint64(b[:]), Flags: le.Uint32(b[8:]), Size: le.Uint64(b[16:])}
		switch {
		case on:
			return fail(syscall.EPERM)
		case n.Flags&^(ssDisable|ssOnStack) != 0:
			return fail(syscall.EINVAL)
		case n.Flags&ssDisable != 0:
			n = AltStack{Flags: ssDisable}
		case n.Size < minAltStack:
			return fail(syscall.ENOMEM)
		}
		p.current.alt = n
	}
	if a[1] != 0 {
		var b [24]byte
		if old.Size == 0 {
			old.Flags = ssDisable
		} else if on {
			old.Flags = ssOnStack
		}
		le.PutUint64(b[:], old.SP)
		le.PutUint32(b[8:], old.Flags)
		le.PutUint64(b[16:], old.Size)
		if !p.cpu.CopyOut(a[1], b[:]) {
			return fail(syscall.EFAULT)
		}
	}
	return 0
}
