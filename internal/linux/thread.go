package linux

import (
	"encoding/binary"
	"math"
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

const (
	// maxThreads bounds the guest's threads: each costs the host a saved
	// context of some 5 KiB. One more is refused with EAGAIN, of which CPython
	// makes RuntimeError.
	maxThreads = 256
	// userEnd is the first address that is not a user's (47 bits, x86-64 with
	// 4-level paging).
	userEnd = 1 << 47
	// never is the deadline of a wait without one.
	never = math.MaxUint64
)

// thread is one of the guest's threads. There is one processor: at most one
// thread runs, the current one.
type thread struct {
	id uint64
	// context is only meaningful while the thread is not the current one.
	context  platform.Context
	mask     uint64
	clearTID uint64
	name     [16]byte
	// alt, frames and lastFault are of its signal handlers, queue holds the
	// signals that are pending for it alone.
	alt       AltStack
	frames    []frame
	lastFault sigInfo
	queue     signalQueue
	// suspended is the mask to go back to after a call that waited with
	// another one.
	suspended *uint64

	// waiting says that a system call of the thread has not returned yet and
	// that wait says when it will.
	waiting bool
	wait    wait
	// call is the number of the system call that waits.
	call uint64
	// exited: the thread is no longer one of the process's.
	exited bool
	// used is the processor time it has had until it was last switched away
	// from, in nanoseconds.
	used uint64
}

// wait says what ends a system call that blocks, and with which result. Exactly
// one of several things does: an attempt that succeeds, a signal, the deadline.
type wait struct {
	// try, if set, makes another attempt at what the call is to do. It may be
	// called while another thread is the current one.
	try func() (ret uint64, done bool)
	// deadline is the monotonic time in nanoseconds at which the call gives up;
	// zero means never. expired gives its result then; nil means zero.
	deadline uint64
	expired  func() uint64
	// signalled gives the result when a signal ends the wait; nil means EINTR.
	signalled func() uint64
	// host: the host ends the wait, from outside.
	host bool
	// restart: a handler with SA_RESTART makes the call begin anew, unless the
	// result would be another one than EINTR: a part of the work has been done.
	restart bool
	// file, if set, stays open while the call waits, whoever closes its
	// descriptors; so does source.
	file, source *description
	// futex, if not zero, is the address that a waker has to name, bitset one
	// bit of which it has to, and turn the order in which waiters came.
	futex, bitset, turn uint64
	woken               bool
}

// answers gives e as the result of a wait.
func answers(e syscall.Errno) func() uint64 { return func() uint64 { return fail(e) } }

// block makes the system call under way wait. Its handler returns what block
// does; what the call returns is decided by w.
func (p *Process) block(w wait) uint64 {
	if w.deadline == 0 {
		w.deadline = never
	}
	if w.file != nil {
		w.file.refs++
	}
	t := p.current
	p.turns++
	w.turn = p.turns
	t.wait, t.waiting = w, true
	return 0
}

// tryAgain is what a system call returns that would have to wait.
const tryAgain = ^uint64(syscall.EAGAIN) + 1

// retry makes attempts until one answers anything but EAGAIN; a file that was
// opened without blocking gets one only.
func (p *Process) retry(f *description, attempt func() uint64) uint64 {
	ret := attempt()
	if ret != tryAgain || f.flags&syscall.O_NONBLOCK != 0 {
		return ret
	}
	return p.block(wait{file: f, restart: true, try: func() (uint64, bool) {
		ret := attempt()
		return ret, ret != tryAgain
	}})
}

// resume ends a thread's wait: its system call returns ret.
func (p *Process) resume(t *thread, ret uint64) {
	p.registers(t).RAX = ret
	p.endWait(t)
}

// restart ends a thread's wait: its system call begins anew.
func (p *Process) restart(t *thread) {
	const syscallSize = 2 // the SYSCALL instruction, 0F 05
	r := p.registers(t)
	r.RAX = t.call
	r.RIP -= syscallSize
	p.endWait(t)
}

func (p *Process) endWait(t *thread) {
	files := [...]*description{t.wait.file, t.wait.source}
	t.wait, t.waiting = wait{}, false
	for _, f := range files {
		if f != nil {
			p.unref(f)
		}
	}
}

// registers gives a thread's registers, to be read and changed in place.
func (p *Process) registers(t *thread) *platform.Regs {
	if t == p.current {
		return p.cpu.Regs()
	}
	return &t.context.Regs
}

// find gives the thread with an id, nil when there is none.
func (p *Process) find(id uint64) *thread {
	for _, t := range p.threads {
		if t.id == id {
			return t
		}
	}
	return nil
}

// The flags of clone (include/uapi/linux/sched.h).
const (
	cloneVM           = 0x100
	cloneFS           = 0x200
	cloneFiles        = 0x400
	cloneSighand      = 0x800
	cloneThread       = 0x10000
	cloneSysVSem      = 0x40000
	cloneSetTLS       = 0x80000
	cloneParentSetTID = 0x100000
	cloneChildClear   = 0x200000
	cloneDetached     = 0x400000
	cloneChildSetTID  = 0x1000000

	cloneShared  = cloneVM | cloneFS | cloneFiles | cloneSighand | cloneThread
	cloneAllowed = cloneShared | cloneSysVSem | cloneSetTLS | cloneParentSetTID | cloneChildClear | cloneDetached | cloneChildSetTID
)

// sysClone makes a thread. A process cannot be had: ENOSYS makes CPython raise
// OSError "Function not implemented" from fork.
func sysClone(p *Process, a *args) uint64 {
	const exitSignal = 0xff
	return p.clone(a[0]&^exitSignal, a[1], a[2], a[3], a[4])
}

// sysClone3 does the same with its arguments in memory
// (include/uapi/linux/sched.h, struct clone_args).
func sysClone3(p *Process, a *args) uint64 {
	const (
		minSize = 64
		maxSize = 4096
	)
	if a[1] < minSize {
		return fail(syscall.EINVAL)
	}
	if a[1] > maxSize {
		return fail(syscall.E2BIG)
	}
	b := make([]byte, a[1])
	if !p.cpu.CopyIn(b, a[0]) {
		return fail(syscall.EFAULT)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }
	for _, c := range b[minSize:] {
		if c != 0 { // set_tid and cgroup are not for threads
			return fail(syscall.EINVAL)
		}
	}
	stack := word(5)
	if stack != 0 {
		stack += word(6)
	}
	return p.clone(word(0), stack, word(3), word(2), word(7))
}

func (p *Process) clone(flags, stack, parentTID, childTID, tls uint64) uint64 {
	switch {
	case flags&cloneThread == 0:
		return fail(syscall.ENOSYS)
	case flags&cloneShared != cloneShared || flags&^cloneAllowed != 0:
		return fail(syscall.EINVAL)
	case flags&cloneSetTLS != 0 && tls >= userEnd:
		return fail(syscall.EPERM)
	case len(p.threads) >= maxThreads:
		return fail(syscall.EAGAIN)
	}
	t := &thread{id: p.lastID + 1, mask: p.current.mask, name: p.current.name}
	if err := p.cpu.Save(&t.context); err != nil {
		p.failure = err
		return 0
	}
	id := binary.LittleEndian.AppendUint32(nil, uint32(t.id))
	if flags&cloneParentSetTID != 0 && !p.cpu.CopyOut(parentTID, id) ||
		flags&cloneChildSetTID != 0 && !p.cpu.CopyOut(childTID, id) {
		return fail(syscall.EFAULT)
	}
	if flags&cloneChildClear != 0 {
		t.clearTID = childTID
	}
	if flags&cloneSetTLS != 0 {
		t.context.FSBase = tls
	}
	if stack != 0 {
		t.context.Regs.RSP = stack
	}
	t.context.Regs.RAX = 0
	p.lastID = t.id
	p.threads = append(p.threads, t)
	p.rearm = true
	return t.id
}

// sysExit ends a thread; with the last one, the process.
func sysExit(p *Process, a *args) uint64 {
	t := p.current
	if len(p.threads) == 1 {
		return sysExitGroup(p, a)
	}
	for i, o := range p.threads {
		if o == t {
			p.threads = slices.Delete(p.threads, i, i+1)
			// Whoever came after it is next.
			p.next = i
			break
		}
	}
	p.frames -= len(t.frames)
	t.exited = true
	if t.clearTID != 0 && p.cpu.CopyOut(t.clearTID, make([]byte, 4)) {
		p.wakeFutex(t.clearTID, 1, math.MaxUint32)
	}
	return 0
}

func sysGettid(p *Process, _ *args) uint64 { return p.current.id }

func sysSetTidAddress(p *Process, a *args) uint64 {
	p.current.clearTID = a[0]
	return p.current.id
}

// sysSchedYield lets the others go first.
func sysSchedYield(p *Process, _ *args) uint64 {
	p.yield = true
	return 0
}
