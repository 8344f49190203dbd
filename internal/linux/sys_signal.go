package linux

import (
	"math/bits"
	"syscall"
)

// interruptedCall is what a system call returns that a signal has ended.
var interruptedCall = fail(syscall.EINTR)

// signalNumber validates a signal number of kill and its kin; zero only asks
// whether the receiver exists.
func signalNumber(n uint64) (syscall.Signal, bool) {
	return syscall.Signal(n), n < maxSignal
}

// sysKill sends a signal to the only process there is.
func sysKill(p *Process, a *args) uint64 {
	n, ok := signalNumber(a[1])
	switch int32(a[0]) {
	case processID, 0, -1, -processID:
	default:
		return fail(syscall.ESRCH)
	}
	if !ok {
		return fail(syscall.EINVAL)
	}
	if n != 0 {
		p.raise(sigInfo{signo: n})
	}
	return 0
}

func sysTkill(p *Process, a *args) uint64 { return p.tkill(a[0], a[1]) }

func sysTgkill(p *Process, a *args) uint64 {
	if a[0] != processID {
		return fail(syscall.ESRCH)
	}
	return p.tkill(a[1], a[2])
}

// tkill sends a signal to one thread.
func (p *Process) tkill(id, signal uint64) uint64 {
	t := p.find(id)
	if t == nil {
		return fail(syscall.ESRCH)
	}
	n, ok := signalNumber(signal)
	if !ok {
		return fail(syscall.EINVAL)
	}
	if n != 0 {
		p.raiseIn(t, sigInfo{signo: n, code: siTkill})
	}
	return 0
}

// sysPause waits for a signal.
func sysPause(p *Process, _ *args) uint64 { return p.block(wait{}) }

// sysRtSigsuspend waits for a signal with another mask.
func sysRtSigsuspend(p *Process, a *args) uint64 {
	if a[1] != 8 {
		return fail(syscall.EINVAL)
	}
	mask, ok := p.u64(a[0])
	if !ok {
		return fail(syscall.EFAULT)
	}
	p.suspend(p.current, mask)
	return p.block(wait{})
}

// sysRtSigtimedwait waits for a signal of a set and takes it without running
// its handler.
func sysRtSigtimedwait(p *Process, a *args) uint64 {
	if a[3] != 8 {
		return fail(syscall.EINVAL)
	}
	set, ok := p.u64(a[0])
	if !ok {
		return fail(syscall.EFAULT)
	}
	set &^= unblockable
	w := wait{expired: answers(syscall.EAGAIN)}
	if a[2] != 0 {
		ns, e := p.duration(a[2])
		if e != 0 {
			return fail(e)
		}
		w.deadline = p.after(ns)
	}
	t := p.current
	w.try = func() (uint64, bool) {
		ready := (t.queue.pending | p.sig.queue.pending) & set
		if ready == 0 {
			return 0, false
		}
		s := p.takeSignal(t, syscall.Signal(bits.TrailingZeros64(ready)+1))
		if a[1] != 0 && !p.cpu.CopyOut(a[1], s.encode()) {
			return fail(syscall.EFAULT), true
		}
		return uint64(s.signo), true
	}
	if ret, done := w.try(); done {
		return ret
	}
	return p.block(w)
}
