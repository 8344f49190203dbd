package linux

import (
	"encoding/binary"
	"io"
	"math"
	"syscall"
)

func answer(v uint64) handler { return func(*Process, *args) uint64 { return v } }

func refuse(e syscall.Errno) handler { return func(*Process, *args) uint64 { return fail(e) } }

func sysExitGroup(p *Process, a *args) uint64 {
	p.end(Outcome{Kind: Exited, Status: int64(a[0] & 0xff)})
	return 0
}

func sysGetrandom(p *Process, a *args) uint64 {
	const allFlags = 7
	if a[2]&^allFlags != 0 {
		return fail(syscall.EINVAL)
	}
	total := uint64(0)
	for left := min(a[1], math.MaxInt32); left > 0; {
		buf := p.buffer(int(min(left, transferSize)))
		if _, err := io.ReadFull(p.random, buf); err != nil {
			return fail(syscall.EIO)
		}
		if !p.cpu.CopyOut(a[0]+total, buf) {
			if total > 0 {
				break
			}
			return fail(syscall.EFAULT)
		}
		if p.stopping() {
			left = uint64(len(buf))
		}
		total, left = total+uint64(len(buf)), left-uint64(len(buf))
	}
	return total
}

// sysUname describes a made-up machine: nothing of the host shows.
func sysUname(p *Process, a *args) uint64 {
	const field = 65
	b := make([]byte, 6*field)
	for i, s := range []string{"Linux", "sandbox", "6.1.0-sandbox", "#1 SMP", "x86_64", "(none)"} {
		copy(b[i*field:], s)
	}
	return p.putBytes(a[0], b)
}

func sysSysinfo(p *Process, a *args) uint64 {
	mono, _ := p.cpu.Clock()
	free := uint64(0)
	for _, r := range p.mem.free {
		free += r.Hi - r.Lo
	}
	b := make([]byte, 112)
	le := binary.LittleEndian
	le.PutUint64(b, mono/1e9)
	le.PutUint64(b[32:], p.mem.end-p.layout.Heap.Lo+brkWindow)
	le.PutUint64(b[40:], free)
	le.PutUint16(b[80:], 1)
	le.PutUint32(b[104:], 1)
	return p.putBytes(a[0], b)
}

// known reports whether a process or thread id of a call is one of ours; zero
// means the caller.
func (p *Process) known(id uint64) bool {
	id = uint64(uint32(id))
	return id == 0 || id == processID || p.find(id) != nil
}

func sysSchedGetscheduler(p *Process, a *args) uint64 {
	if a[0] == parentID {
		return fail(syscall.EPERM)
	}
	if !p.known(a[0]) {
		return fail(syscall.ESRCH)
	}
	return schedOther
}

// sysSchedGetparam tells the only priority that the ordinary policy has.
func sysSchedGetparam(p *Process, a *args) uint64 {
	if !p.known(a[0]) {
		return fail(syscall.ESRCH)
	}
	return p.putBytes(a[1], make([]byte, 4))
}

// sysSchedSetparam and sysSchedSetscheduler agree to what holds already.
func sysSchedSetparam(p *Process, a *args) uint64 {
	return p.setScheduler(a[0], schedOther, a[1])
}

func sysSchedSetscheduler(p *Process, a *args) uint64 {
	return p.setScheduler(a[0], a[1], a[2])
}

func (p *Process) setScheduler(id, policy, param uint64) uint64 {
	priority, ok := p.u32(param)
	switch {
	case !p.known(id):
		return fail(syscall.ESRCH)
	case !ok:
		return fail(syscall.EFAULT)
	case policy == schedFIFO || policy == schedRR:
		return fail(syscall.EPERM)
	case policy > schedIdle || priority != 0:
		return fail(syscall.EINVAL)
	}
	return 0
}

// sysSchedRRGetInterval tells the time slice.
func sysSchedRRGetInterval(p *Process, a *args) uint64 {
	if !p.known(a[0]) {
		return fail(syscall.ESRCH)
	}
	return p.putBytes(a[1], timespec(uint64(timeSlice)))
}

