//go:build linux

package vfs

import "syscall"

// Kind is what an inode is.
type Kind uint8

// The kinds of inodes.
const (
	File Kind = iota + 1
	Dir
	Symlink
	Device
)

// Inode is a file, folder, symbolic link or device of a tree. An inode of the
// base is made when it is looked up for the first time and is the same one
// from then on.
type Inode struct {
	fs     *FS
	kind   Kind
	layer  bool // in the writable layer
	number uint64
	mode   uint32 // permission bits
	rdev   uint64
	target string // of a symbolic link

	// nlink is the number of names; 2 and the number of folders in it for a
	// folder of the layer, 0 once it is removed.
	nlink int
	// refs counts what the caller holds, pins the folders below that still
	// exist: a removed folder that is open finds its parent through "..".
	refs, pins int
	// freed: what the inode was charged for has been given back.
	freed bool
	// linkable: made without a name, and may be given one.
	linkable bool

	// parent and name are where a folder is, and where a file was linked last.
	parent *Inode
	name   string
	// children are the entries of a folder: all of them in the layer, those
	// looked up so far in the base.
	children map[string]*Inode

	path string // in the base
	size int64  // of a file
	data pages  // of a file of the layer

	atime, mtime, ctime stamp
}

// stamp is a point in time.
type stamp struct{ sec, nsec int64 }

// setBase makes ino an inode of the base.
func (ino *Inode) setBase(fs *FS, path string, info Info) {
	ino.fs, ino.path, ino.kind, ino.number, ino.nlink = fs, path, info.Kind, info.Inode, 1
	switch info.Kind {
	case Dir:
		ino.mode, ino.size = 0o555, pageSize
	case Symlink:
		ino.mode, ino.target, ino.size = 0o777, info.Target, int64(len(info.Target))
	case File:
		ino.mode, ino.size = 0o444, info.Size
		if info.Executable {
			ino.mode = 0o555
		}
	}
}

// set makes ino an inode of the layer, with a number of its own. It is not
// charged yet.
func (fs *FS) set(ino *Inode, k Kind, mode uint32) {
	ino.fs, ino.layer, ino.kind, ino.mode = fs, true, k, mode&0o7777
	fs.next++
	ino.number = fs.next
	now := fs.now()
	ino.atime, ino.mtime, ino.ctime = now, now, now
}

// newInode makes an inode of the layer that has no name yet. A caller that
// does not give it one must see to it that it is released.
func (fs *FS) newInode(k Kind, mode uint32) (*Inode, syscall.Errno) {
	if fs.inodes >= fs.limits.Inodes {
		return nil, syscall.ENOSPC
	}
	fs.inodes++
	ino := &Inode{}
	fs.set(ino, k, mode)
	return ino, 0
}

func (fs *FS) now() stamp {
	sec, nsec := fs.clock()
	return stamp{sec, nsec}
}

// modified sets the time stamps of a change of contents.
func (ino *Inode) modified() {
	ino.mtime = ino.fs.now()
	ino.ctime = ino.mtime
}

// changed sets the time stamp of a change of attributes.
func (ino *Inode) changed() { ino.ctime = ino.fs.now() }

// Ref keeps an inode alive while an open file or the working folder needs it.
func (fs *FS) Ref(ino *Inode) { ino.refs++ }

// Unref ends what Ref began. What an inode without a name was charged for is
// given back with the last reference; the inode must not be used any more.
func (fs *FS) Unref(ino *Inode) {
	if ino == nil || ino.refs == 0 {
		return
	}
	ino.refs--
	fs.release(ino)
}

// release gives back what an inode was charged for if nothing can reach it any
// more, and goes on with the folder it was in.
func (fs *FS) release(ino *Inode) {
	for ino.layer && ino.nlink == 0 && ino.refs == 0 && ino.pins == 0 && !ino.freed {
		ino.freed = true
		fs.inodes--
		switch ino.kind {
		case Dir:
			ino = ino.parent
			ino.pins--
			continue
		case File:
			ino.resize(0)
		case Symlink:
			fs.bytes -= targetBytes(ino.target)
		case Device:
		}
		return
	}
}

// targetBytes is what a symbolic link's target is charged: a page, unless it
// is so short that it counts as part of the inode (as in mm/shmem.c).
func targetBytes(target string) int64 {
	if len(target) < 128 {
		return 0
	}
	return pageSize
}

// Kind is what the inode is.
func (ino *Inode) Kind() Kind { return ino.kind }

// ReadLink is where a symbolic link points; empty for every other inode.
func (ino *Inode) ReadLink() string { return ino.target }

// child finds an entry of a folder; nil when there is none.
func (ino *Inode) child(name string) *Inode {
	if c, ok := ino.children[name]; ok {
		return c
	}
	if ino.layer {
		return nil
	}
	if c := ino.fs.mounted(ino, name); c != nil {
		return c
	}
	path := ino.childPath(name)
	info, ok := ino.fs.base.Lookup(path)
	if !ok {
		return nil
	}
	c := &Inode{parent: ino, name: name}
	c.setBase(ino.fs, path, info)
	ino.put(name, c)
	return c
}

func (ino *Inode) childPath(name string) string {
	if ino.path == "/" {
		return "/" + name
	}
	return ino.path + "/" + name
}

func (ino *Inode) put(name string, c *Inode) {
	if ino.children == nil {
		ino.children = map[string]*Inode{}
	}
	ino.children[name] = c
}

// depth is how many folders are above one.
func (ino *Inode) depth() int {
	n := 0
	for ; ino != &ino.fs.root; ino = ino.parent {
		n++
	}
	return n
}

// height is how many levels of folders are below one of the layer.
func (ino *Inode) height() int {
	h := 0
	for _, c := range ino.children {
		if c.kind == Dir {
			h = max(h, 1+c.height())
		}
	}
	return h
}

// within reports whether a folder is dir or below it.
func (ino *Inode) within(dir *Inode) bool {
	for ; ino != dir; ino = ino.parent {
		if ino == &ino.fs.root {
			return false
		}
	}
	return true
}

// Path gives the absolute path of an inode. It reports false when there is
// none any more, or when a file was linked last under a name that is gone.
func (fs *FS) Path(ino *Inode) (string, bool) {
	if ino.path != "" {
		return ino.path, true
	}
	var names [maxDepth + 2]string
	first, size := len(names), 0
	for ; ino != &fs.root; ino = ino.parent {
		if ino.nlink == 0 || first == 0 || ino.parent.child(ino.name) != ino {
			return "", false
		}
		first--
		names[first] = ino.name
		size += 1 + len(ino.name)
	}
	path := make([]byte, 0, size)
	for _, n := range names[first:] {
		path = append(append(path, '/'), n...)
	}
	return string(path), true
}
