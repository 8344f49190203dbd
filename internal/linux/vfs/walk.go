package vfs

import (
	"strings"
	"syscall"
)

// walker walks a path. It follows no link by recursion: the target of a link
// is put in front of what is left of the path.
type walker struct {
	fs *FS
	// dir is the folder reached.
	dir *Inode
	// rest is what is left to walk, then the slashes that follow the last name.
	rest string
	// name is the last name, "" when the path was nothing but slashes.
	name     string
	followed int
}

// walk starts a walk of a path at a folder and goes to its last name.
func (fs *FS) walk(dir *Inode, path string) (walker, syscall.Errno) {
	w := walker{fs: fs, dir: dir, rest: path}
	switch {
	case path == "":
		return w, syscall.ENOENT
	case len(path) > maxPath:
		return w, syscall.ENAMETOOLONG
	case path[0] == '/':
		w.dir = &fs.root
	}
	return w, w.toLast()
}

// toLast walks up to the last name, which is not looked up.
func (w *walker) toLast() syscall.Errno {
	for {
		w.rest = strings.TrimLeft(w.rest, "/")
		if w.rest == "" {
			w.name = ""
			return 0
		}
		if w.dir.kind != Dir {
			return syscall.ENOTDIR
		}
		if e := w.dir.permit(mayExec); e != 0 {
			return e
		}
		name := w.rest
		if i := strings.IndexByte(name, '/'); i >= 0 {
			name = name[:i]
		}
		w.rest = w.rest[len(name):]
		if strings.TrimLeft(w.rest, "/") == "" {
			w.name = name
			return 0
		}
		next, e := w.lookup(name)
		switch {
		case e != 0:
			return e
		case next == nil:
			return syscall.ENOENT
		case next.kind == Symlink:
			if e := w.follow(next); e != 0 {
				return e
			}
		case next.kind != Dir:
			return syscall.ENOTDIR
		default:
			w.dir = next
		}
	}
}

// follow puts the target of a symbolic link in front of the rest.
func (w *walker) follow(l *Inode) syscall.Errno {
	if w.followed++; w.followed > maxFollowed {
		return syscall.ELOOP
	}
	target := l.ReadLink()
	switch {
	case target == "":
		return syscall.ENOENT
	case len(target) > maxPath:
		return syscall.ENAMETOOLONG
	case target[0] == '/':
		w.dir = &w.fs.root
	}
	w.rest = target + w.rest
	return 0
}

// slash says whether slashes follow the last name, which must be a folder then.
func (w *walker) slash() bool { return w.rest != "" }

// ordinary says whether the path ends with a name that can be given to
// something, and not with ".", ".." or the root.
func (w *walker) ordinary() bool { return w.name != "" && w.name != "." && w.name != ".." }

// last looks the last name up, as lookup does.
func (w *walker) last() (*Inode, syscall.Errno) {
	if w.name == "" {
		return w.dir, 0
	}
	return w.lookup(w.name)
}

// lookup finds a name in the folder reached: nil when it is not there. It
// fails when it cannot be there: with ENAMETOOLONG, or ENOENT for any name in a
// removed folder.
func (w *walker) lookup(name string) (*Inode, syscall.Errno) {
	switch {
	case name == "." || name == "..":
	case w.dir.removed():
		return nil, syscall.ENOENT
	case len(name) > maxName:
		return nil, syscall.ENAMETOOLONG
	}
	return w.dir.child(name), 0
}

// Resolve finds what a path names, from dir if it is relative. The last name
// is followed if it is a symbolic link and follow is set or a slash ends the
// path. It fails as Linux does: ENOENT also for an empty path, ENOTDIR,
// EACCES, ENAMETOOLONG, and ELOOP after 40 links.
func (fs *FS) Resolve(dir *Inode, path string, follow bool) (*Inode, syscall.Errno) {
	w, e := fs.walk(dir, path)
	for e == 0 {
		ino, lost := w.last()
		switch {
		case lost != 0:
			return nil, lost
		case ino == nil:
			return nil, syscall.ENOENT
		case ino.kind == Symlink && (follow || w.slash()):
			if e = w.follow(ino); e == 0 {
				e = w.toLast()
			}
		case w.slash() && ino.kind != Dir:
			return nil, syscall.ENOTDIR
		default:
			return ino, 0
		}
	}
	return nil, e
}
