package linux

import (
	"encoding/binary"
	"math"
	"syscall"
	"time"
)

// Clock identifiers (include/uapi/linux/time.h).
const (
	clockRealtime       = 0
	clockMonotonic      = 1
	clockProcessCPU     = 2
	clockThreadCPU      = 3
	clockMonotonicRaw   = 4
	clockRealtimeCoarse = 5
	clockMonoCoarse     = 6
	clockBoottime       = 7
	timerAbstime        = 1
	// maxSleep bounds a sleep so that no arithmetic overflows: 290 years.
	maxSleep = math.MaxInt64
)

// readClock gives a clock in nanoseconds. CPU time is the time that passed
// since the process started less the time it slept: the guest has one CPU of
// its own.
func (p *Process) readClock(id uint64) (uint64, bool) {
	mono, real := p.cpu.Clock()
	switch id {
	case clockRealtime, clockRealtimeCoarse:
		return real, true
	case clockMonotonic, clockMonotonicRaw, clockMonoCoarse, clockBoottime:
		return mono, true
	case clockProcessCPU, clockThreadCPU:
		return mono - min(mono, p.slept), true
	}
	return 0, false
}

func timespec(ns uint64) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, ns/1e9)
	binary.LittleEndian.PutUint64(b[8:], ns%1e9)
	return b
}

// duration copies a struct timespec; it must not be negative.
func (p *Process) duration(addr uint64) (uint64, syscall.Errno) {
	var b [16]byte
	if !p.cpu.CopyIn(b[:], addr) {
		return 0, syscall.EFAULT
	}
	sec, nsec := int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))
	if sec < 0 || nsec < 0 || nsec >= 1e9 {
		return 0, syscall.EINVAL
	}
	if sec > maxSleep/1_000_000_000-1 {
		return maxSleep, 0
	}
	return uint64(sec)*1e9 + uint64(nsec), 0
}

func sysClockGettime(p *Process, a *args) uint64 {
	ns, ok := p.readClock(a[0])
	if !ok {
		return fail(syscall.EINVAL)
	}
	return p.putBytes(a[1], timespec(ns))
}

func sysClockGetres(p *Process, a *args) uint64 {
	if _, ok := p.readClock(a[0]); !ok {
		return fail(syscall.EINVAL)
	}
	if a[1] == 0 {
		return 0
	}
	return p.putBytes(a[1], timespec(1))
}

// sysClockSettime refuses: the clock is the host's.
func sysClockSettime(*Process, *args) uint64 { return fail(syscall.EPERM) }

func sysGettimeofday(p *Process, a *args) uint64 {
	if a[0] == 0 {
		return 0
	}
	_, real := p.cpu.Clock()
	b := timespec(real)
	binary.LittleEndian.PutUint64(b[8:], real%1e9/1e3)
	return p.putBytes(a[0], b)
}

func sysTime(p *Process, a *args) uint64 {
	_, real := p.cpu.Clock()
	if a[0] != 0 && !p.putU64(a[0], real/1e9) {
		return fail(syscall.EFAULT)
	}
	return real / 1e9
}

// pause sleeps for ns nanoseconds and reports what is left when a signal cut
// it short.
func (p *Process) pause(ns uint64) (left uint64) {
	before, _ := p.cpu.Clock()
	done := p.sleep(time.Duration(min(ns, maxSleep)))
	after, _ := p.cpu.Clock()
	p.slept += after - before
	if done {
		return 0
	}
	return max(ns-min(ns, after-before), 1)
}

func sysNanosleep(p *Process, a *args) uint64 {
	ns, e := p.duration(a[0])
	if e != 0 {
		return fail(e)
	}
	return p.nanosleep(ns, a[1])
}

func (p *Process) nanosleep(ns, rem uint64) uint64 {
	left := p.pause(ns)
	if left == 0 {
		return 0
	}
	if rem != 0 && !p.cpu.CopyOut(rem, timespec(left)) {
		return fail(syscall.EFAULT)
	}
	return fail(syscall.EINTR)
}

