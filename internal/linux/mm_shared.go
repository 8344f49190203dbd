package linux

import (
	"bytes"
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// maxShared bounds the shared mappings of files.
const maxShared = 1024

// sharedMapping is a part of a file that the guest has mapped shared. Files
// live outside guest memory, so the two are kept equal where somebody could see
// a difference: a read of the file takes what the mapping holds first, a write
// to the file goes to the mapping too, and what unmaps writes back. Two
// mappings of one place see each other's changes at msync, munmap and reads.
type sharedMapping struct {
	lo, hi uint64
	ino    *vfs.Inode
	off    uint64
	// writable: changes go back to the file.
	writable bool
}

// share notes that [lo,hi) shows a file from off on.
func (p *Process) share(lo, hi uint64, f *description, off uint64) syscall.Errno {
	ino := f.inode()
	if _, fixed := ino.Content(); fixed {
		return 0 // nobody can change it
	}
	if len(p.mem.shared) >= maxShared {
		return syscall.ENOMEM
	}
	m := sharedMapping{lo: lo, hi: hi, ino: ino, off: off, writable: f.canWrite()}
	if m.writable {
		// Whatever will be written back has its place from now on.
		if n := m.length(); n > 0 {
			if e := p.fs.Allocate(ino, int64(off), n); e != 0 {
				return syscall.ENOMEM
			}
		}
	}
	p.fs.Ref(ino)
	p.mem.shared = append(p.mem.shared, m)
	return 0
}

// length is how much of the mapping the file reaches into.
func (m *sharedMapping) length() int64 {
	size := m.ino.Stat().Size
	return max(min(int64(m.hi-m.lo), size-int64(min(m.off, 1<<62))), 0)
}

// overlap gives the part of a mapping that shows [off,off+n) of its file.
func (m *sharedMapping) overlap(off, n int64) (lo, hi uint64) {
	first := max(off, int64(m.off))
	last := min(off+n, int64(m.off)+m.length())
	if off+n < off || first >= last {
		return 0, 0
	}
	return m.lo + uint64(first) - m.off, m.lo + uint64(last) - m.off
}

// writeBack puts what the guest changed in [lo,hi) of a mapping into its file.
func (p *Process) writeBack(m *sharedMapping, lo, hi uint64) {
	if !m.writable {
		return
	}
	hi = min(hi, m.lo+uint64(m.length()))
	var now, was [4096]byte
	for lo < hi && !p.stopping() {
		n := min(hi-lo, uint64(len(now)))
		at := int64(m.off + lo - m.lo)
		if p.cpu.CopyIn(now[:n], lo) {
			k, _ := m.ino.ReadAt(was[:n], at)
			if k != int(n) || !bytes.Equal(now[:n], was[:n]) {
				// There is room: share saw to it.
				_, _ = p.fs.WriteAt(m.ino, now[:n], at)
			}
		}
		lo += n
	}
}

// settle makes [off,off+n) of a file what its mappings hold.
func (p *Process) settle(ino *vfs.Inode, off, n int64) {
	for i := range p.mem.shared {
		if m := &p.mem.shared[i]; m.ino == ino {
			if lo, hi := m.overlap(off, n); lo < hi {
				p.writeBack(m, lo, hi)
			}
		}
	}
}

// show makes mappings what b, just written to a file at off, is.
func (p *Process) show(ino *vfs.Inode, b []byte, off int64) {
	for i := range p.mem.shared {
		if m := &p.mem.shared[i]; m.ino == ino {
			if lo, hi := m.overlap(off, int64(len(b))); lo < hi {
				from := int64(m.off+lo-m.lo) - off
				p.cpu.CopyOut(lo, b[from:from+int64(hi-lo)])
			}
		}
	}
}

// splitsTooMany reports whether the end of [lo,hi) would leave more mappings
// than there may be: two where one was.
func (p *Process) splitsTooMany(lo, hi uint64) bool {
	return len(p.mem.shared) >= maxShared &&
		slices.ContainsFunc(p.mem.shared, func(m sharedMapping) bool { return m.lo < lo && lo < hi && hi < m.hi })
}

// unshare ends what shared mappings there are in [lo,hi).
func (p *Process) unshare(lo, hi uint64) {
	for i := 0; i < len(p.mem.shared); {
		m := p.mem.shared[i]
		if m.hi <= lo || m.lo >= hi {
			i++
			continue
		}
		p.writeBack(&m, max(lo, m.lo), min(hi, m.hi))
		p.mem.shared = slices.Delete(p.mem.shared, i, i+1)
		if m.lo < lo {
			left := m
			left.hi = lo
			p.fs.Ref(m.ino)
			p.mem.shared = slices.Insert(p.mem.shared, i, left)
			i++
		}
		if m.hi > hi {
			right := m
			right.lo, right.off = hi, m.off+hi-m.lo
			p.fs.Ref(m.ino)
			p.mem.shared = slices.Insert(p.mem.shared, i, right)
			i++
		}
		p.fs.Unref(m.ino)
	}
}

// resizeShared moves a shared mapping that begins at old, if there is one there,
// to where mremap has put it, and fills what it grew by from its file.
func (p *Process) resizeShared(old, oldLen, at, newLen uint64) syscall.Errno {
	for i := range p.mem.shared {
		m := &p.mem.shared[i]
		if m.lo != old || m.hi != old+oldLen {
			continue
		}
		grown := *m
		grown.lo, grown.hi = at, at+newLen
		if grown.writable && grown.length() > 0 {
			if e := p.fs.Allocate(m.ino, int64(m.off), grown.length()); e != 0 {
				return syscall.ENOMEM
			}
		}
		// Before the new part counts as the file's: it is still empty.
		if e := p.copyFile(at+oldLen, newLen-oldLen, m.ino, m.off+oldLen); e != 0 {
			return e
		}
		*m = grown
		return 0
	}
	return 0
}

// isShared reports whether any of [lo,hi) is a shared mapping.
func (p *Process) isShared(lo, hi uint64) bool {
	return slices.ContainsFunc(p.mem.shared, func(m sharedMapping) bool { return m.lo < hi && m.hi > lo })
}

// sysMsync writes shared mappings back.
func sysMsync(p *Process, a *args) uint64 {
	lo, hi := a[0], a[0]+lengthOf(a[1])
	if lo%platform.PageSize != 0 || hi < lo {
		return fail(syscall.EINVAL)
	}
	for i := range p.mem.shared {
		if m := &p.mem.shared[i]; m.lo < hi && m.hi > lo {
			p.writeBack(m, max(lo, m.lo), min(hi, m.hi))
		}
	}
	return 0
}
