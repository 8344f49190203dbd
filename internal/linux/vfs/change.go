package vfs

import (
	"sort"
	"syscall"
)

// Mkdir makes a folder.
func (fs *FS) Mkdir(dir *Inode, p string, mode uint32) syscall.Errno {
	at, e := fs.slot(dir, p)
	if e != 0 {
		return e
	}
	if at.dir.depth >= maxDepth {
		return syscall.ENAMETOOLONG
	}
	ino := fs.inode(Dir, mode)
	ino.nlink = 1
	at.link(ino)
	return 0
}

// Symlink makes a symbolic link.
func (fs *FS) Symlink(target string, dir *Inode, p string) syscall.Errno {
	if target == "" {
		return syscall.ENOENT
	}
	if len(target) >= maxPath {
		return syscall.ENAMETOOLONG
	}
	at, e := fs.slot(dir, p)
	if e != 0 {
		return e
	}
	if at.mustDir {
		return syscall.ENOENT
	}
	ino := fs.inode(Symlink, 0o777)
	ino.target = target
	at.link(ino)
	return 0
}

// Link gives a file another name.
func (fs *FS) Link(ino *Inode, dir *Inode, p string) syscall.Errno {
	at, e := fs.walk(dir, p, false)
	switch {
	case e != 0:
		return e
	case at.ino != nil || at.name == "":
		return syscall.EEXIST
	case at.mustDir:
		return syscall.ENOENT
	}
	if e := changeable(at.dir); e != 0 {
		return e
	}
	switch {
	case ino.readOnly():
		return syscall.EXDEV
	case ino.kind == Dir:
		return syscall.EPERM
	case ino.nlink == 0:
		return syscall.ENOENT
	}
	at.link(ino)
	ino.touch(false, false, true)
	return 0
}

// Unlink removes a file's name.
func (fs *FS) Unlink(dir *Inode, p string) syscall.Errno {
	at, e := fs.existing(dir, p)
	if e != 0 {
		return e
	}
	if at.ino.kind == Dir {
		return syscall.EISDIR
	}
	if e := changeable(at.dir); e != 0 {
		return e
	}
	fs.unlink(at)
	return 0
}

// existing finds an entry that is to be removed or renamed.
func (fs *FS) existing(dir *Inode, p string) (place, syscall.Errno) {
	at, e := fs.walk(dir, p, false)
	switch {
	case e != 0:
		return place{}, e
	case at.ino == nil:
		return place{}, syscall.ENOENT
	case at.name == "" && at.ino.kind == Dir:
		return place{}, syscall.EBUSY
	}
	return at, 0
}

// Rmdir removes an empty folder.
func (fs *FS) Rmdir(dir *Inode, p string) syscall.Errno {
	at, e := fs.existing(dir, p)
	switch {
	case e != 0:
		return e
	case at.ino.kind != Dir:
		return syscall.ENOTDIR
	case at.dir.readOnly() && !at.ino.readOnly():
		return syscall.EBUSY // /tmp and /work
	}
	if e := changeable(at.dir); e != 0 {
		return e
	}
	if len(at.ino.children) > 0 {
		return syscall.ENOTEMPTY
	}
	fs.unlink(at)
	return 0
}

// Flags of Rename (include/uapi/linux/fs.h).
const (
	renameNoReplace = 1
	renameExchange  = 2
)

// Rename moves an entry, replacing what is at the new place as rename does.
func (fs *FS) Rename(fromDir *Inode, from string, toDir *Inode, to string, flags int) syscall.Errno {
	if flags&^(renameNoReplace|renameExchange) != 0 || flags == renameNoReplace|renameExchange {
		return syscall.EINVAL
	}
	src, e := fs.existing(fromDir, from)
	if e != 0 {
		return e
	}
	dst, e := fs.walk(toDir, to, false)
	switch {
	case e != 0:
		return e
	case dst.name == "":
		return syscall.EBUSY
	case src.ino.readOnly() != dst.dir.readOnly() && src.dir.readOnly() != dst.dir.readOnly():
		return syscall.EXDEV
	}
	if e := changeable(src.dir); e != 0 {
		return e
	}
	if e := changeable(dst.dir); e != 0 {
		return e
	}
	switch {
	case dst.ino != nil && flags&renameNoReplace != 0:
		return syscall.EEXIST
	case dst.ino == nil && flags&renameExchange != 0:
		return syscall.ENOENT
	case dst.ino == nil && (dst.mustDir && src.ino.kind != Dir):
		return syscall.ENOTDIR
	case src.ino.kind == Dir && within(dst.dir, src.ino):
		return syscall.EINVAL
	case src.ino.kind == Dir && dst.dir.depth >= maxDepth-fs.height(src.ino):
		return syscall.ENAMETOOLONG
	case dst.ino == src.ino:
		return 0
	}
	if flags&renameExchange != 0 {
		if dst.ino.kind == Dir && (within(src.dir, dst.ino) || src.dir.depth >= maxDepth-fs.height(dst.ino)) {
			return syscall.EINVAL
		}
		fs.detach(src)
		fs.detach(dst)
		place{dir: dst.dir, name: dst.name}.link(src.ino)
		place{dir: src.dir, name: src.name}.link(dst.ino)
		fs.deepen(src.ino)
		fs.deepen(dst.ino)
		return 0
	}
	if dst.ino != nil {
		switch {
		case src.ino.kind == Dir && dst.ino.kind != Dir:
			return syscall.ENOTDIR
		case src.ino.kind != Dir && dst.ino.kind == Dir:
			return syscall.EISDIR
		case dst.ino.kind == Dir && len(dst.ino.children) > 0:
			return syscall.ENOTEMPTY
		}
		fs.unlink(dst)
	}
	fs.detach(src)
	dst.link(src.ino)
	src.ino.touch(false, false, true)
	fs.deepen(src.ino)
	return 0
}

