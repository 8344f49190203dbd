package vfs

import "syscall"

// chunkSize is the piece in which file contents are kept: holes between chunks
// cost nothing.
const chunkSize = 4096

// contents are a writable file's bytes.
type contents struct {
	fs     *FS
	size   int64
	chunks map[int64][]byte
}

func (c *contents) allocated() int64 { return int64(len(c.chunks)) * chunkSize }

func (c *contents) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	n := len(p)
	for len(p) > 0 {
		at := off % chunkSize
		k := min(len(p), int(chunkSize-at))
		if b, ok := c.chunks[off/chunkSize]; ok {
			copy(p[:k], b[at:])
		} else {
			clear(p[:k])
		}
		p, off = p[k:], off+int64(k)
	}
	return n
}

// reserve makes sure that a chunk is there.
func (c *contents) reserve(n int64) ([]byte, bool) {
	if b, ok := c.chunks[n]; ok {
		return b, true
	}
	if c.fs.bytes+chunkSize > c.fs.limits.Bytes {
		return nil, false
	}
	c.fs.bytes += chunkSize
	b := make([]byte, chunkSize)
	if c.chunks == nil {
		c.chunks = map[int64][]byte{}
	}
	c.chunks[n] = b
	return b, true
}

func (c *contents) writeAt(p []byte, off int64) (int, syscall.Errno) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	if off > maxFile-int64(len(p)) {
		return 0, syscall.EFBIG
	}
	n := 0
	for n < len(p) {
		b, ok := c.reserve(off / chunkSize)
		if !ok {
			if n == 0 {
				return 0, syscall.ENOSPC
			}
			return n, 0
		}
		k := copy(b[off%chunkSize:], p[n:])
		n, off = n+k, off+int64(k)
		c.size = max(c.size, off)
	}
	return n, 0
}

func (c *contents) truncate(size int64) {
	if size < c.size {
		for n := range c.chunks {
			if n*chunkSize >= size {
				delete(c.chunks, n)
				c.fs.bytes -= chunkSize
			}
		}
		// What lay behind the new end must not come back when it grows again.
		if b, ok := c.chunks[size/chunkSize]; ok {
			clear(b[size%chunkSize:])
		}
	}
	c.size = size
}

// ReadAt reads a file's bytes; 0 bytes means its end.
func (i *Inode) ReadAt(p []byte, off int64) (int, syscall.Errno) {
	switch {
	case i.kind == Dir:
		return 0, syscall.EISDIR
	case i.kind != File || off < 0:
		return 0, syscall.EINVAL
	}
	if !i.readOnly() {
		return i.data.readAt(p, off), 0
	}
	b, ok := i.Content()
	if !ok {
		return 0, syscall.EIO
	}
	if off >= int64(len(b)) {
		return 0, 0
	}
	return copy(p, b[off:]), 0
}

// Content gives the shared bytes of a file of the base; false for every other.
func (i *Inode) Content() ([]byte, bool) {
	if !i.readOnly() || i.kind != File {
		return nil, false
	}
	b, err := i.fs.base.Content(i.base)
	return b, err == nil
}

// WriteAt writes to a file; what does not fit the layer is not written.
func (fs *FS) WriteAt(ino *Inode, p []byte, off int64) (int, syscall.Errno) {
	if e := writable(ino); e != 0 {
		return 0, e
	}
	n, e := ino.data.writeAt(p, off)
	if n > 0 {
		ino.touch(false, true, true)
	}
	return n, e
}

// writable says why a file cannot be written to.
func writable(ino *Inode) syscall.Errno {
	switch {
	case ino.kind == Dir:
		return syscall.EISDIR
	case ino.kind != File:
		return syscall.EINVAL
	case ino.readOnly():
		return syscall.EROFS
	}
	return 0
}

// Truncate sets a file's length.
func (fs *FS) Truncate(ino *Inode, size int64) syscall.Errno {
	if e := writable(ino); e != 0 {
		return e
	}
	switch {
	case size < 0:
		return syscall.EINVAL
	case size > maxFile:
		return syscall.EFBIG
	}
	ino.data.truncate(size)
	ino.touch(false, true, true)
	return 0
}

// Allocate makes sure that [off, off+n) of a file has its memory.
func (fs *FS) Allocate(ino *Inode, off, n int64) syscall.Errno {
	if e := writable(ino); e != 0 {
		return e
	}
	if off < 0 || n <= 0 {
		return syscall.EINVAL
	}
	if off > maxFile-n {
		return syscall.EFBIG
	}
	if n > fs.limits.Bytes {
		return syscall.ENOSPC
	}
	for c := off / chunkSize; c <= (off+n-1)/chunkSize; c++ {
		if _, ok := ino.data.reserve(c); !ok {
			return syscall.ENOSPC
		}
	}
	ino.data.size = max(ino.data.size, off+n)
	ino.touch(false, true, true)
	return 0
}
