package linux

import (
	"encoding/binary"
	"syscall"
)

// The flags of timerfd_settime.
const (
	timerFileAbstime = 1
	timerFileCancel  = 2
)

// timerFile is a timer that can be waited for.
type timerFile struct {
	node
	// at is when it expires next, in monotonic nanoseconds, never if it does not
	// run; interval is how long after that it does again, zero for not at all.
	at, interval uint64
	// count is how often it has expired since it was last read.
	count uint64
	// realtime says that times are told by the wall clock, watched that an epoll
	// may wait for the next time it expires whether it is read or not.
	realtime, watched bool
}

// expire counts what has happened until now.
func (f *timerFile) expire(p *Process) {
	now := p.now()
	if now < f.at {
		return
	}
	n := uint64(1)
	if f.interval > 0 {
		n += (now - f.at) / f.interval
		f.at += n * f.interval
	} else {
		f.at = never
		delete(p.fds.channels.timers, f)
	}
	f.count += n
	f.ins++
}

func (f *timerFile) read(p *Process, b []byte, _ int64) (int, syscall.Errno) {
	f.expire(p)
	switch {
	case len(b) < counterSize:
		return 0, syscall.EINVAL
	case f.count == 0:
		return 0, syscall.EAGAIN
	}
	binary.LittleEndian.PutUint64(b, f.count)
	f.count = 0
	return counterSize, 0
}

func (f *timerFile) write(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EINVAL }

func (f *timerFile) poll(p *Process) uint16 {
	f.expire(p)
	if f.count > 0 {
		return pollReadable
	}
	return 0
}

func (f *timerFile) release(p *Process) { delete(p.fds.channels.timers, f) }

// nextTimer is when a timer expires next: one that has expired can be seen
// without waiting, unless it is the edge that somebody waits for.
func (p *Process) nextTimer() uint64 {
	at := uint64(never)
	for f := range p.fds.channels.timers {
		switch f.expire(p); {
		case f.count == 0:
			at = min(at, f.at)
		case f.watched && f.at != never:
			at = min(at, max(f.at, p.now()+uint64(minTick)))
		}
	}
	return at
}

func sysTimerfdCreate(p *Process, a *args) uint64 {
	if a[1]&^(syscall.O_NONBLOCK|syscall.O_CLOEXEC) != 0 {
		return fail(syscall.EINVAL)
	}
	switch a[0] {
	case clockRealtime, clockMonotonic, clockBoottime:
	default:
		return fail(syscall.EINVAL)
	}
	f := &timerFile{node: p.newNode(0o600), at: never, realtime: a[0] == clockRealtime}
	return p.put1(&description{file: f, flags: syscall.O_RDWR | int(a[1])&syscall.O_NONBLOCK}, a[1]&syscall.O_CLOEXEC != 0)
}

// timerArg gives the timer of a descriptor.
func (p *Process) timerArg(fd uint64) (*timerFile, syscall.Errno) {
	d := p.fds.get(fd)
	if d == nil {
		return nil, syscall.EBADF
	}
	f, ok := d.file.(*timerFile)
	if !ok {
		return nil, syscall.EINVAL
	}
	return f, 0
}

// setting gives struct itimerspec: the interval and what is left.
func (f *timerFile) setting(p *Process) []byte {
	f.expire(p)
	left := uint64(0)
	if f.at != never {
		left = max(f.at-min(f.at, p.now()), 1)
	}
	return append(timespec(f.interval), timespec(left)...)
}

func sysTimerfdSettime(p *Process, a *args) uint64 {
	if a[1]&^(timerFileAbstime|timerFileCancel) != 0 {
		return fail(syscall.EINVAL)
	}
	interval, e := p.duration(a[2])
	if e != 0 {
		return fail(e)
	}
	value, e := p.duration(a[2] + 16)
	if e != 0 {
		return fail(e)
	}
	f, e := p.timerArg(a[0])
	if e != 0 {
		return fail(e)
	}
	if a[3] != 0 && !p.cpu.CopyOut(a[3], f.setting(p)) {
		return fail(syscall.EFAULT)
	}
	f.at, f.interval, f.count = never, interval, 0
	delete(p.fds.channels.timers, f)
	if value == 0 {
		return 0
	}
	mono, real := p.cpu.Clock()
	if a[1]&timerFileAbstime != 0 {
		now := mono
		if f.realtime {
			now = real
		}
		value -= min(value, now)
	}
	f.at = mono + min(value, maxSleep-min(mono, maxSleep))
	if p.fds.channels.timers == nil {
		p.fds.channels.timers = map[*timerFile]struct{}{}
	}
	p.fds.channels.timers[f] = struct{}{}
	p.rearm = true
	return 0
}

func sysTimerfdGettime(p *Process, a *args) uint64 {
	f, e := p.timerArg(a[0])
	if e != 0 {
		return fail(e)
	}
	return p.putBytes(a[1], f.setting(p))
}

// The flags of memfd_create; files cannot be sealed.
const (
	memfdCloexec = 1
	memfdSealing = 2
	// memfdName is the longest name, which shows nowhere.
	memfdName = 249
)

// sysMemfdCreate makes a file without a name in /tmp's file system.
func sysMemfdCreate(p *Process, a *args) uint64 {
	switch _, e := p.cstring(a[0], memfdName+1); {
	case e == syscall.ENAMETOOLONG || a[1]&^(memfdCloexec|memfdSealing) != 0:
		return fail(syscall.EINVAL)
	case e != 0:
		return fail(e)
	case p.fds.used >= maxDescriptors:
		return fail(syscall.EMFILE)
	}
	ino, e := p.fs.Open(p.fs.Root(), "/tmp", oTmpfile|syscall.O_RDWR|syscall.O_EXCL, 0o700)
	if e != 0 {
		return fail(e)
	}
	p.fs.Ref(ino)
	return p.put1(&description{file: treeFile{ino}, flags: syscall.O_RDWR}, a[1]&memfdCloexec != 0)
}

// oTmpfile is O_TMPFILE with its O_DIRECTORY.
const oTmpfile = 0x400000 | syscall.O_DIRECTORY
