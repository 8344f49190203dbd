package vfs

import "syscall"

const (
	// chunkSize is the unit in which a file takes memory, in bytes.
	chunkSize = 4096
	// maxFileSize bounds the offsets in a file (1 TiB); holes cost nothing, so
	// this is far more than fits.
	maxFileSize = 1 << 40
)

// contents are the bytes of a file of the layer. Chunks that are not there are
// holes and read as zero. Bytes past size in the last chunk are zero.
type contents struct {
	size   int64
	chunks map[int64]*[chunkSize]byte
}

// allocated gives the bytes the chunks take.
func (c *contents) allocated() int64 { return int64(len(c.chunks)) * chunkSize }

func (c *contents) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for n := 0; n < len(p); {
		at := off + int64(n)
		in := at % chunkSize
		part := p[n:min(len(p), n+int(chunkSize-in))]
		if chunk := c.chunks[at/chunkSize]; chunk != nil {
			copy(part, chunk[in:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(p)
}

// chunk gives chunk i for writing, nil when there is no room for it.
func (fs *FS) chunk(c *contents, i int64) *[chunkSize]byte {
	if chunk := c.chunks[i]; chunk != nil {
		return chunk
	}
	if !fs.takeBytes(chunkSize) {
		return nil
	}
	if c.chunks == nil {
		c.chunks = make(map[int64]*[chunkSize]byte)
	}
	chunk := new([chunkSize]byte)
	c.chunks[i] = chunk
	return chunk
}

// resize sets the size, dropping what lies past it.
func (fs *FS) resize(c *contents, size int64) {
	if size < c.size {
		before := c.allocated()
		first := (size + chunkSize - 1) / chunkSize
		end := (c.size + chunkSize - 1) / chunkSize
		if end-first < int64(len(c.chunks)) {
			for i := first; i < end; i++ {
				delete(c.chunks, i)
			}
		} else {
			for i := range c.chunks {
				if i >= first {
					delete(c.chunks, i)
				}
			}
		}
		fs.bytes -= before - c.allocated()
		if chunk := c.chunks[size/chunkSize]; chunk != nil {
			clear(chunk[size%chunkSize:])
		}
	}
	c.size = size
}

// ReadAt reads the bytes of a file at an offset: fewer than asked for only at
// the end of the file, none past it. It fails with EISDIR or EINVAL for what
// is not a file, and with EIO when the base cannot give its bytes.
func (ino *Inode) ReadAt(p []byte, off int64) (int, syscall.Errno) {
	switch {
	case ino.kind == Dir:
		return 0, syscall.EISDIR
	case ino.kind != File || off < 0:
		return 0, syscall.EINVAL
	case !ino.base:
		return ino.data.readAt(p, off), 0
	}
	b, ok := ino.Content()
	switch {
	case !ok:
		return 0, syscall.EIO
	case off >= int64(len(b)):
		return 0, 0
	}
	return copy(p, b[off:]), 0
}

// Content gives the shared bytes of a file of the base, which must not be
// written to; false for everything else and when the base cannot give them.
func (ino *Inode) Content() ([]byte, bool) {
	if !ino.base || ino.kind != File {
		return nil, false
	}
	if !ino.loaded {
		b, err := ino.fs.base.Content(ino.path)
		if err != nil {
			return nil, false
		}
		ino.shared, ino.loaded = b, true
	}
	return ino.shared, true
}

// writable says whether the bytes of an inode can be changed at all.
func (ino *Inode) writable() syscall.Errno {
	switch {
	case ino.kind == Dir:
		return syscall.EISDIR
	case ino.kind != File:
		return syscall.EINVAL
	case ino.base:
		return syscall.EROFS
	}
	return 0
}

// WriteAt writes bytes to a file at an offset. It writes fewer than asked for
// when the layer is full or the offset passes 1 TiB, and fails with ENOSPC or
// EFBIG when nothing can be written. EROFS is for files of the base. It does
// not look at the mode: that was done when the file was opened.
func (fs *FS) WriteAt(ino *Inode, p []byte, off int64) (int, syscall.Errno) {
	if e := ino.writable(); e != 0 {
		return 0, e
	}
	switch {
	case off < 0:
		return 0, syscall.EINVAL
	case len(p) == 0:
		return 0, 0
	case off >= maxFileSize:
		return 0, syscall.EFBIG
	}
	p = p[:min(int64(len(p)), maxFileSize-off)]
	c, n := &ino.data, 0
	for n < len(p) {
		at := off + int64(n)
		chunk := fs.chunk(c, at/chunkSize)
		if chunk == nil {
			break
		}
		n += copy(chunk[at%chunkSize:], p[n:])
	}
	if n == 0 {
		return 0, syscall.ENOSPC
	}
	c.size = max(c.size, off+int64(n))
	ino.stamp(mtime | ctime)
	return n, 0
}

// Truncate sets the size of a file. What is added is a hole. It fails with
// EFBIG past 1 TiB and with EROFS for a file of the base.
func (fs *FS) Truncate(ino *Inode, size int64) syscall.Errno {
	switch e := ino.writable(); {
	case size < 0:
		return syscall.EINVAL
	case e != 0:
		return e
	case size > maxFileSize:
		return syscall.EFBIG
	}
	fs.resize(&ino.data, size)
	ino.stamp(mtime | ctime)
	return 0
}

// Allocate takes memory for n bytes of a file from an offset on, and makes the
// file long enough to hold them. It changes nothing when they do not fit
// (ENOSPC).
func (fs *FS) Allocate(ino *Inode, off, n int64) syscall.Errno {
	switch e := ino.writable(); {
	case off < 0 || n <= 0:
		return syscall.EINVAL
	case e != 0:
		return e
	case off > maxFileSize || n > maxFileSize-off:
		return syscall.EFBIG
	}
	c := &ino.data
	first, end := off/chunkSize, (off+n+chunkSize-1)/chunkSize
	if end-first > fs.limits.Bytes/chunkSize { // which bounds the loops below
		return syscall.ENOSPC
	}
	need := int64(0)
	for i := first; i < end; i++ {
		if c.chunks[i] == nil {
			need += chunkSize
		}
	}
	if need > fs.limits.Bytes-fs.bytes {
		return syscall.ENOSPC
	}
	for i := first; i < end; i++ {
		fs.chunk(c, i)
	}
	c.size = max(c.size, off+n)
	ino.stamp(mtime | ctime)
	return 0
}