func sysClockNanosleep(p *Process, a *args) uint64 {
	ns, e := p.duration(a[2])
	if e != 0 {
		return fail(e)
	}
	now, ok := p.readClock(a[0])
	if !ok || a[0] == clockThreadCPU {
		return fail(syscall.EINVAL)
	}
	if a[1]&timerAbstime == 0 {
		return p.nanosleep(ns, a[3])
	}
	return p.nanosleep(ns-min(ns, now), 0)
}

// pollFD is struct pollfd.
const pollFDSize = 8

const (
	pollIn   = 0x1
	pollOut  = 0x4
	pollNval = 0x20
)

// pollNow answers poll for files, which are always ready; a descriptor that is
// not open says so.
func (p *Process) pollNow(addr, n uint64) (uint64, syscall.Errno) {
	if n > maxDescriptors {
		return 0, syscall.EINVAL
	}
	b := make([]byte, n*pollFDSize)
	if !p.cpu.CopyIn(b, addr) {
		return 0, syscall.EFAULT
	}
	ready := uint64(0)
	for ; len(b) > 0; b = b[pollFDSize:] {
		fd := int32(binary.LittleEndian.Uint32(b))
		want := binary.LittleEndian.Uint16(b[4:])
		got := uint16(0)
		switch {
		case fd < 0:
		case p.fds.get(uint64(fd)) == nil:
			got = pollNval
		default:
			got = want & (pollIn | pollOut)
		}
		if !p.cpu.CopyOut(addr+6, binary.LittleEndian.AppendUint16(nil, got)) {
			return 0, syscall.EFAULT
		}
		if got != 0 {
			ready++
		}
		addr += pollFDSize
	}
	return ready, 0
}

func sysPoll(p *Process, a *args) uint64 {
	wait := uint64(maxSleep)
	if ms := int32(a[2]); ms >= 0 {
		wait = uint64(ms) * 1e6
	}
	return p.poll(a[0], a[1], wait)
}

func sysPpoll(p *Process, a *args) uint64 {
	wait := uint64(maxSleep)
	if a[2] != 0 {
		var e syscall.Errno
		if wait, e = p.duration(a[2]); e != 0 {
			return fail(e)
		}
	}
	return p.poll(a[0], a[1], wait)
}

func (p *Process) poll(addr, n, wait uint64) uint64 {
	ready, e := p.pollNow(addr, n)
	if e != 0 {
		return fail(e)
	}
	if ready > 0 || wait == 0 {
		return ready
	}
	if p.pause(wait) != 0 {
		return fail(syscall.EINTR)
	}
	return 0
}

// sysPselect6 is what select of glibc 2.34 and newer calls.
func sysPselect6(p *Process, a *args) uint64 {
	if a[0] != 0 {
		return fail(syscall.ENOSYS)
	}
	wait := uint64(maxSleep)
	if a[4] != 0 {
		var e syscall.Errno
		if wait, e = p.duration(a[4]); e != 0 {
			return fail(e)
		}
	}
	if p.pause(wait) != 0 {
		return fail(syscall.EINTR)
	}
	return 0
}

// sysSelect sleeps, which is what time.sleep of CPython 3.10 and older asks
// of it; waiting for descriptors is not offered.
func sysSelect(p *Process, a *args) uint64 {
	if a[0] != 0 {
		return fail(syscall.ENOSYS)
	}
	wait := uint64(maxSleep)
	if a[4] != 0 {
		var b [16]byte
		if !p.cpu.CopyIn(b[:], a[4]) {
			return fail(syscall.EFAULT)
		}
		sec, usec := binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
		if sec > maxSleep/1_000_000_000-2 || usec >= 1e6 {
			return fail(syscall.EINVAL)
		}
		wait = sec*1e9 + usec*1e3
	}
	if p.pause(wait) != 0 {
		return fail(syscall.EINTR)
	}
	return 0
}
