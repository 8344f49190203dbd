package linux

import "syscall"

func sysClose(p *Process, a *args) uint64 {
	if !p.closeFD(a[0]) {
		return fail(syscall.EBADF)
	}
	return 0
}

func sysCloseRange(p *Process, a *args) uint64 {
	lo, hi := a[0], a[1]
	if lo > hi {
		return fail(syscall.EINVAL)
	}
	for fd := lo; fd <= hi && fd < uint64(len(p.fds.table)); fd++ {
		if a[2]&4 != 0 { // CLOSE_RANGE_CLOEXEC
			p.fds.table[fd].cloexec = true
			continue
		}
		p.closeFD(fd)
	}
	return 0
}

func sysDup(p *Process, a *args) uint64 { return p.dup(a[0], 0, false) }

func (p *Process) dup(fd uint64, lo int, cloexec bool) uint64 {
	f := p.fds.get(fd)
	if f == nil {
		return fail(syscall.EBADF)
	}
	n, e := p.fds.add(f, lo, cloexec)
	if e != 0 {
		return fail(e)
	}
	return uint64(n)
}

func sysDup2(p *Process, a *args) uint64 {
	if a[0] == a[1] && p.fds.get(a[0]) != nil {
		return a[1]
	}
	return p.dupTo(a[0], a[1], false)
}

func sysDup3(p *Process, a *args) uint64 {
	if a[0] == a[1] || a[2]&^syscall.O_CLOEXEC != 0 {
		return fail(syscall.EINVAL)
	}
	return p.dupTo(a[0], a[1], a[2] != 0)
}

func (p *Process) dupTo(from, to uint64, cloexec bool) uint64 {
	f := p.fds.get(from)
	if f == nil || to >= maxDescriptors {
		return fail(syscall.EBADF)
	}
	p.closeFD(to)
	return p.dup(from, int(to), cloexec)
}

const (
	fDupFD        = 0
	fGetFD        = 1
	fSetFD        = 2
	fGetFL        = 3
	fSetFL        = 4
	fGetLK        = 5
	fSetLK        = 6
	fSetLKW       = 7
	fOFDGetLK     = 36
	fOFDSetLK     = 37
	fOFDSetLKW    = 38
	fDupFDCloexec = 1030
	fSetPipeSize  = 1031
	fGetPipeSize  = 1032
	fUnlck        = 2
)

func sysFcntl(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	switch a[1] {
	case fDupFD, fDupFDCloexec:
		if a[2] >= maxDescriptors {
			return fail(syscall.EINVAL)
		}
		return p.dup(a[0], int(a[2]), a[1] == fDupFDCloexec)
	case fGetFD:
		if p.fds.table[a[0]].cloexec {
			return 1
		}
		return 0
	case fSetFD:
		p.fds.table[a[0]].cloexec = a[2]&1 != 0
		return 0
	case fGetFL:
		return uint64(f.flags)
	case fSetFL:
		const settable = syscall.O_APPEND | syscall.O_NONBLOCK
		f.flags = f.flags&^settable | int(a[2])&settable
		return 0
	case fSetLK, fSetLKW, fOFDSetLK, fOFDSetLKW:
		return 0 // the only process there is always gets its lock
	case fGetLK, fOFDGetLK:
		if !p.cpu.CopyOut(a[2], []byte{fUnlck, 0}) {
			return fail(syscall.EFAULT)
		}
		return 0
	case fSetPipeSize, fGetPipeSize:
		e, ok := f.file.(*pipeEnd)
		switch {
		case !ok:
			return fail(syscall.EBADF)
		case a[1] == fGetPipeSize:
			return uint64(e.size)
		}
		return e.resize(uint64(uint32(a[2])))
	}
	return fail(syscall.EINVAL)
}

func sysIoctl(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	switch a[1] {
	case 0x5451, 0x5450: // FIOCLEX, FIONCLEX
		p.fds.table[a[0]].cloexec = a[1] == 0x5451
		return 0
	case ioNonblock:
		return p.ioctlNonblock(f, a[2])
	case ioUnread:
		return p.ioctlUnread(f, a[2])
	}
	return fail(syscall.ENOTTY)
}
