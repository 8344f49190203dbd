package vfs

import "syscall"

// Kind says what an inode is.
type Kind uint8

// The kinds of inode. There are no FIFOs. A socket is only the name of one.
const (
	File Kind = iota
	Dir
	Symlink
	Device
	Socket
)

// Info describes one entry of a base.
type Info struct {
	Kind Kind
	// Size is the length of a file in bytes.
	Size int64
	// Executable adds the execute bits to a file's mode.
	Executable bool
	// Target is where a symbolic link points, less than 4096 bytes.
	Target string
	// Inode is the inode number, unique in the base and below 1<<48.
	Inode uint64
}

// Base is the read-only tree under a guest's. Paths are absolute and clean.
// Guests share it, so its methods are safe for concurrent use and always
// answer the same.
type Base interface {
	// Lookup describes the entry at a path; false when there is none. It does
	// not follow symbolic links.
	Lookup(path string) (Info, bool)
	// ReadDir gives the sorted names in a folder.
	ReadDir(path string) []string
	// Content gives the bytes of a file. They are shared and never written to.
	Content(path string) ([]byte, error)
}

// Limits bounds the writable layer. A layer without room is read-only in
// effect: creating and writing fail with ENOSPC.
type Limits struct {
	// Bytes bounds the allocated blocks of files, of 4096 bytes each, and the
	// targets of symbolic links. Holes cost nothing.
	Bytes int64
	// Inodes bounds the names in the layer, counting every hard link, plus the
	// inodes that are open but have no name. /tmp and /work are not counted.
	Inodes int
}

// Clock gives the guest's idea of the time, since the Unix epoch.
type Clock func() (sec int64, nsec int64)

// Device numbers as Stat.Dev gives them.
const (
	// BaseDev is the device of the base and of /dev.
	BaseDev uint64 = 21
	// LayerDev is the device of the writable layer.
	LayerDev uint64 = 22
)

const (
	// ownerID is the user and the group that own the writable layer.
	ownerID = 1000
	// baseTime is the time stamp of everything in the base.
	baseTime = 1700000000
	// ownNumbers is where the inode numbers begin of what the tree itself adds
	// to the base's device.
	ownNumbers = 1 << 48

	// maxPath and maxName bound a path and one name in it, in bytes (PATH_MAX
	// includes the final zero byte).
	maxPath = 4095
	maxName = 255
	// maxFollowed is how many symbolic links one walk follows (MAXSYMLINKS).
	maxFollowed = 40
	// maxDepth bounds the folders above a name in the writable layer.
	maxDepth = 1024
	// maxLinks bounds the hard links to one file.
	maxLinks = 4096
)

// FS is one guest's tree.
type FS struct {
	base   Base
	limits Limits
	clock  Clock

	root, tmp, work, dev Inode

	// bytes and inodes are what is in use of the limits.
	bytes  int64
	inodes int
	// orphans counts inodes of the layer without a name.
	orphans int
	// number is the last inode number given in the layer.
	number uint64
}

// New makes a tree with an empty writable layer over a base. It looks up the
// base's root only; the inodes of the base are made when first asked for.
func New(base Base, lim Limits, clock Clock) *FS {
	fs := &FS{base: base, limits: lim, clock: clock}
	fs.root = Inode{fs: fs, kind: Dir, base: true, number: ownNumbers, name: "/"}
	if info, ok := base.Lookup("/"); ok {
		fs.root.number = info.Inode
	}
	fs.root.parent = &fs.root
	fs.dev = Inode{fs: fs, kind: Dir, base: true, number: ownNumbers + 1, parent: &fs.root, name: "dev"}
	fs.top(&fs.tmp, "tmp", 0o1777)
	fs.top(&fs.work, "work", 0o755)
	return fs
}

// top makes one of the folders in which the writable layer begins.
func (fs *FS) top(ino *Inode, name string, mode uint32) {
	fs.number++
	*ino = Inode{fs: fs, kind: Dir, number: fs.number, mode: mode, nlink: 1, parent: &fs.root, name: name}
	ino.stamp(atime | mtime | ctime)
}

// Root gives the root folder.
func (fs *FS) Root() *Inode { return &fs.root }

// Usage is what Statfs tells of a file system, in blocks of 4096 bytes.
type Usage struct {
	// Blocks is the size, Free how much of it is left.
	Blocks, Free uint64
	// Files is how many inodes there can be, FilesFree how many are left.
	Files, FilesFree uint64
}

// Statfs tells how full the file system is that an inode is on. The base is
// told to be as large as the layer, and full.
func (fs *FS) Statfs(ino *Inode) Usage {
	u := Usage{Blocks: uint64(max(fs.limits.Bytes, 0)) / chunkSize, Files: uint64(max(fs.limits.Inodes, 0))}
	if ino.base {
		return u
	}
	u.Free = uint64(max(fs.limits.Bytes-fs.bytes, 0)) / chunkSize
	u.FilesFree = uint64(max(fs.limits.Inodes-fs.inodes, 0))
	return u
}

// newInode makes an inode of the layer without a name yet. charge is what it
// takes of the bytes.
func (fs *FS) newInode(kind Kind, mode uint32, charge int64) (*Inode, syscall.Errno) {
	if fs.inodes >= fs.limits.Inodes || !fs.takeBytes(charge) {
		return nil, syscall.ENOSPC
	}
	fs.inodes++
	fs.orphans++
	fs.number++
	ino := &Inode{fs: fs, kind: kind, number: fs.number, mode: mode & 0o7777}
	ino.stamp(atime | mtime | ctime)
	return ino, 0
}

// takeBytes charges n bytes to the layer if they fit.
func (fs *FS) takeBytes(n int64) bool {
	if n > fs.limits.Bytes-fs.bytes {
		return false
	}
	fs.bytes += n
	return true
}

// Ref keeps an inode alive when its last name goes: open descriptors and the
// working folder hold one reference each. Inodes of the base need none.
func (fs *FS) Ref(ino *Inode) {
	if !ino.base {
		ino.refs++
	}
}

// Unref gives back one reference. When it was the last one and the inode has
// no name, its bytes and its inode are given back. An inode of the base and
// one without references are left alone.
func (fs *FS) Unref(ino *Inode) {
	for ino.refs > 0 {
		ino.refs--
		if ino.refs > 0 || ino.nlink > 0 {
			return
		}
		if !fs.free(ino) || ino.kind != Dir {
			return
		}
		ino = ino.parent // which the folder held, see lostName
	}
}

// lostName is called when the last name of an inode is gone. A removed folder
// that is still in use holds its parent, so that ".." keeps working.
func (fs *FS) lostName(ino *Inode) {
	fs.orphans++
	switch {
	case ino.refs == 0:
		fs.free(ino)
	case ino.kind == Dir:
		fs.Ref(ino.parent)
	}
}

// free gives back what an inode without names and references took. It reports
// false when that was done before: a removed folder can still be reached
// through a working folder that nobody holds a reference for.
func (fs *FS) free(ino *Inode) bool {
	if ino.freed {
		return false
	}
	ino.freed = true
	fs.orphans--
	fs.inodes--
	fs.bytes -= int64(len(ino.target)) + ino.data.allocated()
	ino.data = contents{}
	return true
}
