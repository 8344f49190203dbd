//go:build linux

package vfs

import (
	"strings"
	"syscall"
)

// last tells what the last component of a path is.
type last uint8

const (
	lastName last = iota
	lastDot
	lastDotDot
	lastRoot // there is none: the path is "/"
)

// place is where a path leads: an entry of a folder, which may not exist.
type place struct {
	dir  *Inode
	name string
	last last
	// slash: something follows the name, so it ought to be a folder.
	slash bool
}

// find gives the entry at a place.
func (at place) find() (*Inode, syscall.Errno) {
	switch at.last {
	case lastDot, lastRoot:
		return at.dir, 0
	case lastDotDot:
		return at.dir.parent, 0
	}
	return at.dir.lookup(at.name)
}

// lookup finds an entry of a folder by its name.
func (ino *Inode) lookup(name string) (*Inode, syscall.Errno) {
	if ino.nlink == 0 {
		return nil, syscall.ENOENT
	}
	if len(name) > maxName {
		return nil, syscall.ENAMETOOLONG
	}
	if c := ino.child(name); c != nil {
		return c, 0
	}
	return nil, syscall.ENOENT
}

// walk is a path being followed.
type walk struct {
	// dir is the folder that has been reached.
	dir *Inode
	// links counts the symbolic links so far.
	links int
}

// start begins a walk at dir, after checking the path itself.
func start(dir *Inode, path string) (walk, syscall.Errno) {
	switch {
	case path == "":
		return walk{}, syscall.ENOENT
	case len(path) >= maxPath:
		return walk{}, syscall.ENAMETOOLONG
	case strings.IndexByte(path, 0) >= 0:
		return walk{}, syscall.EINVAL
	case path[0] != '/' && dir.kind != Dir:
		return walk{}, syscall.ENOTDIR
	}
	return walk{dir: dir}, 0
}

// toLast follows all but the last component of a path, and leaves what that
// one is to the caller (link_path_walk of fs/namei.c).
func (w *walk) toLast(path string) (place, syscall.Errno) {
	// later holds what comes after each symbolic link being followed. None of
	// it is empty or starts with a slash.
	var later []string
	for {
		if path != "" && path[0] == '/' {
			w.dir = &w.dir.fs.root
			path = strings.TrimLeft(path, "/")
		}
		if path == "" {
			if len(later) == 0 {
				return place{dir: w.dir, last: lastRoot}, 0
			}
			path, later = later[len(later)-1], later[:len(later)-1]
		}
		if e := w.dir.Access(MayExec); e != 0 {
			return place{}, e
		}
		name, rest, slash := strings.Cut(path, "/")
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			if len(later) == 0 {
				return place{dir: w.dir, name: name, last: lastOf(name), slash: slash}, 0
			}
			rest, later = later[len(later)-1], later[:len(later)-1]
		}
		ino, e := place{dir: w.dir, name: name, last: lastOf(name)}.find()
		switch {
		case e != 0:
			return place{}, e
		case ino.kind == Symlink:
			if path, e = w.enter(ino); e != 0 {
				return place{}, e
			}
			later = append(later, rest)
		case ino.kind != Dir:
			return place{}, syscall.ENOTDIR
		default:
			w.dir, path = ino, rest
		}
	}
}

func lastOf(name string) last {
	switch name {
	case ".":
		return lastDot
	case "..":
		return lastDotDot
	}
	return lastName
}

// enter gives the path that a symbolic link stands for.
func (w *walk) enter(link *Inode) (string, syscall.Errno) {
	w.links++
	switch {
	case w.links > maxLinks:
		return "", syscall.ELOOP
	case link.target == "":
		return "", syscall.ENOENT
	}
	return link.target, 0
}

// Resolve finds what a path leads to. dir is where a relative path starts;
// follow says whether a symbolic link at its end is followed, as one with a
// slash behind it always is.
func (fs *FS) Resolve(dir *Inode, path string, follow bool) (*Inode, syscall.Errno) {
	w, e := start(dir, path)
	if e != 0 {
		return nil, e
	}
	mustDir := false
	for {
		at, e := w.toLast(path)
		if e != 0 {
			return nil, e
		}
		if at.slash {
			follow, mustDir = true, true
		}
		ino, e := at.find()
		switch {
		case e != 0:
			return nil, e
		case ino.kind == Symlink && follow:
			if path, e = w.enter(ino); e != 0 {
				return nil, e
			}
		case mustDir && ino.kind != Dir:
			return nil, syscall.ENOTDIR
		default:
			return ino, 0
		}
	}
}

// parentOf follows a path to its last component, whatever that one is.
func (fs *FS) parentOf(dir *Inode, path string) (place, syscall.Errno) {
	w, e := start(dir, path)
	if e != 0 {
		return place{}, e
	}
	return w.toLast(path)
}
