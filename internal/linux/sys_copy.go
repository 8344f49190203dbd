package linux

import (
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

// sysCopyFileRange moves bytes between two files, each at an offset of its own
// or at its position.
func sysCopyFileRange(p *Process, a *args) uint64 {
	in, out := p.fds.get(a[0]), p.fds.get(a[2])
	switch {
	case in == nil || out == nil || !in.canRead() || !out.canWrite() || out.flags&syscall.O_APPEND != 0:
		return fail(syscall.EBADF)
	case a[5] != 0 || !regular(in) || !regular(out):
		return fail(syscall.EINVAL)
	}
	from, e := p.offsetOf(in, a[1])
	if e != 0 {
		return fail(e)
	}
	to, e := p.offsetOf(out, a[3])
	if e != 0 {
		return fail(e)
	}
	left := min(a[4], maxCount)
	if in.inode() == out.inode() && from < to+int64(left) && to < from+int64(left) {
		return fail(syscall.EINVAL)
	}
	total := uint64(0)
	buf := p.buffer(transferSize)
	for left > 0 && e == 0 && (total == 0 || !p.stopping()) {
		k := 0
		if k, e = in.read(p, buf[:min(left, transferSize)], from); k == 0 || e != 0 {
			break
		}
		k, e = out.write(p, buf[:k], to)
		from, to = from+int64(k), to+int64(k)
		total, left = total+uint64(k), left-uint64(k)
	}
	if total == 0 && e != 0 {
		return fail(e)
	}
	if !p.setOffset(in, a[1], from) || !p.setOffset(out, a[3], to) {
		return fail(syscall.EFAULT)
	}
	return total
}

func regular(f *description) bool { return f.inode() != nil && f.inode().Kind() == vfs.File }

// offsetOf gives the offset at addr, or a file's position when addr is zero.
func (p *Process) offsetOf(f *description, addr uint64) (int64, syscall.Errno) {
	if addr == 0 {
		return f.pos, 0
	}
	v, ok := p.u64(addr)
	if !ok {
		return 0, syscall.EFAULT
	}
	if v > 1<<62 {
		return 0, syscall.EINVAL
	}
	return int64(v), 0
}

// setOffset is the counterpart of offsetOf.
func (p *Process) setOffset(f *description, addr uint64, off int64) bool {
	if addr == 0 {
		f.pos = off
		return true
	}
	return p.putU64(addr, uint64(off))
}

// sysSendfile moves bytes between two descriptors, as shutil.copyfile asks.
func sysSendfile(p *Process, a *args) uint64 {
	out, in := p.fds.get(a[0]), p.fds.get(a[1])
	if out == nil || in == nil {
		return fail(syscall.EBADF)
	}
	ret := p.retry(out, func() uint64 { return p.sendfile(out, in, a) })
	if t := p.current; t.waiting {
		in.refs++
		t.wait.source = in
	}
	return ret
}

func (p *Process) sendfile(out, in *description, a *args) uint64 {
	if !in.canRead() || !out.canWrite() {
		return fail(syscall.EBADF)
	}
	if !in.seekable() || out.flags&syscall.O_APPEND != 0 {
		return fail(syscall.EINVAL)
	}
	pos := in.pos
	if a[2] != 0 {
		v, ok := p.u64(a[2])
		if !ok {
			return fail(syscall.EFAULT)
		}
		if int64(v) < 0 {
			return fail(syscall.EINVAL)
		}
		pos = int64(v)
	}
	total := uint64(0)
	buf := p.buffer(transferSize)
	for left := min(a[3], maxCount); left > 0; {
		k, e := in.read(p, buf[:min(left, transferSize)], pos)
		if e == 0 && k > 0 {
			k, e = out.write(p, buf[:k], out.pos)
		}
		if e != 0 && total == 0 {
			return fail(e)
		}
		if e != 0 || k == 0 {
			break
		}
		if p.stopping() {
			left = uint64(k)
		}
		pos, out.pos = pos+int64(k), out.pos+int64(k)
		total, left = total+uint64(k), left-uint64(k)
	}
	if a[2] == 0 {
		in.pos = pos
	} else if !p.putU64(a[2], uint64(pos)) {
		return fail(syscall.EFAULT)
	}
	return total
}
