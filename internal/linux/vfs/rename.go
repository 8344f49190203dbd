package vfs

import "syscall"

// Flags of Rename (include/uapi/linux/fs.h).
const (
	// RenameNoReplace fails with EEXIST when the new name is taken.
	RenameNoReplace = 1
	// RenameExchange swaps two names that both exist.
	RenameExchange = 2
)

// Rename gives what has one name another name, replacing what had it: a folder
// replaces an empty folder, anything else what is no folder. Two names of one
// file are left as they are. It fails with EXDEV between the base and the
// layer, EROFS in the base, EINVAL for unknown flags and for a folder that
// would move into itself, EBUSY for a path that ends in a dot.
func (fs *FS) Rename(fromDir *Inode, from string, toDir *Inode, to string, flags int) syscall.Errno {
	if flags != 0 && flags != RenameNoReplace && flags != RenameExchange {
		return syscall.EINVAL
	}
	src, e := fs.walk(fromDir, from)
	if e != 0 {
		return e
	}
	dst, e := fs.walk(toDir, to)
	switch {
	case e != 0:
		return e
	case src.dir.base != dst.dir.base:
		return syscall.EXDEV
	case !src.ordinary():
		return syscall.EBUSY
	case !dst.ordinary() && flags == RenameNoReplace:
		return syscall.EEXIST
	case !dst.ordinary():
		return syscall.EBUSY
	case src.dir.base:
		return syscall.EROFS
	}
	moved, e := src.last()
	switch {
	case e != 0:
		return e
	case moved == nil:
		return syscall.ENOENT
	}
	target, e := dst.last()
	if e != 0 {
		return e
	}
	if e := renameEnds(&src, &dst, moved, target, flags); e != 0 {
		return e
	}
	if moved == target {
		return 0
	}
	if e := fs.renameAllowed(&src, &dst, moved, target, flags); e != 0 {
		return e
	}
	src.dir.detach(src.name, moved)
	if target != nil {
		dst.dir.detach(dst.name, target)
	}
	// The name moves, so the inode must not count as one without a name in
	// between, nor take another inode of the limits.
	fs.reattach(dst.dir, dst.name, moved)
	switch {
	case target == nil:
	case flags == RenameExchange:
		fs.reattach(src.dir, src.name, target)
	case target.nlink == 0:
		fs.lostName(target)
	default:
		fs.inodes--
	}
	return 0
}

// reattach is attach for an inode that was just detached.
func (fs *FS) reattach(dir *Inode, name string, ino *Inode) {
	if ino.nlink == 0 {
		fs.orphans++
	}
	dir.attach(name, ino)
}

// renameEnds checks what is at the two ends of a rename, in Linux's order.
func renameEnds(src, dst *walker, moved, target *Inode, flags int) syscall.Errno {
	exchange := flags == RenameExchange
	switch {
	case target != nil && flags == RenameNoReplace:
		return syscall.EEXIST
	case target == nil && exchange:
		return syscall.ENOENT
	case exchange && target.kind != Dir && dst.slash():
		return syscall.ENOTDIR
	case moved.kind != Dir && (src.slash() || !exchange && dst.slash()):
		return syscall.ENOTDIR
	case within(dst.dir, moved):
		return syscall.EINVAL
	case target != nil && within(src.dir, target) && exchange:
		return syscall.EINVAL
	case target != nil && within(src.dir, target):
		return syscall.ENOTEMPTY
	}
	return 0
}

// within says whether a folder is top or below it.
func within(dir, top *Inode) bool {
	for ; dir != dir.parent; dir = dir.parent {
		if dir == top {
			return true
		}
	}
	return false
}

// renameAllowed checks the permissions of a rename and that the kinds agree.
func (fs *FS) renameAllowed(src, dst *walker, moved, target *Inode, flags int) syscall.Errno {
	if e := src.dir.permit(mayWrite | mayExec); e != 0 {
		return e
	}
	if target == nil {
		if e := fs.vacant(dst, File); e != 0 {
			return e
		}
	} else if e := dst.dir.permit(mayWrite | mayExec); e != 0 {
		return e
	}
	exchange := flags == RenameExchange
	if target != nil && !exchange {
		switch {
		case moved.kind == Dir && target.kind != Dir:
			return syscall.ENOTDIR
		case moved.kind != Dir && target.kind == Dir:
			return syscall.EISDIR
		}
	}
	if src.dir != dst.dir {
		if e := fs.movable(moved, dst.dir); e != 0 {
			return e
		}
		if exchange {
			return fs.movable(target, src.dir)
		}
	}
	if target != nil && !exchange && len(target.children) > 0 {
		return syscall.ENOTEMPTY
	}
	return 0
}

// movable says whether an inode may move to another folder: a folder must be
// writable, for its ".." changes, and its subtree must not become too deep.
func (fs *FS) movable(ino, to *Inode) syscall.Errno {
	if ino.kind != Dir {
		return 0
	}
	if e := ino.permit(mayWrite); e != 0 {
		return e
	}
	if from, at := fs.depth(ino.parent), fs.depth(to); at > from && at+height(ino) > maxDepth {
		return syscall.ENAMETOOLONG
	}
	return 0
}

// height counts the folders from dir down to the deepest in it, dir included.
func height(dir *Inode) int {
	n := 0
	for level := []*Inode{dir}; len(level) > 0; n++ {
		var next []*Inode
		for _, d := range level {
			if d.subdirs == 0 {
				continue
			}
			for _, c := range d.children {
				if c.kind == Dir {
					next = append(next, c)
				}
			}
		}
		level = next
	}
	return n
}
