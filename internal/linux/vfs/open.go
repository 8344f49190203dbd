//go:build linux

package vfs

import "syscall"

// Flags that package syscall lacks (include/uapi/asm-generic/fcntl.h).
const (
	openPath = 0o10000000
	// openTmpfile is O_TMPFILE without the O_DIRECTORY that belongs to it.
	openTmpfile = 0o20000000
)

// accessOf is what each access mode of open asks for; mode 3 asks for both and
// grants neither (man 2 open).
var accessOf = [4]uint32{MayRead, MayWrite, MayRead | MayWrite, MayRead | MayWrite}

// Open finds or makes the file that open(2) with these flags would, and
// empties it if asked to. mode gives a new file's permission bits, from which
// the caller has taken its umask. The caller takes a reference at once: a file
// made with O_TMPFILE has nothing else that keeps it.
//
// For O_PATH the file is only found; that it must not be read or written then
// is up to the caller.
func (fs *FS) Open(dir *Inode, path string, flags int, mode uint32) (*Inode, syscall.Errno) {
	if flags&openPath != 0 {
		flags &= openPath | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	}
	const dirCreat = syscall.O_DIRECTORY | syscall.O_CREAT
	if flags&dirCreat == dirCreat {
		return nil, syscall.EINVAL
	}
	if flags&openTmpfile != 0 {
		return fs.openTmpfile(dir, path, flags, mode)
	}
	w, e := start(dir, path)
	if e != 0 {
		return nil, e
	}
	create := flags&syscall.O_CREAT != 0
	exclusive := create && flags&syscall.O_EXCL != 0
	follow := !exclusive && flags&syscall.O_NOFOLLOW == 0
	for {
		at, e := w.toLast(path)
		switch {
		case e != 0:
			return nil, e
		case !at.slash:
		case create && at.last == lastName:
			return nil, syscall.EISDIR
		case !create:
			follow = true
			flags |= syscall.O_DIRECTORY
		}
		ino, e := at.find()
		switch {
		case e == syscall.ENOENT && create:
			return fs.create(at, mode)
		case e != 0:
			return nil, e
		case ino.kind == Symlink && follow:
			if path, e = w.enter(ino); e != 0 {
				return nil, e
			}
		default:
			return ino, fs.openExisting(ino, flags)
		}
	}
}

// create makes a file that is not there. Its mode does not matter to the open
// that makes it.
func (fs *FS) create(at place, mode uint32) (*Inode, syscall.Errno) {
	if e := at.dir.changeable(); e != 0 {
		return nil, e
	}
	ino, e := fs.newInode(File, mode)
	if e != 0 {
		return nil, e
	}
	at.attach(ino)
	return ino, 0
}

// openExisting checks that a file may be opened (do_open and may_open of
// fs/namei.c) and empties it for O_TRUNC.
func (fs *FS) openExisting(ino *Inode, flags int) syscall.Errno {
	need := accessOf[flags&syscall.O_ACCMODE]
	if flags&syscall.O_TRUNC != 0 {
		need |= MayWrite
	}
	switch {
	case flags&syscall.O_CREAT != 0 && flags&syscall.O_EXCL != 0:
		return syscall.EEXIST
	case flags&syscall.O_CREAT != 0 && ino.kind == Dir:
		return syscall.EISDIR
	case flags&syscall.O_DIRECTORY != 0 && ino.kind != Dir:
		return syscall.ENOTDIR
	case flags&openPath != 0:
		return 0
	case ino.kind == Symlink:
		return syscall.ELOOP
	case ino.kind == Dir && need&MayWrite != 0:
		return syscall.EISDIR
	}
	if e := ino.Access(need); e != 0 {
		return e
	}
	if ino.kind == File && flags&syscall.O_TRUNC != 0 {
		return fs.Truncate(ino, 0)
	}
	return 0
}

// openTmpfile makes a file without a name in the folder that path names.
func (fs *FS) openTmpfile(dir *Inode, path string, flags int, mode uint32) (*Inode, syscall.Errno) {
	if flags&syscall.O_DIRECTORY == 0 || accessOf[flags&syscall.O_ACCMODE]&MayWrite == 0 {
		return nil, syscall.EINVAL
	}
	d, e := fs.Resolve(dir, path, flags&syscall.O_NOFOLLOW == 0)
	if e != 0 {
		return nil, e
	}
	if d.kind != Dir {
		return nil, syscall.ENOTDIR
	}
	if e := d.changeable(); e != 0 {
		return nil, e
	}
	ino, e := fs.newInode(File, mode)
	if e != 0 {
		return nil, e
	}
	ino.linkable = flags&syscall.O_EXCL == 0
	return ino, 0
}
