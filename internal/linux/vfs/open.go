package vfs

import "syscall"

// Flags of open that package syscall lacks (include/uapi/asm-generic/fcntl.h).
const (
	openPath    = 0x200000
	openTmpfile = 0x400000
)

// Open finds or makes what a path names, for the use that flags tells. mode is
// for a new file, with the umask applied. The caller takes a reference (Ref)
// at once: an inode made with O_TMPFILE has no name to live by.
//
// The flags looked at are the access mode, O_CREAT, O_EXCL, O_TRUNC,
// O_DIRECTORY, O_NOFOLLOW, O_TMPFILE and O_PATH. Opening for writing fails
// with EROFS in the base, EISDIR for a folder and EACCES if the owner's bits
// say so; a new file takes ENOSPC when the layer is full.
func (fs *FS) Open(dir *Inode, path string, flags int, mode uint32) (*Inode, syscall.Errno) {
	if flags&openPath != 0 {
		flags &= openPath | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	}
	switch {
	case flags&openTmpfile != 0:
		return fs.openUnnamed(dir, path, flags, mode)
	case flags&syscall.O_CREAT == 0:
		ino, e := fs.Resolve(dir, path, flags&syscall.O_NOFOLLOW == 0)
		if e != 0 {
			return nil, e
		}
		return fs.opened(ino, flags)
	case flags&syscall.O_DIRECTORY != 0:
		return nil, syscall.EINVAL
	}
	return fs.openCreate(dir, path, flags, mode)
}

// openCreate is Open with O_CREAT.
func (fs *FS) openCreate(dir *Inode, path string, flags int, mode uint32) (*Inode, syscall.Errno) {
	w, e := fs.walk(dir, path)
	for e == 0 {
		if w.slash() && w.ordinary() {
			return nil, syscall.EISDIR
		}
		ino, lost := w.last()
		switch {
		case lost != 0:
			return nil, lost
		case ino == nil:
			return fs.create(&w, File, mode, "")
		case flags&syscall.O_EXCL != 0:
			return nil, syscall.EEXIST
		case ino.kind == Dir:
			return nil, syscall.EISDIR
		case ino.kind != Symlink:
			return fs.opened(ino, flags)
		case flags&syscall.O_NOFOLLOW != 0:
			return nil, syscall.ELOOP
		}
		if e = w.follow(ino); e == 0 {
			e = w.toLast()
		}
	}
	return nil, e
}

// openUnnamed makes a file without a name in a folder.
func (fs *FS) openUnnamed(dir *Inode, path string, flags int, mode uint32) (*Inode, syscall.Errno) {
	if flags&syscall.O_DIRECTORY == 0 || flags&syscall.O_CREAT != 0 || flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return nil, syscall.EINVAL
	}
	at, e := fs.Resolve(dir, path, true)
	switch {
	case e != 0:
		return nil, e
	case at.kind != Dir:
		return nil, syscall.ENOTDIR
	}
	if e := at.permit(mayWrite | mayExec); e != 0 {
		return nil, e
	}
	if at.removed() {
		return nil, syscall.ENOENT
	}
	ino, e := fs.newInode(File, mode, 0)
	if e != 0 {
		return nil, e
	}
	ino.linkable = flags&syscall.O_EXCL == 0
	return ino, 0
}

// opened checks that an existing inode can be opened with flags, and empties
// it for O_TRUNC.
func (fs *FS) opened(ino *Inode, flags int) (*Inode, syscall.Errno) {
	switch {
	case flags&syscall.O_DIRECTORY != 0 && ino.kind != Dir:
		return nil, syscall.ENOTDIR
	case flags&openPath != 0:
		return ino, 0
	case ino.kind == Symlink:
		return nil, syscall.ELOOP
	case ino.kind == Socket:
		return nil, syscall.ENXIO
	}
	want := uint32(0)
	switch flags & syscall.O_ACCMODE {
	case syscall.O_RDONLY:
		want = mayRead
	case syscall.O_WRONLY:
		want = mayWrite
	default:
		want = mayRead | mayWrite
	}
	if flags&syscall.O_TRUNC != 0 {
		want |= mayWrite
	}
	if ino.kind == Dir && want&mayWrite != 0 {
		return nil, syscall.EISDIR
	}
	if e := ino.permit(want); e != 0 {
		return nil, e
	}
	if flags&syscall.O_TRUNC != 0 && ino.kind == File {
		if e := fs.Truncate(ino, 0); e != 0 {
			return nil, e
		}
	}
	return ino, 0
}
