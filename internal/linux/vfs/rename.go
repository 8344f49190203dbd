//go:build linux

package vfs

import "syscall"

// Flags of renameat2 (include/uapi/linux/fs.h).
const (
	// RenameNoReplace refuses to replace what is at the new place.
	RenameNoReplace = 1
	// RenameExchange swaps two entries.
	RenameExchange = 2
)

// Rename moves an entry, and replaces a file or an empty folder at the new
// place, as renameat2 with these flags does.
func (fs *FS) Rename(fromDir *Inode, from string, toDir *Inode, to string, flags int) syscall.Errno {
	if flags&^(RenameNoReplace|RenameExchange) != 0 || flags == RenameNoReplace|RenameExchange {
		return syscall.EINVAL
	}
	src, e := fs.parentOf(fromDir, from)
	if e != 0 {
		return e
	}
	dst, e := fs.parentOf(toDir, to)
	switch {
	case e != 0:
		return e
	case src.dir.layer != dst.dir.layer:
		return syscall.EXDEV
	case src.last != lastName:
		return syscall.EBUSY
	case dst.last != lastName && flags&RenameNoReplace != 0:
		return syscall.EEXIST
	case dst.last != lastName:
		return syscall.EBUSY
	case !src.dir.layer:
		return syscall.EROFS
	}
	r := renaming{src: src, dst: dst, exchange: flags&RenameExchange != 0}
	if r.ino, e = src.find(); e != 0 {
		return e
	}
	if r.old, e = dst.find(); e != 0 && (e != syscall.ENOENT || dst.dir.nlink == 0) {
		return e
	}
	if r.old != nil && flags&RenameNoReplace != 0 {
		return syscall.EEXIST
	}
	if e := r.checkNames(); e != 0 {
		return e
	}
	if r.ino == r.old {
		return 0
	}
	if e := r.checkRights(); e != 0 {
		return e
	}
	if e := r.checkFolders(); e != 0 {
		return e
	}
	r.do()
	return 0
}

// renaming is an entry on its way from src to dst, where old may be.
type renaming struct {
	src, dst place
	ino, old *Inode
	exchange bool
}

// checkNames has the checks of do_renameat2.
func (r *renaming) checkNames() syscall.Errno {
	folder := r.ino.kind == Dir
	switch {
	case r.exchange && r.old == nil:
		return syscall.ENOENT
	case r.exchange && r.old.kind != Dir && r.dst.slash:
		return syscall.ENOTDIR
	case !folder && (r.src.slash || r.dst.slash && !r.exchange):
		return syscall.ENOTDIR
	case folder && r.dst.dir.within(r.ino):
		return syscall.EINVAL
	case r.old == nil || r.old.kind != Dir || !r.src.dir.within(r.old):
		return 0
	case r.exchange:
		return syscall.EINVAL
	}
	return syscall.ENOTEMPTY
}

// checkRights has the checks of vfs_rename.
func (r *renaming) checkRights() syscall.Errno {
	folder := r.ino.kind == Dir
	if e := r.src.dir.changeable(); e != 0 {
		return e
	}
	if e := r.dst.dir.changeable(); e != 0 {
		return e
	}
	if r.old != nil && !r.exchange {
		switch {
		case folder && r.old.kind != Dir:
			return syscall.ENOTDIR
		case !folder && r.old.kind == Dir:
			return syscall.EISDIR
		}
	}
	if r.src.dir == r.dst.dir {
		return 0
	}
	// A folder that goes elsewhere is written to: its ".." changes.
	if folder {
		if e := r.ino.Access(MayWrite); e != 0 {
			return e
		}
	}
	if r.exchange && r.old.kind == Dir {
		return r.old.Access(MayWrite)
	}
	return 0
}

// checkFolders has the checks that Linux leaves to the file system, and that
// folders do not come to nest too deep.
func (r *renaming) checkFolders() syscall.Errno {
	if r.old != nil && !r.exchange && len(r.old.children) > 0 {
		return syscall.ENOTEMPTY
	}
	if tooDeep(r.ino, r.src.dir, r.dst.dir) || r.exchange && tooDeep(r.old, r.dst.dir, r.src.dir) {
		return syscall.ENAMETOOLONG
	}
	return 0
}

func tooDeep(ino, from, to *Inode) bool {
	if ino.kind != Dir {
		return false
	}
	// Most moves go no deeper, and need no look at all that is below.
	depth := to.depth()
	return depth > from.depth() && depth+1+ino.height() > maxDepth
}

func (r *renaming) do() {
	r.src.detach(r.ino)
	switch {
	case r.exchange:
		r.dst.detach(r.old)
		r.src.attach(r.old)
		r.old.changed()
	case r.old != nil:
		r.dst.remove(r.old)
	}
	r.dst.attach(r.ino)
	r.ino.changed()
}
