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

	sigDfl = 0
	sigIgn = 1

	saSiginfo  = 0x4
	saOnStack  = 0x08000000
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

type signals struct {
	actions [maxSignal]Action
	alt     AltStack
	pending uint64
	info    [maxSignal]sigInfo
	frames  []frame
	// lastFault is the newest processor exception.
	lastFault sigInfo
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

// raise makes a signal pending.
func (p *Process) raise(s sigInfo) {
	h := p.sig.actions[s.signo].Handler
	if h == sigIgn || h == sigDfl && ignoredByDefault(s.signo) {
		return
	}
	p.sig.pending |= bit(s.signo)
	p.sig.info[s.signo] = s
}

// raiseFault delivers a synchronous signal at once; without a handler that can
// run, it ends the process.
func (p *Process) raiseFault(s sigInfo) {
	a := p.sig.actions[s.signo]
	s.ip = p.cpu.Regs().RIP
	p.sig.lastFault = s
	if a.Handler <= sigIgn || p.thread.Mask&bit(s.signo) != 0 || !p.enter(s, a) {
		p.kill(s)
	}
}

func (p *Process) kill(s sigInfo) {
	s.ip = p.cpu.Regs().RIP
	if f := p.sig.lastFault; !s.fault && f.signo == s.signo {
		// A handler that has had its say sends the signal once more to end the
		// process (faulthandler does): the fault is still the reason.
		s = f
	}
	p.end(Outcome{Kind: Killed, Signal: s.signo, Addr: s.addr, IP: s.ip, Fault: s.fault})
}

// deliver runs the handlers of pending signals that are not blocked.
func (p *Process) deliver() {
	for {
		ready := p.sig.pending &^ p.thread.Mask
		if ready == 0 || p.outcome != nil {
			return
		}
		n := syscall.Signal(bits.TrailingZeros64(ready) + 1)
		p.sig.pending &^= bit(n)
		a, s := p.sig.actions[n], p.sig.info[n]
		switch {
		case a.Handler == sigIgn || a.Handler == sigDfl && ignoredByDefault(n):
		case a.Handler == sigDfl || !p.enter(s, a):
			p.kill(s)
		}
	}
}

// enter makes the guest continue in a handler, as the kernel's setup_rt_frame
// does: return address, ucontext and siginfo on the stack.
func (p *Process) enter(s sigInfo, a Action) bool {
	p.dropAbandoned()
	if len(p.sig.frames) >= maxFrames || a.Flags&saRestorer == 0 {
		return false
	}
	f := frame{mask: p.thread.Mask}
	if p.cpu.Save(&f.context) != nil {
		return false
	}
	r := p.cpu.Regs()
	// 128 bytes below the stack pointer are the ABI's red zone.
	sp := r.RSP - 128
	onAlt := p.onAltStack(r.RSP)
	if a.Flags&saOnStack != 0 && p.sig.alt.Flags&ssDisable == 0 && p.sig.alt.Size != 0 && !onAlt {
		sp, onAlt = p.sig.alt.SP+p.sig.alt.Size, true
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
	p.sig.frames = append(p.sig.frames, f)
	p.thread.Mask |= a.Mask
	if a.Flags&saNoDefer == 0 {
		p.thread.Mask |= bit(s.signo)
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
	sp := p.cpu.Regs().RSP
	onAlt := p.onAltStack(sp)
	for n := len(p.sig.frames); n > 0; n-- {
		if f := &p.sig.frames[n-1]; f.onAlt != onAlt || f.sp >= sp {
			return
		}
		p.sig.frames = p.sig.frames[:n-1]
	}
}

func (p *Process) onAltStack(sp uint64) bool {
	return sp > p.sig.alt.SP && sp <= p.sig.alt.SP+p.sig.alt.Size
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
	for n := len(p.sig.frames); n > 0; n-- {
		f := &p.sig.frames[n-1]
		if f.sp != sp {
			continue
		}
		p.thread.Mask = f.mask
		err := p.cpu.Restore(&f.context)
		p.sig.frames = p.sig.frames[:n-1]
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
	old := p.thread.Mask
	if a[1] != 0 {
		set, ok := p.u64(a[1])
		if !ok {
			return fail(syscall.EFAULT)
		}
		set &^= unblockable
		switch a[0] {
		case 0:
			p.thread.Mask |= set
		case 1:
			p.thread.Mask &^= set
		case 2:
			p.thread.Mask = set
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
	if a[1] != 8 || !p.putU64(a[0], p.sig.pending&p.thread.Mask) {
		return fail(syscall.EFAULT)
	}
	return 0
}

func sysSigaltstack(p *Process, a *args) uint64 {
	le := binary.LittleEndian
	old := p.sig.alt
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
		p.sig.alt = n
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

// sendSignal answers kill, tkill and tgkill to the only process there is.
func (p *Process) sendSignal(n uint64, code int32) uint64 {
	switch {
	case n == 0:
		return 0
	case n >= maxSignal:
		return fail(syscall.EINVAL)
	}
	p.raise(sigInfo{signo: syscall.Signal(n), code: code})
	return 0
}

func sysKill(p *Process, a *args) uint64 {
	switch int32(a[0]) {
	case processID, 0, -1, -processID:
		return p.sendSignal(a[1], 0)
	}
	return fail(syscall.ESRCH)
}

func sysTkill(p *Process, a *args) uint64 {
	if a[0] != p.thread.ID {
		return fail(syscall.ESRCH)
	}
	return p.sendSignal(a[1], siTkill)
}

func sysTgkill(p *Process, a *args) uint64 {
	if a[0] != processID || a[1] != p.thread.ID {
		return fail(syscall.ESRCH)
	}
	return p.sendSignal(a[2], siTkill)
}
