package linux

import (
	"encoding/binary"
	"math"
	"syscall"
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

// The parts of a CPU clock's number, which is negative: the complement of a
// process's or thread's ID, and what of it counts (Linux,
// include/linux/posix-timers_types.h).
const (
	cpuClockThread = 4
	cpuClockWhich  = 3
	cpuClockSched  = 2
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
	case clockProcessCPU:
		return mono - min(mono, p.slept), true
	case clockThreadCPU:
		return p.usedBy(p.current, mono), true
	}
	n := int32(id)
	if n >= 0 || n&cpuClockWhich > cpuClockSched {
		return 0, false
	}
	owner := uint64(uint32(^(n >> 3)))
	if n&cpuClockThread == 0 {
		return mono - min(mono, p.slept), owner == 0 || owner == processID
	}
	t := p.current
	if owner != 0 {
		t = p.find(owner)
	}
	if t == nil {
		return 0, false
	}
	return p.usedBy(t, mono), true
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

func sysNanosleep(p *Process, a *args) uint64 {
	ns, e := p.duration(a[0])
	if e != 0 {
		return fail(e)
	}
	return p.nanosleep(ns, a[1])
}

// nanosleep waits until its time is over; what a signal leaves of it is told.
func (p *Process) nanosleep(ns, rem uint64) uint64 {
	until := p.after(ns)
	return p.block(wait{deadline: until, signalled: func() uint64 {
		left := until - min(until, p.now())
		if rem != 0 && !p.cpu.CopyOut(rem, timespec(left)) {
			return fail(syscall.EFAULT)
		}
		return interruptedCall
	}})
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
