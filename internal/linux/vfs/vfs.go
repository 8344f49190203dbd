package vfs

import (
	"path"
	"syscall"
)

// Bounds of names and trees (include/uapi/linux/limits.h; fs/namei.c).
const (
	maxPath  = 4096
	maxName  = 255
	maxLinks = 40
	// maxDepth bounds how deep folders may nest, so that walking up or down a
	// tree is bounded too.
	maxDepth = 256
	// maxFile bounds a file's length: holes cost nothing, but offsets must not
	// overflow.
	maxFile = 1 << 40
)

// Device numbers of the two layers, as stat shows them.
const (
	// BaseDev is the device of everything read-only.
	BaseDev = 2
	// layerDev is the device of the writable layer.
	layerDev = 3
)

// baseTime is the time stamp of everything in the base.
const baseTime = 1700000000

// owner is the user and group that own the writable layer.
const owner = 1000

// Kind is what an inode is.
type Kind uint8

// The kinds of inodes.
const (
	File Kind = iota + 1
	Dir
	Symlink
	Device
)

// Info describes an entry of a base.
type Info struct {
	Kind       Kind
	Size       int64
	Executable bool
	// Target is where a symbolic link points.
	Target string
	// Inode is unique within the base.
	Inode uint64
}

// Base is a read-only tree. Paths are absolute and clean.
type Base interface {
	// Lookup finds an entry.
	Lookup(path string) (Info, bool)
	// ReadDir gives a folder's names, sorted.
	ReadDir(path string) []string
	// Content gives a file's bytes, which are never written to.
	Content(path string) ([]byte, error)
}

// Limits bound the writable layer.
type Limits struct {
	// Bytes is the memory for file contents, counted in chunks.
	Bytes int64
	// Inodes is the number of files, folders and links.
	Inodes int
}

// Clock gives the time for time stamps.
type Clock func() (sec, nsec int64)

// FS is one guest's file tree.
type FS struct {
	base   Base
	limits Limits
	clock  Clock
	root   *Inode
	bytes  int64
	inodes int
	next   uint64
}

// Inode is a file, folder, link or device.
type Inode struct {
	fs     *FS
	kind   Kind
	number uint64
	parent *Inode // folders, and everything of the base
	name   string
	// base is the path in the base; empty in the writable layer.
	base string
	info Info
	// children are a folder's entries: all of a writable one's, those looked up
	// so far of one in the base.
	children map[string]*Inode

	mode               uint32
	rdev               uint64
	target             string
	data               *contents
	nlink, refs, depth int
	atime, mtime       Time
	ctime              Time
}

// Time is a time stamp to set: Now takes the clock's, Omit leaves it as it is.
type Time struct {
	Sec, Nsec int64
	Now, Omit bool
}

// New makes a tree with an empty writable layer.
func New(base Base, lim Limits, clock Clock) *FS {
	fs := &FS{base: base, limits: lim, clock: clock, next: 1}
	info, ok := base.Lookup("/")
	if !ok {
		info = Info{Kind: Dir, Inode: 1}
	}
	fs.root = &Inode{fs: fs, kind: Dir, base: "/", info: info, number: info.Inode, mode: 0o555, nlink: 2}
	fs.root.parent = fs.root
	fs.root.children = map[string]*Inode{}
	fs.mount("tmp", 0o1777)
	fs.mount("work", 0o755)
	dev := &Inode{fs: fs, kind: Dir, base: "/dev", info: Info{Kind: Dir}, number: 1<<48 + 1, mode: 0o555, nlink: 2, parent: fs.root, name: "dev", depth: 1}
	dev.children = make(map[string]*Inode, len(devices))
	for i, d := range devices {
		dev.children[d.name] = &Inode{
			fs: fs, kind: Device, base: "/dev/" + d.name, number: 1<<48 + 2 + uint64(i), parent: dev, name: d.name,
			mode: 0o666, rdev: d.rdev, nlink: 1, depth: 2,
		}
	}
	fs.root.children["dev"] = dev
	return fs
}

// devices are the memory devices (Documentation/admin-guide/devices.txt).
var devices = []struct {
	name string
	rdev uint64
}{{"null", 1<<8 | 3}, {"zero", 1<<8 | 5}, {"full", 1<<8 | 7}, {"random", 1<<8 | 8}, {"urandom", 1<<8 | 9}}

// mount puts a writable folder into the root. Its inode is not counted.
func (fs *FS) mount(name string, mode uint32) {
	d := fs.inode(Dir, mode)
	fs.inodes--
	d.parent, d.name, d.nlink, d.depth = fs.root, name, 2, 1
	fs.root.children[name] = d
}

// inode makes an inode of the writable layer that nothing links to yet.
func (fs *FS) inode(k Kind, mode uint32) *Inode {
	fs.inodes++
	fs.next++
	i := &Inode{fs: fs, kind: k, mode: mode & 0o7777, number: fs.next}
	switch k {
	case Dir:
		i.children = map[string]*Inode{}
	case File:
		i.data = &contents{fs: fs}
	}
	i.touch(true, true, true)
	return i
}

