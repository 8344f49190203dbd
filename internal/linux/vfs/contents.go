//go:build linux

package vfs

import "syscall"

// ReadAt reads a file's bytes from off on. 0 bytes mean the end of the file.
func (ino *Inode) ReadAt(p []byte, off int64) (int, syscall.Errno) {
	switch {
	case ino.kind == Dir:
		return 0, syscall.EISDIR
	case ino.kind != File || off < 0:
		return 0, syscall.EINVAL
	case !ino.layer:
		b, ok := ino.Content()
		if !ok {
			return 0, syscall.EIO
		}
		return copy(p, b[min(off, int64(len(b))):]), 0
	case off >= ino.size:
		return 0, 0
	}
	p = p[:min(int64(len(p)), ino.size-off)]
	ino.data.readAt(p, off)
	return len(p), 0
}

// Content gives the bytes of a file of the base, shared by all guests and
// never to be written to; false for every other inode, and for a file that the
// base cannot read.
func (ino *Inode) Content() ([]byte, bool) {
	if ino.layer || ino.kind != File {
		return nil, false
	}
	b, err := ino.fs.base.Content(ino.path)
	return b, err == nil
}

// writable says why a file cannot be written to.
func (ino *Inode) writable() syscall.Errno {
	switch {
	case ino.kind == Dir:
		return syscall.EISDIR
	case ino.kind != File:
		return syscall.EINVAL
	case !ino.layer:
		return syscall.EROFS
	case ino.freed:
		// Nobody may hold it, and nobody would give its pages back.
		return syscall.ESTALE
	}
	return 0
}

// WriteAt writes p to a file from off on. It writes less than all of p when
// the layer's room or the largest file's end comes first, and fails with
// ENOSPC or EFBIG when not even one byte can be written.
func (fs *FS) WriteAt(ino *Inode, p []byte, off int64) (int, syscall.Errno) {
	e := ino.writable()
	switch {
	case e != 0:
		return 0, e
	case off < 0:
		return 0, syscall.EINVAL
	case len(p) == 0:
		return 0, 0
	case off >= maxFile:
		return 0, syscall.EFBIG
	}
	p = p[:min(int64(len(p)), maxFile-off)]
	n := 0
	for n < len(p) {
		page := ino.need(off / pageSize)
		if page == nil {
			break
		}
		k := copy(page[off%pageSize:], p[n:])
		n, off = n+k, off+int64(k)
		ino.size = max(ino.size, off)
	}
	if n == 0 {
		return 0, syscall.ENOSPC
	}
	ino.modified()
	return n, 0
}

// Truncate sets a file's length. What it gains is a hole.
func (fs *FS) Truncate(ino *Inode, size int64) syscall.Errno {
	e := ino.writable()
	switch {
	case e != 0:
		return e
	case size < 0:
		return syscall.EINVAL
	case size > maxFile:
		return syscall.EFBIG
	}
	ino.resize(size)
	ino.modified()
	return 0
}

// Allocate makes sure that n bytes of a file from off on have their memory,
// all or nothing, and that the file reaches that far: fallocate without flags.
func (fs *FS) Allocate(ino *Inode, off, n int64) syscall.Errno {
	e := ino.writable()
	switch {
	case e != 0:
		return e
	case off < 0 || n <= 0:
		return syscall.EINVAL
	case n > maxFile || off > maxFile-n:
		return syscall.EFBIG
	}
	first, end := off/pageSize, pagesIn(off+n)
	if end-first > pagesIn(fs.limits.Bytes) {
		return syscall.ENOSPC
	}
	missing := int64(0)
	for i := first; i < end; i++ {
		if ino.data[i] == nil {
			missing++
		}
	}
	if missing*pageSize > fs.limits.Bytes-fs.bytes {
		return syscall.ENOSPC
	}
	for i := first; i < end; i++ {
		ino.need(i)
	}
	ino.size = max(ino.size, off+n)
	ino.modified()
	return 0
}
