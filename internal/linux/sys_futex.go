package linux

import (
	"encoding/binary"
	"math"
	"slices"
	"syscall"
)

// Futex operations (include/uapi/linux/futex.h).
const (
	futexWait       = 0
	futexWake       = 1
	futexRequeue    = 3
	futexCmpRequeue = 4
	futexWakeOp     = 5
	futexWaitBitset = 9
	futexWakeBitset = 10
	futexCmdMask    = 0x7f
	futexRealtime   = 256
)

// sysFutex waits for a word of guest memory to change, or wakes who waits. The
// operations on mutexes with priority inheritance are missing, as on a kernel
// that was built without them.
func sysFutex(p *Process, a *args) uint64 {
	addr, op, val := a[0], a[1]&futexCmdMask, uint32(a[2])
	if addr%4 != 0 {
		return fail(syscall.EINVAL)
	}
	switch op {
	case futexWait:
		return p.waitFutex(a, math.MaxUint32)
	case futexWaitBitset:
		return p.waitFutex(a, uint32(a[5]))
	case futexWake:
		return p.wakeFutex(addr, val, math.MaxUint32)
	case futexWakeBitset:
		if uint32(a[5]) == 0 {
			return fail(syscall.EINVAL)
		}
		return p.wakeFutex(addr, val, uint32(a[5]))
	case futexRequeue, futexCmpRequeue:
		return p.requeueFutex(a, op == futexCmpRequeue)
	case futexWakeOp:
		return p.wakeOpFutex(a)
	}
	return fail(syscall.ENOSYS)
}

func (p *Process) u32(addr uint64) (uint32, bool) {
	var b [4]byte
	ok := p.cpu.CopyIn(b[:], addr)
	return binary.LittleEndian.Uint32(b[:]), ok
}

func (p *Process) waitFutex(a *args, bitset uint32) uint64 {
	if bitset == 0 {
		return fail(syscall.EINVAL)
	}
	w := wait{futex: a[0], bitset: uint64(bitset), expired: answers(syscall.ETIMEDOUT), restart: a[3] == 0}
	if a[3] != 0 {
		ns, e := p.duration(a[3])
		if e != 0 {
			return fail(e)
		}
		if a[1]&futexCmdMask == futexWaitBitset { // an absolute time
			clock := uint64(clockMonotonic)
			if a[1]&futexRealtime != 0 {
				clock = clockRealtime
			}
			now, _ := p.readClock(clock)
			ns -= min(ns, now)
		}
		w.deadline = p.after(ns)
	}
	v, ok := p.u32(a[0])
	if !ok {
		return fail(syscall.EFAULT)
	}
	if v != uint32(a[2]) {
		return fail(syscall.EAGAIN)
	}
	return p.block(w)
}

// waiters gives the threads that wait at a futex, longest first, but the
// favourite before all others: it would go to the end of a queue again and again
// where others compute, for CPython gives each wait for the interpreter lock 5 ms.
func (p *Process) waiters(addr uint64, bitset uint32) []*thread {
	var out []*thread
	for _, t := range p.threads {
		if t.waiting && t.wait.futex == addr && addr != 0 && uint32(t.wait.bitset)&bitset != 0 && !t.wait.woken {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *thread) int {
		if a == p.favourite || b != p.favourite && a.wait.turn < b.wait.turn {
			return -1
		}
		return 1
	})
	return out
}

// wakeFutex wakes at most n waiters and gives how many.
func (p *Process) wakeFutex(addr uint64, n, bitset uint32) uint64 {
	woken := uint64(0)
	for _, t := range p.waiters(addr, bitset) {
		if woken >= uint64(n) {
			break
		}
		t.wait.woken = true
		woken++
	}
	if woken > 0 {
		p.rearm = true
	}
	return woken
}

// requeueFutex wakes some waiters and makes others wait at another futex.
func (p *Process) requeueFutex(a *args, compare bool) uint64 {
	wake, move, to := int32(a[2]), int32(a[3]), a[4]
	if wake < 0 || move < 0 || to%4 != 0 {
		return fail(syscall.EINVAL)
	}
	v, ok := p.u32(a[0])
	if _, ok2 := p.u32(to); !ok || !ok2 {
		return fail(syscall.EFAULT)
	}
	if compare && v != uint32(a[5]) {
		return fail(syscall.EAGAIN)
	}
	n := p.wakeFutex(a[0], uint32(wake), math.MaxUint32)
	for _, t := range p.waiters(a[0], math.MaxUint32) {
		if move == 0 {
			break
		}
		t.wait.futex = to
		move--
		n++
	}
	return n
}

// wakeOpFutex changes a word, wakes waiters at another one, and, if the word
// was of a kind, waiters at it (man 2 futex, FUTEX_WAKE_OP).
func (p *Process) wakeOpFutex(a *args) uint64 {
	addr2, code := a[4], uint32(a[5])
	if addr2%4 != 0 {
		return fail(syscall.EINVAL)
	}
	old, ok := p.u32(addr2)
	if !ok {
		return fail(syscall.EFAULT)
	}
	signed := func(v uint32) int32 { return int32(v<<20) >> 20 }
	arg, cmp := uint32(signed(code>>12)), signed(code)
	if code>>28&8 != 0 {
		arg = 1 << (arg & 31)
	}
	v := arg
	switch code >> 28 & 7 {
	case 0:
	case 1:
		v = old + arg
	case 2:
		v = old | arg
	case 3:
		v = old &^ arg
	case 4:
		v = old ^ arg
	default:
		return fail(syscall.ENOSYS)
	}
	var and bool
	switch o := int32(old); code >> 24 & 15 {
	case 0:
		and = o == cmp
	case 1:
		and = o != cmp
	case 2:
		and = o < cmp
	case 3:
		and = o <= cmp
	case 4:
		and = o > cmp
	case 5:
		and = o >= cmp
	default:
		return fail(syscall.ENOSYS)
	}
	if !p.cpu.CopyOut(addr2, binary.LittleEndian.AppendUint32(nil, v)) {
		return fail(syscall.EFAULT)
	}
	n := p.wakeFutex(a[0], uint32(a[2]), math.MaxUint32)
	if and {
		n += p.wakeFutex(addr2, uint32(a[3]), math.MaxUint32)
	}
	return n
}
