package vfs

import (
	"strings"
	"syscall"
)

// place is where a path leads: an entry of a folder that may not exist yet.
type place struct {
	dir  *Inode
	name string // empty for the root, "." and ".."
	ino  *Inode // nil when there is no such entry
	// mustDir: the path ended in a slash.
	mustDir bool
}

// walk follows a path. follow says whether a final symbolic link is followed.
func (fs *FS) walk(dir *Inode, p string, follow bool) (place, syscall.Errno) {
	switch {
	case p == "":
		return place{}, syscall.ENOENT
	case len(p) >= maxPath || strings.IndexByte(p, 0) >= 0:
		return place{}, syscall.ENAMETOOLONG
	}
	links := 0
	return fs.follow(dir, p, follow, &links)
}

func (fs *FS) follow(dir *Inode, p string, follow bool, links *int) (place, syscall.Errno) {
	at := place{dir: dir, ino: dir}
	if p[0] == '/' {
		at = place{dir: fs.root, ino: fs.root}
	}
	for p != "" {
		p = strings.TrimLeft(p, "/")
		if p == "" {
			at.mustDir = true
			break
		}
		name := p
		if i := strings.IndexByte(p, '/'); i >= 0 {
			name, p = p[:i], p[i:]
		} else {
			p = ""
		}
		if len(name) > maxName {
			return place{}, syscall.ENAMETOOLONG
		}
		cur := at.ino
		if cur == nil {
			return place{}, syscall.ENOENT
		}
		if cur.kind != Dir {
			return place{}, syscall.ENOTDIR
		}
		switch name {
		case ".":
			at = place{dir: cur, ino: cur}
			continue
		case "..":
			if cur.parent != nil {
				cur = cur.parent
			}
			at = place{dir: cur, ino: cur}
			continue
		}
		if !cur.readOnly() && cur.mode&0o100 == 0 {
			return place{}, syscall.EACCES
		}
		at = place{dir: cur, name: name, ino: cur.child(name)}
		last := strings.Trim(p, "/") == ""
		if at.ino == nil || at.ino.kind != Symlink || last && !follow && p == "" {
			continue
		}
		if *links++; *links > maxLinks {
			return place{}, syscall.ELOOP
		}
		if at.ino.target == "" {
			return place{}, syscall.ENOENT
		}
		next, e := fs.follow(cur, at.ino.target, true, links)
		if e != 0 {
			return place{}, e
		}
		at = next
	}
	if at.mustDir && at.ino != nil && at.ino.kind != Dir {
		return place{}, syscall.ENOTDIR
	}
	return at, 0
}

// Resolve finds the inode of a path that starts at dir when it is relative.
func (fs *FS) Resolve(dir *Inode, p string, follow bool) (*Inode, syscall.Errno) {
	at, e := fs.walk(dir, p, follow)
	if e != 0 {
		return nil, e
	}
	if at.ino == nil {
		return nil, syscall.ENOENT
	}
	return at.ino, 0
}

// changeable says why a folder's entries cannot be changed.
func changeable(dir *Inode) syscall.Errno {
	switch {
	case dir.readOnly():
		return syscall.EROFS
	case dir.nlink == 0:
		return syscall.ENOENT
	case dir.mode&0o300 != 0o300:
		return syscall.EACCES
	}
	return 0
}

// slot finds where a new entry goes.
func (fs *FS) slot(dir *Inode, p string) (place, syscall.Errno) {
	at, e := fs.walk(dir, p, false)
	switch {
	case e != 0:
		return place{}, e
	case at.name == "" || at.ino != nil:
		return place{}, syscall.EEXIST
	}
	if e := changeable(at.dir); e != 0 {
		return place{}, e
	}
	if fs.inodes >= fs.limits.Inodes {
		return place{}, syscall.ENOSPC
	}
	return at, 0
}

// link puts an inode into a folder.
func (at place) link(ino *Inode) {
	at.dir.children[at.name] = ino
	ino.nlink++
	if ino.kind == Dir {
		ino.parent, ino.name, ino.depth = at.dir, at.name, at.dir.depth+1
		at.dir.nlink++
	}
	at.dir.touch(false, true, true)
}

// unlink takes an entry out of its folder and frees what nobody needs.
func (fs *FS) unlink(at place) {
	delete(at.dir.children, at.name)
	at.ino.nlink--
	if at.ino.kind == Dir {
		at.ino.nlink = 0
		at.dir.nlink--
	}
	at.dir.touch(false, true, true)
	at.ino.touch(false, false, true)
	fs.reap(at.ino)
}

// oTmpfile is O_TMPFILE without O_DIRECTORY (include/uapi/asm-generic/fcntl.h).
const oTmpfile = 0o20000000

// Open finds or makes the file that open is asked for. The caller takes a
// reference.
func (fs *FS) Open(dir *Inode, p string, flags int, mode uint32) (*Inode, syscall.Errno) {
	access := flags & syscall.O_ACCMODE
	if flags&oTmpfile != 0 {
		return fs.openTemp(dir, p, access, mode)
	}
	create := flags&syscall.O_CREAT != 0
	exclusive := create && flags&syscall.O_EXCL != 0
	at, e := fs.walk(dir, p, flags&syscall.O_NOFOLLOW == 0 && !exclusive)
	if e != 0 {
		return nil, e
	}
	if at.ino == nil {
		if !create {
			return nil, syscall.ENOENT
		}
		if at.mustDir {
			return nil, syscall.EISDIR
		}
		if e := changeable(at.dir); e != 0 {
			return nil, e
		}
		if fs.inodes >= fs.limits.Inodes {
			return nil, syscall.ENOSPC
		}
		ino := fs.inode(File, mode)
		at.link(ino)
		return ino, 0
	}
	ino := at.ino
	switch {
	case exclusive:
		return nil, syscall.EEXIST
	case ino.kind == Symlink:
		return nil, syscall.ELOOP
	case ino.kind != Dir && flags&syscall.O_DIRECTORY != 0:
		return nil, syscall.ENOTDIR
	case ino.kind == Dir && (access != syscall.O_RDONLY || create):
		return nil, syscall.EISDIR
	}
	write := access != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0
	if ino.kind == File && write && ino.readOnly() {
		return nil, syscall.EROFS
	}
	if !ino.readOnly() {
		if write && ino.mode&0o200 == 0 || access != syscall.O_WRONLY && ino.mode&0o400 == 0 {
			return nil, syscall.EACCES
		}
	}
	if ino.kind == File && flags&syscall.O_TRUNC != 0 {
		return ino, fs.Truncate(ino, 0)
	}
	return ino, 0
}

func (fs *FS) openTemp(dir *Inode, p string, access int, mode uint32) (*Inode, syscall.Errno) {
	d, e := fs.Resolve(dir, p, true)
	switch {
	case e != 0:
		return nil, e
	case d.kind != Dir:
		return nil, syscall.ENOTDIR
	case access == syscall.O_RDONLY:
		return nil, syscall.EINVAL
	case fs.inodes >= fs.limits.Inodes:
		return nil, syscall.ENOSPC
	}
	if e := changeable(d); e != 0 {
		return nil, e
	}
	return fs.inode(File, mode), 0
}
