//go:build linux

package vfs

// pageSize is the piece in which contents are kept and charged, and the block
// size that stat and statfs show.
const pageSize = 4096

// pages are a file's contents by page number. A page that is missing is a hole
// and reads as zeros. No page lies wholly behind the end of its file, and
// bytes of the last page behind the end are zero.
type pages map[int64]*[pageSize]byte

// readAt fills p from off on.
func (d pages) readAt(p []byte, off int64) {
	for len(p) > 0 {
		at := off % pageSize
		n := min(len(p), int(pageSize-at))
		if page := d[off/pageSize]; page != nil {
			copy(p[:n], page[at:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// need gives a page of a file and makes it if there is room for it; nil if
// not.
func (ino *Inode) need(n int64) *[pageSize]byte {
	if page := ino.data[n]; page != nil {
		return page
	}
	if !ino.fs.charge(pageSize) {
		return nil
	}
	if ino.data == nil {
		ino.data = pages{}
	}
	page := new([pageSize]byte)
	ino.data[n] = page
	return page
}

// resize sets the length of a file of the layer.
func (ino *Inode) resize(size int64) {
	if size < ino.size {
		ino.cut(size)
	}
	ino.size = size
}

// cut drops what is behind a new, nearer end.
func (ino *Inode) cut(size int64) {
	first, end := pagesIn(size), pagesIn(ino.size)
	before := len(ino.data)
	switch {
	case size == 0:
		ino.data = nil
	case end-first < int64(len(ino.data)):
		for n := first; n < end; n++ {
			delete(ino.data, n)
		}
	default:
		// A file of holes: fewer pages than numbers.
		for n := range ino.data {
			if n >= first {
				delete(ino.data, n)
			}
		}
	}
	ino.fs.bytes -= int64(before-len(ino.data)) * pageSize
	// What is cut off must not come back when the file grows again.
	if page := ino.data[size/pageSize]; page != nil {
		clear(page[size%pageSize:])
	}
}

// pagesIn is the number of pages that hold size bytes.
func pagesIn(size int64) int64 { return (size + pageSize - 1) / pageSize }