func sysSchedGetaffinity(p *Process, a *args) uint64 {
	if !p.known(a[0]) {
		return fail(syscall.ESRCH)
	}
	if a[1] < 8 {
		return fail(syscall.EINVAL)
	}
	if !p.putU64(a[2], 1) {
		return fail(syscall.EFAULT)
	}
	return 8
}

// sysSchedSetaffinity agrees to the one processor there is.
func sysSchedSetaffinity(p *Process, a *args) uint64 {
	if !p.known(a[0]) {
		return fail(syscall.ESRCH)
	}
	var mask [1]byte
	if a[1] == 0 {
		return fail(syscall.EINVAL)
	}
	if !p.cpu.CopyIn(mask[:], a[2]) {
		return fail(syscall.EFAULT)
	}
	if mask[0]&1 == 0 {
		return fail(syscall.EINVAL)
	}
	return 0
}

// The scheduling policies (include/uapi/linux/sched.h).
const (
	schedOther = 0
	schedFIFO  = 1
	schedRR    = 2
	schedBatch = 3
	schedIdle  = 5
)

// sysSchedPriorityMax and sysSchedPriorityMin tell the priorities of a policy.
func sysSchedPriorityMax(_ *Process, a *args) uint64 { return schedPriority(a[0], 99) }
func sysSchedPriorityMin(_ *Process, a *args) uint64 { return schedPriority(a[0], 1) }

func schedPriority(policy, realtime uint64) uint64 {
	switch policy {
	case schedFIFO, schedRR:
		return realtime
	case schedOther, schedBatch, schedIdle:
		return 0
	}
	return fail(syscall.EINVAL)
}

// sysSetresuid answers setresuid and setresgid: nothing may change.
func sysSetresuid(_ *Process, a *args) uint64 {
	for _, id := range a[:3] {
		if id := uint32(id); id != userID && id != math.MaxUint32 {
			return fail(syscall.EPERM)
		}
	}
	return 0
}

func sysGetcpu(p *Process, a *args) uint64 {
	for _, addr := range a[:2] {
		if addr != 0 && !p.cpu.CopyOut(addr, make([]byte, 4)) {
			return fail(syscall.EFAULT)
		}
	}
	return 0
}

const (
	archSetGS = 0x1001
	archSetFS = 0x1002
	archGetFS = 0x1003
)

func sysArchPrctl(p *Process, a *args) uint64 {
	switch a[0] {
	case archSetFS:
		if !p.cpu.SetFSBase(a[1]) {
			return fail(syscall.EPERM)
		}
		return 0
	case archGetFS:
		c := &p.current.context
		if p.cpu.Save(c) != nil {
			return fail(syscall.EIO)
		}
		if !p.putU64(a[1], c.FSBase) {
			return fail(syscall.EFAULT)
		}
		return 0
	}
	return fail(syscall.EINVAL)
}

const (
	prSetName  = 15
	prGetName  = 16
	rlimitCPU  = 0
	rlimStack  = 3
	rlimCore   = 4
	rlimNproc  = 6
	rlimNofile = 7
	rlimAS     = 9
	rlimCount  = 16
)

func sysPrctl(p *Process, a *args) uint64 {
	switch a[0] {
	case prSetName:
		name, e := p.cstring(a[1], len(p.current.name))
		if e == syscall.EFAULT {
			return fail(e)
		}
		if e != 0 { // longer names are cut
			var b [len(p.current.name)]byte
			p.cpu.CopyIn(b[:], a[1])
			name = string(b[:])
		}
		p.current.name = [16]byte{}
		copy(p.current.name[:len(p.current.name)-1], name)
		return 0
	case prGetName:
		return p.putBytes(a[1], p.current.name[:])
	}
	return fail(syscall.EINVAL)
}

// rlimit is a resource limit: soft and hard.
type rlimit struct{ soft, hard uint64 }

