package linux

import (
	"encoding/binary"
	"syscall"
)

// ringAlarm sends SIGALRM when its time has come.
func (p *Process) ringAlarm(now uint64) {
	a := &p.alarm
	if now < a.at {
		return
	}
	p.rearm = true
	if a.interval == 0 {
		a.at = never
	} else {
		// Rings that were missed are one. A process that sleeps must not keep the
		// host busy with rings that nobody hears.
		a.at = max(now+a.interval-(now-a.at)%a.interval, now+uint64(minTick))
	}
	p.raise(sigInfo{signo: syscall.SIGALRM, code: siKernel})
}

// left gives the time until the alarm rings, zero when it does not.
func (p *Process) left() uint64 {
	if p.alarm.at == never {
		return 0
	}
	now := p.now()
	return max(p.alarm.at-min(p.alarm.at, now), 1)
}

func (p *Process) setAlarm(ns, interval uint64) {
	p.alarm = alarm{at: never, interval: interval}
	if ns > 0 {
		p.alarm.at = p.after(ns)
	}
	p.rearm = true
}

func sysAlarm(p *Process, a *args) uint64 {
	left := (p.left() + 1e9 - 1) / 1e9
	p.setAlarm(uint64(uint32(a[0]))*1e9, 0)
	return left
}

const (
	itimerReal  = 0
	itimerCount = 3
)

// timeval decodes a struct timeval in nanoseconds.
func timeval(b []byte) (uint64, bool) {
	sec, usec := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if sec > maxSleep/1_000_000_000-2 || usec >= 1e6 {
		return 0, false
	}
	return sec*1e9 + usec*1e3, true
}

func (p *Process) putTimer(addr uint64) uint64 {
	b := make([]byte, 32)
	left := p.left()
	for i, ns := range []uint64{p.alarm.interval, left} {
		us := (ns + 999) / 1e3
		binary.LittleEndian.PutUint64(b[i*16:], us/1e6)
		binary.LittleEndian.PutUint64(b[i*16+8:], us%1e6)
	}
	return p.putBytes(addr, b)
}

func sysGetitimer(p *Process, a *args) uint64 {
	switch {
	case a[0] >= itimerCount:
		return fail(syscall.EINVAL)
	case a[0] != itimerReal:
		return p.putBytes(a[1], make([]byte, 32))
	}
	return p.putTimer(a[1])
}

// sysSetitimer offers the real-time timer only: nothing is told when the guest
// has used a certain processor time.
func sysSetitimer(p *Process, a *args) uint64 {
	if a[0] != itimerReal {
		return fail(syscall.EINVAL)
	}
	var b [32]byte
	if a[1] != 0 && !p.cpu.CopyIn(b[:], a[1]) {
		return fail(syscall.EFAULT)
	}
	interval, ok := timeval(b[:])
	value, ok2 := timeval(b[16:])
	if !ok || !ok2 {
		return fail(syscall.EINVAL)
	}
	if a[2] != 0 {
		if ret := p.putTimer(a[2]); ret != 0 {
			return ret
		}
	}
	p.setAlarm(value, interval)
	return 0
}
