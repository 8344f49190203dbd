package vfs

import "syscall"

// create makes an inode with the name at which a walk ended. There is nothing
// of that name.
func (fs *FS) create(w *walker, kind Kind, mode uint32, target string) (*Inode, syscall.Errno) {
	if e := fs.vacant(w, kind); e != 0 {
		return nil, e
	}
	ino, e := fs.newInode(kind, mode, int64(len(target)))
	if e != 0 {
		return nil, e
	}
	ino.target = target
	w.dir.attach(w.name, ino)
	return ino, 0
}

// vacant says whether something of a kind may be put at the end of a walk,
// where nothing is yet.
func (fs *FS) vacant(w *walker, kind Kind) syscall.Errno {
	if e := w.dir.permit(mayWrite | mayExec); e != 0 {
		return e
	}
	if kind == Dir && fs.depth(w.dir)+1 > maxDepth {
		return syscall.ENAMETOOLONG
	}
	return 0
}

// depth counts the folders above what is in a folder.
func (fs *FS) depth(dir *Inode) int {
	n := 1
	for ; dir != &fs.root; dir = dir.parent {
		n++
	}
	return n
}

// toNew walks to a name that is to be made, which must not be there yet.
func (fs *FS) toNew(dir *Inode, path string, kind Kind) (walker, syscall.Errno) {
	w, e := fs.walk(dir, path)
	switch {
	case e != 0:
		return w, e
	case !w.ordinary():
		return w, syscall.EEXIST
	}
	ino, e := w.last()
	switch {
	case e != 0:
	case ino != nil:
		e = syscall.EEXIST
	case w.slash() && kind != Dir:
		e = syscall.ENOENT
	}
	return w, e
}

// Mkdir makes a folder. mode has the umask applied. It fails with EEXIST,
// EROFS, ENOSPC, ENAMETOOLONG also past 1024 folders in each other, and with
// what a walk of the path fails with.
func (fs *FS) Mkdir(dir *Inode, path string, mode uint32) syscall.Errno {
	w, e := fs.toNew(dir, path, Dir)
	if e == 0 {
		_, e = fs.create(&w, Dir, mode&0o1777, "")
	}
	return e
}

// Symlink makes a symbolic link to target, which is not looked up: 1 to 4095
// bytes, ENOENT or ENAMETOOLONG otherwise.
func (fs *FS) Symlink(target string, dir *Inode, path string) syscall.Errno {
	switch {
	case target == "":
		return syscall.ENOENT
	case len(target) > maxPath:
		return syscall.ENAMETOOLONG
	}
	w, e := fs.toNew(dir, path, Symlink)
	if e == 0 {
		_, e = fs.create(&w, Symlink, 0o777, target)
	}
	return e
}

// Mksock makes the name of a socket. mode has the umask applied. It fails as
// Mkdir does.
func (fs *FS) Mksock(dir *Inode, path string, mode uint32) (*Inode, syscall.Errno) {
	w, e := fs.toNew(dir, path, Socket)
	if e != 0 {
		return nil, e
	}
	return fs.create(&w, Socket, mode&0o777, "")
}

// Link gives an inode one more name. It fails with EXDEV for an inode of the
// base, EPERM for a folder, EMLINK past 4096 names, and ENOENT for a file that
// lost its last name or was opened with O_TMPFILE and O_EXCL.
func (fs *FS) Link(ino *Inode, dir *Inode, path string) syscall.Errno {
	w, e := fs.toNew(dir, path, File)
	if e != 0 {
		return e
	}
	switch {
	case w.dir.base:
		return syscall.EROFS
	case ino.base:
		return syscall.EXDEV
	}
	if e := fs.vacant(&w, File); e != 0 {
		return e
	}
	switch {
	case ino.kind == Dir:
		return syscall.EPERM
	case ino.nlink == 0 && !ino.linkable:
		return syscall.ENOENT
	case ino.nlink >= maxLinks:
		return syscall.EMLINK
	case ino.nlink > 0:
		if fs.inodes >= fs.limits.Inodes {
			return syscall.ENOSPC
		}
		fs.inodes++
	}
	ino.linkable = false
	w.dir.attach(w.name, ino)
	return 0
}

// Unlink removes the name of anything but a folder (EISDIR). What is open
// stays usable until its last reference is gone.
func (fs *FS) Unlink(dir *Inode, path string) syscall.Errno {
	w, e := fs.walk(dir, path)
	switch {
	case e != 0:
		return e
	case !w.ordinary():
		return syscall.EISDIR
	case w.dir.base:
		return syscall.EROFS
	}
	ino, e := w.last()
	switch {
	case e != 0:
		return e
	case ino == nil:
		return syscall.ENOENT
	case w.slash() && ino.kind != Dir:
		return syscall.ENOTDIR
	case w.slash():
		return syscall.EISDIR
	}
	if e := w.dir.permit(mayWrite | mayExec); e != 0 {
		return e
	}
	if ino.kind == Dir {
		return syscall.EISDIR
	}
	fs.drop(w.dir, w.name, ino)
	return 0
}

// Rmdir removes an empty folder: ENOTEMPTY if it is not empty, ENOTDIR if it
// is none, EINVAL for a path that ends in ".".
func (fs *FS) Rmdir(dir *Inode, path string) syscall.Errno {
	w, e := fs.walk(dir, path)
	if e != 0 {
		return e
	}
	switch w.name {
	case "":
		return syscall.EBUSY
	case ".":
		return syscall.EINVAL
	case "..":
		return syscall.ENOTEMPTY
	}
	if w.dir.base {
		return syscall.EROFS
	}
	ino, e := w.last()
	switch {
	case e != 0:
		return e
	case ino == nil:
		return syscall.ENOENT
	}
	if e := w.dir.permit(mayWrite | mayExec); e != 0 {
		return e
	}
	switch {
	case ino.kind != Dir:
		return syscall.ENOTDIR
	case len(ino.children) > 0:
		return syscall.ENOTEMPTY
	}
	fs.drop(w.dir, w.name, ino)
	return 0
}

// drop removes a name, and what it named when that was its last name and it is
// not in use.
func (fs *FS) drop(dir *Inode, name string, ino *Inode) {
	dir.detach(name, ino)
	if ino.nlink == 0 {
		fs.lostName(ino)
		return
	}
	fs.inodes-- // every name but the first takes one
}