// detach takes an entry out of its folder in order to put it elsewhere.
func (fs *FS) detach(at place) {
	delete(at.dir.children, at.name)
	at.ino.nlink--
	if at.ino.kind == Dir {
		at.dir.nlink--
	}
	at.dir.touch(false, true, true)
}

// within reports whether dir is ino or below it.
func within(dir, ino *Inode) bool {
	for n := 0; n <= maxDepth; n++ {
		if dir == ino {
			return true
		}
		if dir.parent == dir || dir.parent == nil {
			return false
		}
		dir = dir.parent
	}
	return true
}

// height is how many levels of folders are below a folder.
func (fs *FS) height(ino *Inode) int {
	h := 0
	for _, c := range ino.children {
		if c.kind == Dir {
			h = max(h, 1+fs.height(c))
		}
	}
	return h
}

// deepen brings the depths below a moved folder up to date.
func (fs *FS) deepen(ino *Inode) {
	for _, c := range ino.children {
		if c.kind == Dir {
			c.depth = ino.depth + 1
			fs.deepen(c)
		}
	}
}

// Chmod sets the permission bits.
func (fs *FS) Chmod(ino *Inode, mode uint32) syscall.Errno {
	if ino.readOnly() {
		return syscall.EROFS
	}
	ino.mode = mode & 0o7777
	ino.touch(false, false, true)
	return 0
}

// Chown accepts only the owner that everything has; -1 keeps.
func (fs *FS) Chown(ino *Inode, uid, gid int) syscall.Errno {
	switch {
	case ino.readOnly():
		return syscall.EROFS
	case uid != -1 && uid != owner || gid != -1 && gid != owner:
		return syscall.EPERM
	}
	ino.touch(false, false, true)
	return 0
}

// Utimes sets the access and modification times.
func (fs *FS) Utimes(ino *Inode, atime, mtime Time) syscall.Errno {
	if ino.readOnly() {
		return syscall.EROFS
	}
	set := func(t Time, to *Time) {
		switch {
		case t.Omit:
		case t.Now:
			sec, nsec := fs.clock()
			*to = Time{Sec: sec, Nsec: nsec}
		default:
			*to = Time{Sec: t.Sec, Nsec: t.Nsec}
		}
	}
	set(atime, &ino.atime)
	set(mtime, &ino.mtime)
	ino.touch(false, false, true)
	return 0
}

// Dirent is an entry of a folder.
type Dirent struct {
	Name  string
	Inode uint64
	Kind  Kind
}

// ReadDir lists a folder: "." and "..", then the names in order.
func (fs *FS) ReadDir(ino *Inode) []Dirent {
	parent := ino.parent
	if parent == nil {
		parent = ino
	}
	out := []Dirent{{".", ino.number, Dir}, {"..", parent.number, Dir}}
	names := make(map[string]bool, len(ino.children))
	var sorted []string
	if ino.readOnly() {
		for _, n := range fs.base.ReadDir(ino.base) {
			names[n] = true
			sorted = append(sorted, n)
		}
	}
	for n, c := range ino.children {
		// What was only looked up in a folder of the base and is not listed
		// there stays unlisted.
		if !names[n] && (!ino.readOnly() || !c.readOnly() || c.info.Inode == 0) {
			sorted = append(sorted, n)
		}
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		if c := ino.child(n); c != nil {
			out = append(out, Dirent{n, c.number, c.kind})
		}
	}
	return out
}
