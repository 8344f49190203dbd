package linux

import (
	"io"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

// maxDescriptors is the guest's RLIMIT_NOFILE.
const maxDescriptors = 1024

// file is what an open file description refers to.
type file interface {
	// read fills b from offset off; files without positions ignore off.
	read(p *Process, b []byte, off int64) (int, syscall.Errno)
	// write takes b at offset off. Like read, it answers EAGAIN when it would
	// have to wait.
	write(p *Process, b []byte, off int64) (int, syscall.Errno)
	// poll gives the events that hold now, of pollIn and its kin.
	poll(p *Process) uint16
	// inode is the file in the tree, nil for what is not in it.
	inode() *vfs.Inode
	// seekable says whether positions mean something.
	seekable() bool
	// release is called when the last descriptor is closed.
	release(p *Process)
}

// description is an open file description: what dup shares.
type description struct {
	file
	pos   int64
	flags int
	refs  int
	// entries is the listing under way for getdents64.
	entries []vfs.Dirent
}

// oPath is O_PATH (include/uapi/asm-generic/fcntl.h).
const oPath = 0x200000

// canRead and canWrite say what the file was opened for. Access mode 3 grants
// neither (man 2 open), nor does O_PATH.
func (d *description) canRead() bool {
	mode := d.flags & syscall.O_ACCMODE
	return d.flags&oPath == 0 && (mode == syscall.O_RDONLY || mode == syscall.O_RDWR)
}

func (d *description) canWrite() bool {
	mode := d.flags & syscall.O_ACCMODE
	return d.flags&oPath == 0 && (mode == syscall.O_WRONLY || mode == syscall.O_RDWR)
}

type descriptor struct {
	file    *description
	cloexec bool
}

// descriptors is the table of the process. The first three are the standard
// streams.
type descriptors struct {
	table []descriptor
	used  int
	// listed counts the entries of all listings under way.
	listed int
	channels
}

// maxListed bounds the entries of all folder listings under way: a listing is
// kept, so that it stays the same between two getdents64.
const maxListed = 128 << 10

// list starts a listing.
func (d *descriptors) list(f *description, entries []vfs.Dirent) bool {
	d.unlist(f)
	if d.listed+len(entries) > maxListed {
		return false
	}
	f.entries = entries
	d.listed += len(entries)
	return true
}

// unlist ends a listing.
func (d *descriptors) unlist(f *description) {
	d.listed -= len(f.entries)
	f.entries = nil
}

func (d *descriptors) init() {
	clear(d.table) // what earlier files hold
	d.table = append(d.table[:0],
		descriptor{file: &description{file: emptyStream{}, refs: 1}},
		descriptor{file: &description{file: sinkStream(1), flags: syscall.O_WRONLY, refs: 1}},
		descriptor{file: &description{file: sinkStream(2), flags: syscall.O_WRONLY, refs: 1}})
	d.used, d.listed, d.channels = 3, 0, channels{}
}

// pristine reports whether the table is as init left it.
func (d *descriptors) pristine() bool {
	for fd, f := range []file{emptyStream{}, sinkStream(1), sinkStream(2)} {
		if fd >= len(d.table) || d.table[fd].file == nil || d.table[fd].file.file != f {
			return false
		}
	}
	return d.used == 3
}

func (d *descriptors) get(fd uint64) *description {
	if fd >= uint64(len(d.table)) {
		return nil
	}
	return d.table[fd].file
}

// add gives f the lowest free descriptor from lo on.
func (d *descriptors) add(f *description, lo int, cloexec bool) (int, syscall.Errno) {
	for fd := lo; fd < maxDescriptors; fd++ {
		for fd >= len(d.table) {
			d.table = append(d.table, descriptor{})
		}
		if d.table[fd].file == nil {
			d.table[fd] = descriptor{f, cloexec}
			d.used++
			f.refs++
			return fd, 0
		}
	}
	return 0, syscall.EMFILE
}

// closeFD drops a descriptor; it reports false when there is none.
func (p *Process) closeFD(fd uint64) bool {
	f := p.fds.get(fd)
	if f == nil {
		return false
	}
	p.fds.table[fd] = descriptor{}
	p.fds.used--
	p.unref(f)
	return true
}

// unref gives up one use of an open file.
func (p *Process) unref(f *description) {
	if f.refs--; f.refs == 0 {
		p.fds.unlist(f)
		f.release(p)
	}
}

// emptyStream is standard input: always at its end.
type emptyStream struct{}

func (emptyStream) read(*Process, []byte, int64) (int, syscall.Errno)  { return 0, 0 }
func (emptyStream) write(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EBADF }
func (emptyStream) poll(*Process) uint16                               { return pollIn }
func (emptyStream) inode() *vfs.Inode                                  { return nil }
func (emptyStream) seekable() bool                                     { return false }
func (emptyStream) release(*Process)                                   {}

// sinkStream is standard output (1) or standard error (2).
type sinkStream int

func (sinkStream) read(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EBADF }
func (s sinkStream) write(p *Process, b []byte, _ int64) (int, syscall.Errno) {
	p.drain(int(s))
	p.output(int(s), b)
	return len(b), 0
}
func (sinkStream) poll(*Process) uint16 { return pollOut }
func (sinkStream) inode() *vfs.Inode    { return nil }
func (sinkStream) seekable() bool       { return false }
func (sinkStream) release(*Process)     {}

// treeFile is a file, folder or device of the file tree.
type treeFile struct{ ino *vfs.Inode }

func (f treeFile) inode() *vfs.Inode    { return f.ino }
func (f treeFile) poll(*Process) uint16 { return pollIn | pollOut }
func (f treeFile) seekable() bool       { return f.ino.Kind() == vfs.File || f.ino.Kind() == vfs.Dir }
func (f treeFile) release(p *Process)   { p.fs.Unref(f.ino) }

// Device numbers of the memory devices (Documentation/admin-guide/devices.txt).
const (
	devNull    = 1<<8 | 3
	devZero    = 1<<8 | 5
	devFull    = 1<<8 | 7
	devRandom  = 1<<8 | 8
	devURandom = 1<<8 | 9
)

func (f treeFile) read(p *Process, b []byte, off int64) (int, syscall.Errno) {
	switch f.ino.Kind() {
	case vfs.File:
		p.settle(f.ino, off, int64(len(b)))
		return f.ino.ReadAt(b, off)
	case vfs.Dir:
		return 0, syscall.EISDIR
	case vfs.Device:
		switch f.ino.Stat().Rdev {
		case devNull:
			return 0, 0
		case devZero, devFull:
			clear(b)
			return len(b), 0
		case devRandom, devURandom:
			if _, err := io.ReadFull(p.random, b); err != nil {
				return 0, syscall.EIO
			}
			return len(b), 0
		}
	}
	return 0, syscall.EINVAL
}

func (f treeFile) write(p *Process, b []byte, off int64) (int, syscall.Errno) {
	switch f.ino.Kind() {
	case vfs.File:
		n, e := p.fs.WriteAt(f.ino, b, off)
		p.show(f.ino, b[:n], off)
		return n, e
	case vfs.Device:
		if f.ino.Stat().Rdev == devFull {
			return 0, syscall.ENOSPC
		}
		return len(b), 0
	}
	return 0, syscall.EISDIR
}