// defaultLimits are the limits of a new process.
func defaultLimits() (l [rlimCount]rlimit) {
	for i := range l {
		l[i] = rlimit{math.MaxUint64, math.MaxUint64}
	}
	l[rlimStack] = rlimit{stackSize, stackSize}
	l[rlimNofile] = rlimit{maxDescriptors, maxDescriptors}
	l[rlimCore], l[rlimNproc] = rlimit{}, rlimit{}
	return l
}

func sysGetrlimit(p *Process, a *args) uint64 { return p.prlimit(a[0], 0, a[1]) }
func sysSetrlimit(p *Process, a *args) uint64 { return p.prlimit(a[0], a[1], 0) }
func sysPrlimit64(p *Process, a *args) uint64 {
	if pid := int32(a[0]); pid != 0 && pid != processID {
		return fail(syscall.ESRCH)
	}
	return p.prlimit(a[1], a[2], a[3])
}

// prlimit tells and lowers the limits. What holds in the guest is fixed from
// outside; the number of descriptors and the break are what a lowered limit
// would change, and a program that lowers them bounds itself only, so no more is
// made of it than that it reads back.
func (p *Process) prlimit(which, set, get uint64) uint64 {
	if which >= rlimCount {
		return fail(syscall.EINVAL)
	}
	old := p.limits[which]
	if set != 0 {
		var b [16]byte
		if !p.cpu.CopyIn(b[:], set) {
			return fail(syscall.EFAULT)
		}
		n := rlimit{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
		switch {
		case n.soft > n.hard:
			return fail(syscall.EINVAL)
		case n.hard > old.hard:
			return fail(syscall.EPERM)
		}
		p.limits[which] = n
	}
	if get != 0 {
		b := binary.LittleEndian.AppendUint64(nil, old.soft)
		if !p.cpu.CopyOut(get, binary.LittleEndian.AppendUint64(b, old.hard)) {
			return fail(syscall.EFAULT)
		}
	}
	return 0
}

// sysGetpriority answers as Linux does: 20 less the nice value.
func sysGetpriority(p *Process, a *args) uint64 {
	if a[0] > 2 {
		return fail(syscall.EINVAL)
	}
	return uint64(20 - p.nice)
}

// sysSetpriority lowers the priority; there is nobody to compete with.
func sysSetpriority(p *Process, a *args) uint64 {
	if a[0] > 2 {
		return fail(syscall.EINVAL)
	}
	n := min(int64(int32(a[2])), 19)
	if n < p.nice {
		return fail(syscall.EACCES)
	}
	p.nice = n
	return 0
}

// sysGetrusage tells CPU time only.
func sysGetrusage(p *Process, a *args) uint64 {
	ns, _ := p.readClock(clockProcessCPU)
	b := make([]byte, 144)
	binary.LittleEndian.PutUint64(b, ns/1e9)
	binary.LittleEndian.PutUint64(b[8:], ns%1e9/1e3)
	return p.putBytes(a[1], b)
}

func sysTimes(p *Process, a *args) uint64 {
	const tick = 1e9 / 100
	ns, _ := p.readClock(clockProcessCPU)
	mono, _ := p.cpu.Clock()
	b := make([]byte, 32)
	binary.LittleEndian.PutUint64(b, ns/tick)
	if a[0] != 0 && !p.cpu.CopyOut(a[0], b) {
		return fail(syscall.EFAULT)
	}
	return mono / tick
}

// sysGetresuid answers getresuid and getresgid.
func sysGetresuid(p *Process, a *args) uint64 {
	for _, addr := range a[:3] {
		if !p.cpu.CopyOut(addr, binary.LittleEndian.AppendUint32(nil, userID)) {
			return fail(syscall.EFAULT)
		}
	}
	return 0
}

// u64 copies one word.
func (p *Process) u64(addr uint64) (uint64, bool) {
	var b [8]byte
	ok := p.cpu.CopyIn(b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), ok
}

func (p *Process) putU64(addr, v uint64) bool {
	return p.cpu.CopyOut(addr, binary.LittleEndian.AppendUint64(nil, v))
}
