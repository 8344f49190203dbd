package linux

import (
	"encoding/binary"
	"syscall"
)

// The events of poll (include/uapi/asm-generic/poll.h).
const (
	pollIn    = 0x1
	pollPri   = 0x2
	pollOut   = 0x4
	pollErr   = 0x8
	pollHup   = 0x10
	pollNval  = 0x20
	pollRdHup = 0x2000
	// pollAlways are told whether they were asked for or not.
	pollAlways = pollErr | pollHup
)

// pollFDSize is the size of struct pollfd.
const pollFDSize = 8

// pollNow fills in what holds of an array of struct pollfd and counts the
// descriptors with an event. A stop ends it: a descriptor may be an epoll that
// has thousands of others to look at.
func (p *Process) pollNow(addr, n uint64) uint64 {
	all := p.buffer(int(n * pollFDSize))
	if !p.cpu.CopyIn(all, addr) {
		return fail(syscall.EFAULT)
	}
	ready := uint64(0)
	for b := all; len(b) > 0; b = b[pollFDSize:] {
		if p.stopping() {
			return interruptedCall
		}
		fd := int32(binary.LittleEndian.Uint32(b))
		want := binary.LittleEndian.Uint16(b[4:])
		got := uint16(0)
		if fd >= 0 {
			if f := p.fds.get(uint64(fd)); f == nil {
				got = pollNval
			} else {
				got = f.poll(p) & (want | pollAlways)
			}
		}
		binary.LittleEndian.PutUint16(b[6:], got)
		if got != 0 {
			ready++
		}
	}
	// The other threads stand still, so what is not an answer is as it was.
	if !p.cpu.CopyOut(addr, all) {
		return fail(syscall.EFAULT)
	}
	return ready
}

// waitReady makes attempts until one gives more than zero, at most for ns
// nanoseconds. mask, if not nil, is the signal mask for that time; expired, if
// not nil, is called when the time is over. file, if not nil, stays open.
func (p *Process) waitReady(attempt func() uint64, ns uint64, mask *uint64, expired func() uint64, file *description) uint64 {
	ret := attempt()
	if ret == 0 && ns == 0 && expired != nil {
		return expired()
	}
	if ret != 0 || ns == 0 {
		return ret
	}
	if mask != nil {
		p.suspend(p.current, *mask)
	}
	w := wait{expired: expired, file: file, try: func() (uint64, bool) {
		ret := attempt()
		return ret, ret != 0
	}}
	if ns != never {
		w.deadline = p.after(ns)
	}
	return p.block(w)
}

// waitMask copies the signal mask of a call that waits; none is given as nil.
func (p *Process) waitMask(addr, size uint64) (*uint64, syscall.Errno) {
	if addr == 0 {
		return nil, 0
	}
	if size != 8 {
		return nil, syscall.EINVAL
	}
	mask, ok := p.u64(addr)
	if !ok {
		return nil, syscall.EFAULT
	}
	return &mask, 0
}

// timeout copies a struct timespec that may be missing: never.
func (p *Process) timeout(addr uint64) (uint64, syscall.Errno) {
	if addr == 0 {
		return never, 0
	}
	return p.duration(addr)
}

func milliseconds(v uint64) uint64 {
	if ms := int32(v); ms >= 0 {
		return uint64(ms) * 1e6
	}
	return never
}

func sysPoll(p *Process, a *args) uint64 { return p.poll(a[0], a[1], milliseconds(a[2]), nil) }

func sysPpoll(p *Process, a *args) uint64 {
	wait, e := p.timeout(a[2])
	if e != 0 {
		return fail(e)
	}
	mask, e := p.waitMask(a[3], a[4])
	if e != 0 {
		return fail(e)
	}
	return p.poll(a[0], a[1], wait, mask)
}

func (p *Process) poll(addr, n, wait uint64, mask *uint64) uint64 {
	if n > maxDescriptors {
		return fail(syscall.EINVAL)
	}
	return p.waitReady(func() uint64 { return p.pollNow(addr, n) }, wait, mask, nil, nil)
}

// sysPselect6 is what select of glibc 2.34 and newer calls.
func sysPselect6(p *Process, a *args) uint64 {
	wait, e := p.timeout(a[4])
	if e != 0 {
		return fail(e)
	}
	var mask *uint64
	if a[5] != 0 {
		addr, ok := p.u64(a[5])
		size, ok2 := p.u64(a[5] + 8)
		if !ok || !ok2 {
			return fail(syscall.EFAULT)
		}
		if mask, e = p.waitMask(addr, size); e != 0 {
			return fail(e)
		}
	}
	return p.selectFiles(a, wait, mask)
}

func sysSelect(p *Process, a *args) uint64 {
	wait := uint64(never)
	if a[4] != 0 {
		var b [16]byte
		if !p.cpu.CopyIn(b[:], a[4]) {
			return fail(syscall.EFAULT)
		}
		ns, ok := timeval(b[:])
		if !ok {
			return fail(syscall.EINVAL)
		}
		wait = ns
	}
	return p.selectFiles(a, wait, nil)
}

// selectEvents are the events that the three sets of select stand for
// (fs/select.c).
var selectEvents = [3]uint16{pollIn | pollHup | pollErr, pollOut | pollErr, pollPri}

// selectFiles waits for descriptors of three bit sets.
func (p *Process) selectFiles(a *args, wait uint64, mask *uint64) uint64 {
	n := int32(a[0])
	if n < 0 {
		return fail(syscall.EINVAL)
	}
	n = min(n, maxDescriptors)
	size := (int(n) + 63) / 64 * 8
	var sets [3][]byte
	for i, addr := range a[1:4] {
		if addr == 0 {
			continue
		}
		sets[i] = make([]byte, size)
		if !p.cpu.CopyIn(sets[i], addr) {
			return fail(syscall.EFAULT)
		}
	}
	// Sets are written only when the call is over.
	tell := func(got [3][]byte) bool {
		for i, addr := range a[1:4] {
			if addr != 0 && !p.cpu.CopyOut(addr, got[i]) {
				return false
			}
		}
		return true
	}
	attempt := func() uint64 {
		var got [3][]byte
		ready := uint64(0)
		for i, set := range sets {
			got[i] = make([]byte, len(set))
			for fd := range len(set) * 8 {
				if set[fd/8]>>(fd%8)&1 == 0 || fd >= int(n) {
					continue
				}
				f := p.fds.get(uint64(fd))
				if f == nil {
					return fail(syscall.EBADF)
				}
				if p.stopping() {
					return interruptedCall
				}
				if f.poll(p)&selectEvents[i] != 0 {
					got[i][fd/8] |= 1 << (fd % 8)
					ready++
				}
			}
		}
		if ready > 0 && !tell(got) {
			return fail(syscall.EFAULT)
		}
		return ready
	}
	return p.waitReady(attempt, wait, mask, func() uint64 {
		if !tell([3][]byte{make([]byte, size), make([]byte, size), make([]byte, size)}) {
			return fail(syscall.EFAULT)
		}
		return 0
	}, nil)
}