func (i *Inode) touch(a, m, c bool) {
	sec, nsec := i.fs.clock()
	now := Time{Sec: sec, Nsec: nsec}
	if a {
		i.atime = now
	}
	if m {
		i.mtime = now
	}
	if c {
		i.ctime = now
	}
}

// Root is the top of the tree.
func (fs *FS) Root() *Inode { return fs.root }

// readOnly reports whether an inode belongs to the base.
func (i *Inode) readOnly() bool { return i.base != "" }

// Kind is what the inode is.
func (i *Inode) Kind() Kind { return i.kind }

// ReadLink is where a symbolic link points.
func (i *Inode) ReadLink() string { return i.target }

// child finds an entry of a folder.
func (i *Inode) child(name string) *Inode {
	if c, ok := i.children[name]; ok {
		return c
	}
	if !i.readOnly() {
		return nil
	}
	p := path.Join(i.base, name)
	info, ok := i.fs.base.Lookup(p)
	if !ok {
		return nil
	}
	c := &Inode{
		fs: i.fs, kind: info.Kind, base: p, info: info, number: info.Inode, parent: i, name: name,
		target: info.Target, nlink: 1, depth: i.depth + 1,
	}
	switch {
	case info.Kind == Dir:
		c.mode, c.nlink = 0o555, 2
	case info.Kind == Symlink:
		c.mode = 0o777
	case info.Executable:
		c.mode = 0o555
	default:
		c.mode = 0o444
	}
	if i.children == nil {
		i.children = map[string]*Inode{}
	}
	i.children[name] = c
	return c
}

// Path gives the path of an inode; false when it has none any more, or is a
// file of the writable layer whose links are not tracked.
func (fs *FS) Path(ino *Inode) (string, bool) {
	if ino.base != "" {
		return ino.base, true
	}
	if ino.kind != Dir || ino.nlink == 0 {
		return "", false
	}
	p := ""
	for n := 0; ino != fs.root; n++ {
		if n > maxDepth || ino.parent == nil || ino.nlink == 0 {
			return "", false
		}
		p = "/" + ino.name + p
		ino = ino.parent
	}
	return p, true
}

// Stat is what stat says of an inode.
type Stat struct {
	Dev, Ino, Nlink     uint64
	Mode, UID, GID      uint32
	Rdev                uint64
	Size                int64
	Blksize, Blocks     int64
	AtimeSec, AtimeNsec int64
	MtimeSec, MtimeNsec int64
	CtimeSec, CtimeNsec int64
}

// Stat describes the inode.
func (i *Inode) Stat() Stat {
	s := Stat{Dev: BaseDev, Ino: i.number, Nlink: uint64(max(i.nlink, 0)), Mode: i.mode, Rdev: i.rdev, Blksize: 4096}
	switch i.kind {
	case File:
		s.Mode |= syscall.S_IFREG
	case Dir:
		s.Mode |= syscall.S_IFDIR
	case Symlink:
		s.Mode |= syscall.S_IFLNK
		s.Size = int64(len(i.target))
	case Device:
		s.Mode |= syscall.S_IFCHR
	}
	if i.readOnly() {
		if i.kind == File {
			s.Size = i.info.Size
			s.Blocks = (s.Size + 511) / 512
		}
		s.AtimeSec, s.MtimeSec, s.CtimeSec = baseTime, baseTime, baseTime
		return s
	}
	s.Dev, s.UID, s.GID = layerDev, owner, owner
	if i.data != nil {
		s.Size, s.Blocks = i.data.size, i.data.allocated()/512
	}
	s.AtimeSec, s.AtimeNsec = i.atime.Sec, i.atime.Nsec
	s.MtimeSec, s.MtimeNsec = i.mtime.Sec, i.mtime.Nsec
	s.CtimeSec, s.CtimeNsec = i.ctime.Sec, i.ctime.Nsec
	return s
}

// Ref keeps an inode alive while a descriptor or the working folder needs it.
func (fs *FS) Ref(ino *Inode) { ino.refs++ }

// Unref ends what Ref began; the last of an unlinked inode gives its room back.
func (fs *FS) Unref(ino *Inode) {
	if ino == nil || ino.refs == 0 {
		return
	}
	ino.refs--
	fs.reap(ino)
}

// reap frees an inode that nothing can reach.
func (fs *FS) reap(ino *Inode) {
	if ino.readOnly() || ino.nlink > 0 || ino.refs > 0 || ino.fs == nil {
		return
	}
	if ino.data != nil {
		ino.data.truncate(0)
	}
	fs.inodes--
	ino.fs = nil
}

// Usage is what a file system holds.
type Usage struct {
	// Blocks and Free count 4 KiB blocks, Files and FilesFree inodes.
	Blocks, Free, Files, FilesFree uint64
}

// Statfs tells how much room the layer of an inode has.
func (fs *FS) Statfs(ino *Inode) Usage {
	if ino.readOnly() {
		return Usage{}
	}
	return Usage{
		Blocks: uint64(fs.limits.Bytes) / 4096, Free: uint64(max(fs.limits.Bytes-fs.bytes, 0)) / 4096,
		Files: uint64(fs.limits.Inodes), FilesFree: uint64(max(fs.limits.Inodes-fs.inodes, 0)),
	}
}
