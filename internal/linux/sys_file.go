package linux

import (
	"encoding/binary"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

const (
	// maxIOV is UIO_MAXIOV (include/uapi/linux/uio.h).
	maxIOV = 1024
	// maxCount is MAX_RW_COUNT: Linux never moves more in one call.
	maxCount = 0x7ffff000
)

// iovec is one piece of guest memory.
type iovec struct{ addr, n uint64 }

// iovecs copies and validates a guest's array of struct iovec.
func (p *Process) iovecs(addr, count uint64) ([]iovec, syscall.Errno) {
	if count > maxIOV {
		return nil, syscall.EINVAL
	}
	b := make([]byte, count*16)
	if !p.cpu.CopyIn(b, addr) {
		return nil, syscall.EFAULT
	}
	out := make([]iovec, count)
	total := uint64(0)
	for i := range out {
		out[i] = iovec{binary.LittleEndian.Uint64(b[i*16:]), binary.LittleEndian.Uint64(b[i*16+8:])}
		if out[i].n > maxCount {
			return nil, syscall.EINVAL
		}
		if total += out[i].n; total > maxCount {
			return nil, syscall.EINVAL
		}
	}
	return out, 0
}

// readInto moves bytes from an open file to guest memory. off < 0 means the
// description's own position, which then moves.
func (p *Process) readInto(f *description, iov []iovec, off int64) uint64 {
	if !f.canRead() {
		return fail(syscall.EBADF)
	}
	if s, ok := f.file.(scatterFile); ok {
		n, e := s.scatter(p, iov)
		if e != 0 {
			return fail(e)
		}
		return n
	}
	pos := off
	if off < 0 {
		pos = f.pos
	}
	total := uint64(0)
	done := func(e syscall.Errno) uint64 {
		if off < 0 {
			f.pos = pos
		}
		if total == 0 && e != 0 {
			return fail(e)
		}
		return total
	}
	for _, v := range iov {
		for v.n > 0 {
			buf := p.buffer(int(min(v.n, transferSize)))
			k, e := f.read(p, buf, pos)
			if e != 0 || k == 0 {
				return done(e)
			}
			if !p.cpu.CopyOut(v.addr, buf[:k]) {
				return done(syscall.EFAULT)
			}
			pos, total = pos+int64(k), total+uint64(k)
			v.addr, v.n = v.addr+uint64(k), v.n-uint64(k)
			if k < len(buf) || p.stopping() {
				return done(0)
			}
		}
	}
	return done(0)
}

// writeFrom moves bytes from guest memory to an open file.
func (p *Process) writeFrom(f *description, iov []iovec, off int64) uint64 {
	if !f.canWrite() {
		return fail(syscall.EBADF)
	}
	pos := off
	if off < 0 {
		pos = f.pos
		if f.flags&syscall.O_APPEND != 0 && f.inode() != nil {
			pos = f.inode().Stat().Size
		}
	}
	total := uint64(0)
	done := func(e syscall.Errno) uint64 {
		if off < 0 {
			f.pos = pos
		}
		if total == 0 && e != 0 {
			return fail(e)
		}
		return total
	}
	if r, ok := f.file.(recordFile); ok {
		if n := r.record(length(iov)); n > 0 {
			b := p.buffer(n)
			if !p.gather(b, iov) {
				return fail(syscall.EFAULT)
			}
			k, e := f.write(p, b, pos)
			total = uint64(k)
			return done(e)
		}
	}
	for _, v := range iov {
		if v.n == 0 {
			// A write of nothing to a standard stream asks for its ring to be
			// drained (mailbox.go).
			if _, e := f.write(p, nil, pos); e != 0 {
				return done(e)
			}
		}
		for v.n > 0 {
			buf := p.buffer(int(min(v.n, transferSize)))
			if !p.cpu.CopyIn(buf, v.addr) {
				return done(syscall.EFAULT)
			}
			k, e := f.write(p, buf, pos)
			pos, total = pos+int64(k), total+uint64(k)
			if e != 0 || k < len(buf) || p.stopping() {
				return done(e)
			}
			v.addr, v.n = v.addr+uint64(k), v.n-uint64(k)
		}
	}
	return done(0)
}

// read reads, waiting for what there is to wait for.
func (p *Process) read(f *description, iov []iovec, off int64) uint64 {
	if s, ok := f.file.(*socket); ok {
		return p.recv(f, s, iov, 0, nil)
	}
	return p.retry(f, func() uint64 { return p.readInto(f, iov, off) })
}

// write writes, waiting for room unless the file was opened without blocking.
func (p *Process) write(f *description, iov []iovec, off int64) uint64 {
	if s, ok := f.file.(*socket); ok {
		return p.transmit(f, s, nil, iov, 0)
	}
	return p.writeAll(f, iov, off, f.flags&syscall.O_NONBLOCK != 0, false)
}

// writeAll writes. What has no place in a tree takes all of it or blocks, if it
// may. A stream without a reader gets the thread a SIGPIPE, unless that is to
// be quiet.
func (p *Process) writeAll(f *description, iov []iovec, off int64, nonblock, quiet bool) uint64 {
	t, total := p.current, uint64(0)
	attempt := func() (uint64, bool) {
		for {
			r, ok := f.file.(recordFile)
			whole := ok && r.record(length(iov)) > 0
			ret := p.writeFrom(f, iov, off)
			if errnoOf(ret) != 0 {
				if ret == fail(syscall.EPIPE) && total == 0 && !quiet {
					p.raiseIn(t, sigInfo{signo: syscall.SIGPIPE})
				}
				if total > 0 && ret != tryAgain {
					ret = total
				}
				return ret, ret != tryAgain
			}
			total += ret
			if iov = skip(iov, ret); len(iov) == 0 || ret == 0 || whole || f.inode() != nil || p.stopping() {
				return total, true
			}
		}
	}
	ret, done := attempt()
	switch {
	case done:
		return ret
	case !nonblock:
		return p.block(wait{file: f, restart: true, try: attempt, signalled: func() uint64 {
			if total > 0 {
				return total
			}
			return interruptedCall
		}})
	case total > 0:
		return total
	}
	return tryAgain
}

// skip gives what is left of iov after n bytes.
func skip(iov []iovec, n uint64) []iovec {
	for len(iov) > 0 && n >= iov[0].n {
		n -= iov[0].n
		iov = iov[1:]
	}
	if n > 0 {
		rest := append([]iovec(nil), iov...)
		rest[0] = iovec{rest[0].addr + n, rest[0].n - n}
		return rest
	}
	return iov
}

func oneIOV(addr, n uint64) []iovec { return []iovec{{addr, min(n, maxCount)}} }

func sysRead(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	return p.read(f, oneIOV(a[1], a[2]), -1)
}

func sysPread64(p *Process, a *args) uint64 {
	f, e := p.positioned(a[0], a[3])
	if e != 0 {
		return fail(e)
	}
	return p.read(f, oneIOV(a[1], a[2]), int64(a[3]))
}

func sysReadv(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	iov, e := p.iovecs(a[1], a[2])
	if e != 0 {
		return fail(e)
	}
	return p.read(f, iov, -1)
}

// sysPreadv answers preadv and preadv2; on the driver's reserved descriptors
// it is the mailbox.
func sysPreadv(p *Process, a *args) uint64 {
	iov, e := p.iovecs(a[1], a[2])
	if e != 0 {
		return fail(e)
	}
	if a[0] >= reservedFD && a[0] < reservedFD+reservedFDs {
		return p.mailboxRead(a[0], iov, int64(a[3]))
	}
	f, e := p.positioned(a[0], a[3])
	if e != 0 {
		return fail(e)
	}
	return p.read(f, iov, int64(a[3]))
}

func sysWrite(p *Process, a *args) uint64 {
	if a[0] >= reservedFD && a[0] < reservedFD+reservedFDs {
		return p.mailboxWrite(a[0], a[1], a[2])
	}
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	return p.write(f, oneIOV(a[1], a[2]), -1)
}

func sysPwrite64(p *Process, a *args) uint64 {
	f, e := p.positioned(a[0], a[3])
	if e != 0 {
		return fail(e)
	}
	return p.write(f, oneIOV(a[1], a[2]), int64(a[3]))
}

func sysWritev(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	iov, e := p.iovecs(a[1], a[2])
	if e != 0 {
		return fail(e)
	}
	return p.write(f, iov, -1)
}

func sysPwritev(p *Process, a *args) uint64 {
	f, e := p.positioned(a[0], a[3])
	if e != 0 {
		return fail(e)
	}
	iov, e := p.iovecs(a[1], a[2])
	if e != 0 {
		return fail(e)
	}
	return p.write(f, iov, int64(a[3]))
}

// positioned gives the description for a call with an explicit offset.
func (p *Process) positioned(fd, off uint64) (*description, syscall.Errno) {
	f := p.fds.get(fd)
	switch {
	case f == nil:
		return nil, syscall.EBADF
	case int64(off) < 0:
		return nil, syscall.EINVAL
	case !f.seekable():
		return nil, syscall.ESPIPE
	}
	return f, 0
}

func sysLseek(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	if !f.seekable() {
		if f.inode() != nil { // a device: positions are accepted and ignored
			return 0
		}
		return fail(syscall.ESPIPE)
	}
	size := f.inode().Stat().Size
	off := int64(a[1])
	switch a[2] {
	case 0:
	case 1:
		off += f.pos
	case 2:
		off += size
	case 3, 4: // SEEK_DATA, SEEK_HOLE: a file is all data, with a hole at its end
		if off < 0 || off >= size {
			return fail(syscall.ENXIO)
		}
		if a[2] == 4 {
			off = size
		}
	default:
		return fail(syscall.EINVAL)
	}
	if off < 0 {
		return fail(syscall.EINVAL)
	}
	f.pos = off
	if off == 0 {
		p.fds.unlist(f) // rewinddir
	}
	return uint64(off)
}

func sysFtruncate(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	ino := f.inode()
	if ino == nil || ino.Kind() != vfs.File || !f.canWrite() || int64(a[1]) < 0 {
		return fail(syscall.EINVAL)
	}
	return result(p.fs.Truncate(ino, int64(a[1])))
}

func sysFallocate(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil || !f.canWrite() {
		return fail(syscall.EBADF)
	}
	switch ino := f.inode(); {
	case ino == nil || ino.Kind() != vfs.File:
		return fail(syscall.ENODEV)
	case a[1] != 0:
		return fail(syscall.EOPNOTSUPP)
	case int64(a[2]) < 0 || int64(a[3]) <= 0:
		return fail(syscall.EINVAL)
	default:
		return result(p.fs.Allocate(ino, int64(a[2]), int64(a[3])))
	}
}

// sysSync answers fsync and its kin: there is nothing slower to write to.
func sysSync(p *Process, a *args) uint64 {
	if p.fds.get(a[0]) == nil {
		return fail(syscall.EBADF)
	}
	return 0
}

func sysGetdents64(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil || f.flags&oPath != 0 {
		return fail(syscall.EBADF)
	}
	ino := f.inode()
	if ino == nil || ino.Kind() != vfs.Dir {
		return fail(syscall.ENOTDIR)
	}
	if f.entries == nil {
		if f.pos > 0 {
			return 0 // the listing was read to its end
		}
		if !p.fds.list(f, p.fs.ReadDir(ino)) {
			return fail(syscall.ENOMEM)
		}
	}
	buf := p.buffer(int(min(a[2], transferSize)))
	n, pos := 0, f.pos
	for pos < int64(len(f.entries)) {
		d := f.entries[pos]
		size := (19 + len(d.Name) + 1 + 7) &^ 7
		if n+size > len(buf) {
			break
		}
		rec := buf[n : n+size]
		clear(rec)
		binary.LittleEndian.PutUint64(rec, d.Inode)
		binary.LittleEndian.PutUint64(rec[8:], uint64(pos+1))
		binary.LittleEndian.PutUint16(rec[16:], uint16(size))
		rec[18] = direntType(d.Kind)
		copy(rec[19:], d.Name)
		n += size
		pos++
	}
	if n == 0 && pos < int64(len(f.entries)) {
		return fail(syscall.EINVAL)
	}
	if !p.cpu.CopyOut(a[1], buf[:n]) {
		return fail(syscall.EFAULT)
	}
	if f.pos = pos; pos >= int64(len(f.entries)) {
		p.fds.unlist(f)
	}
	return uint64(n)
}

func direntType(k vfs.Kind) byte {
	switch k {
	case vfs.Dir:
		return syscall.DT_DIR
	case vfs.Symlink:
		return syscall.DT_LNK
	case vfs.Device:
		return syscall.DT_CHR
	case vfs.Socket:
		return syscall.DT_SOCK
	}
	return syscall.DT_REG
}
