//go:build linux

package vfs

import "syscall"

// changeable says why entries of a folder cannot be made or removed.
func (ino *Inode) changeable() syscall.Errno {
	switch {
	case !ino.layer:
		return syscall.EROFS
	case ino.nlink == 0:
		return syscall.ENOENT
	}
	return ino.Access(MayWrite | MayExec)
}

// attach gives an inode a name, which must be free.
func (at place) attach(ino *Inode) {
	at.dir.put(at.name, ino)
	ino.parent, ino.name = at.dir, at.name
	if ino.kind == Dir {
		ino.nlink = max(ino.nlink, 2)
		at.dir.nlink++
		at.dir.pins++
	} else {
		ino.nlink++
	}
	at.dir.modified()
}

// detach takes a name away, in order to attach the inode elsewhere.
func (at place) detach(ino *Inode) {
	delete(at.dir.children, at.name)
	if ino.kind == Dir {
		at.dir.nlink--
		at.dir.pins--
	} else {
		ino.nlink--
	}
	at.dir.modified()
}

// remove takes a name away and frees what is not needed any more.
func (at place) remove(ino *Inode) {
	fs := ino.fs
	delete(at.dir.children, at.name)
	if ino.kind == Dir {
		// The pin of the folder above ends when this one is freed.
		at.dir.nlink--
		ino.nlink = 0
	} else if ino.nlink--; ino.nlink > 0 {
		fs.inodes--
	}
	at.dir.modified()
	ino.changed()
	fs.release(ino)
}

// vacant finds the place for a new entry (filename_create of fs/namei.c).
func (fs *FS) vacant(dir *Inode, path string, k Kind) (place, syscall.Errno) {
	at, e := fs.parentOf(dir, path)
	if e != 0 {
		return at, e
	}
	if at.last != lastName {
		return at, syscall.EEXIST
	}
	switch _, e := at.find(); {
	case e == 0:
		return at, syscall.EEXIST
	case e != syscall.ENOENT:
		return at, e
	case at.slash && k != Dir:
		return at, syscall.ENOENT
	}
	return at, at.dir.changeable()
}

// Mkdir makes a folder. The caller has taken its umask from mode.
func (fs *FS) Mkdir(dir *Inode, path string, mode uint32) syscall.Errno {
	at, e := fs.vacant(dir, path, Dir)
	if e != 0 {
		return e
	}
	if at.dir.depth() >= maxDepth {
		return syscall.ENAMETOOLONG
	}
	ino, e := fs.newInode(Dir, mode&0o1777)
	if e != 0 {
		return e
	}
	at.attach(ino)
	return 0
}

// Symlink makes a symbolic link to target.
func (fs *FS) Symlink(target string, dir *Inode, path string) syscall.Errno {
	switch {
	case target == "":
		return syscall.ENOENT
	case len(target) >= maxPath:
		return syscall.ENAMETOOLONG
	}
	at, e := fs.vacant(dir, path, Symlink)
	if e != 0 {
		return e
	}
	return fs.symlink(target, at)
}

func (fs *FS) symlink(target string, at place) syscall.Errno {
	ino, e := fs.newInode(Symlink, 0o777)
	if e != 0 {
		return e
	}
	if !fs.charge(targetBytes(target)) {
		fs.release(ino)
		return syscall.ENOSPC
	}
	ino.target, ino.size = target, int64(len(target))
	at.attach(ino)
	return 0
}

// Link gives ino, which may be anything but a folder, another name.
func (fs *FS) Link(ino *Inode, dir *Inode, path string) syscall.Errno {
	at, e := fs.vacant(dir, path, File)
	switch {
	case e != 0:
		return e
	case !ino.layer:
		return syscall.EXDEV
	case ino.kind == Dir:
		return syscall.EPERM
	case ino.nlink == 0 && !ino.linkable:
		return syscall.ENOENT
	}
	if ino.nlink > 0 {
		// The first name comes with the inode.
		if fs.inodes >= fs.limits.Inodes {
			return syscall.ENOSPC
		}
		fs.inodes++
	}
	ino.linkable = false
	at.attach(ino)
	ino.changed()
	return 0
}

// Unlink removes a name that is not a folder's. A file without any name lives
// on until nobody holds a reference.
func (fs *FS) Unlink(dir *Inode, path string) syscall.Errno {
	at, e := fs.parentOf(dir, path)
	switch {
	case e != 0:
		return e
	case at.last != lastName:
		return syscall.EISDIR
	case !at.dir.layer:
		return syscall.EROFS
	}
	ino, e := at.find()
	switch {
	case e != 0:
		return e
	case at.slash && ino.kind != Dir:
		return syscall.ENOTDIR
	case at.slash:
		return syscall.EISDIR
	}
	if e := at.dir.changeable(); e != 0 {
		return e
	}
	if ino.kind == Dir {
		return syscall.EISDIR
	}
	at.remove(ino)
	return 0
}

// Rmdir removes an empty folder.
func (fs *FS) Rmdir(dir *Inode, path string) syscall.Errno {
	at, e := fs.parentOf(dir, path)
	switch {
	case e != 0:
		return e
	case at.last == lastDotDot:
		return syscall.ENOTEMPTY
	case at.last == lastDot:
		return syscall.EINVAL
	case at.last == lastRoot:
		return syscall.EBUSY
	case !at.dir.layer:
		return syscall.EROFS
	}
	ino, e := at.find()
	if e != 0 {
		return e
	}
	if e := at.dir.changeable(); e != 0 {
		return e
	}
	switch {
	case ino.kind != Dir:
		return syscall.ENOTDIR
	case len(ino.children) > 0:
		return syscall.ENOTEMPTY
	}
	at.remove(ino)
	return 0
}
