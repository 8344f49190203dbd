//go:build linux

package vfs

// Bounds of paths and trees.
const (
	// maxPath is PATH_MAX (include/uapi/linux/limits.h): a path's bytes and the
	// NUL that ends it.
	maxPath = 4096
	// maxName is NAME_MAX.
	maxName = 255
	// maxLinks is MAXSYMLINKS (include/linux/namei.h).
	maxLinks = 40
	// maxDepth is how deep folders may nest below the root of the tree.
	maxDepth = 256
	// maxFile bounds a file's size, holes included: that of ext4 with blocks of
	// 4 KiB.
	maxFile = 16 << 40
)

// Device numbers, as stat shows them: inode numbers of the two layers come
// from different counters, and only the pair of both numbers is unique.
const (
	// BaseDev is the device of everything that is read-only.
	BaseDev = 2
	// layerDev is the device of the writable layer.
	layerDev = 3
)

// ownInode is the first inode number of what the base does not have but its
// device shows (/dev); it is above any number that a base may use.
const ownInode = 1 << 48

// baseTime is the time stamp of everything in the base, in seconds. It is the
// same for every image, so that a guest learns nothing from it.
const baseTime = 1700000000

// Owners: the base belongs to root, the layer to the guest's user.
const (
	baseOwner  = 0
	layerOwner = 1000
)

// Base is a read-only tree. Paths are absolute and clean. Its methods are
// called by many trees at once.
type Base interface {
	// Lookup finds an entry; it does not follow symbolic links.
	Lookup(path string) (Info, bool)
	// ReadDir gives a folder's names, sorted.
	ReadDir(path string) []string
	// Content gives a file's bytes, which are never written to.
	Content(path string) ([]byte, error)
}

// Info describes an entry of a base.
type Info struct {
	Kind Kind
	// Size is a file's length in bytes.
	Size int64
	// Executable says that a file may be run.
	Executable bool
	// Target is where a symbolic link points.
	Target string
	// Inode is unique within the base, and below 1<<48.
	Inode uint64
}

// Limits bound the writable layer. Reaching one is ENOSPC.
type Limits struct {
	// Bytes is the memory for file contents, counted in pages of 4 KiB.
	Bytes int64
	// Inodes is the number of files, folders and symbolic links; every further
	// name of a file counts as another one.
	Inodes int
}

// Clock gives the guest's time for time stamps: seconds since 1970 and
// nanoseconds.
type Clock func() (sec, nsec int64)

// FS is one guest's file tree.
type FS struct {
	base   Base
	limits Limits
	clock  Clock

	// What the layer uses of its limits.
	bytes  int64
	inodes int
	// next is the layer's next inode number.
	next uint64

	// What every tree has is part of the structure, so that making one
	// allocates once.
	root, dev, tmp, work Inode
	devices              [len(devices)]Inode
}

// devices are the memory devices (Documentation/admin-guide/devices.txt),
// sorted by name.
var devices = [...]struct {
	name string
	rdev uint64
}{
	{"full", 1<<8 | 7},
	{"null", 1<<8 | 3},
	{"random", 1<<8 | 8},
	{"urandom", 1<<8 | 9},
	{"zero", 1<<8 | 5},
}

// New makes a tree with an empty writable layer. It costs about a microsecond:
// everything else is made when it is looked up.
func New(base Base, lim Limits, clock Clock) *FS {
	fs := &FS{base: base, limits: lim, clock: clock, next: 1}
	info, ok := base.Lookup("/")
	if !ok || info.Kind != Dir {
		info = Info{Inode: ownInode}
	}
	info.Kind = Dir
	fs.root.setBase(fs, "/", info)
	fs.root.parent = &fs.root
	fs.dev.setBase(fs, "/dev", Info{Kind: Dir, Inode: ownInode + 1})
	fs.dev.parent, fs.dev.name = &fs.root, "dev"
	for i, d := range devices {
		ino := &fs.devices[i]
		ino.setBase(fs, "", Info{Kind: Device, Inode: ownInode + 2 + uint64(i)})
		ino.parent, ino.name, ino.rdev, ino.mode = &fs.dev, d.name, d.rdev, 0o666
	}
	fs.mount(&fs.tmp, "tmp", 0o1777)
	fs.mount(&fs.work, "work", 0o755)
	return fs
}

// mount makes a root of the writable layer. It is not charged: nothing a guest
// does makes or removes one.
func (fs *FS) mount(ino *Inode, name string, mode uint32) {
	fs.set(ino, Dir, mode)
	ino.parent, ino.name, ino.nlink = &fs.root, name, 2
}

// mounted finds what the tree has at a place of its own, whatever the base has
// there.
func (fs *FS) mounted(dir *Inode, name string) *Inode {
	switch dir {
	case &fs.root:
		switch name {
		case "dev":
			return &fs.dev
		case "tmp":
			return &fs.tmp
		case "work":
			return &fs.work
		}
	case &fs.dev:
		for i := range fs.devices {
			if fs.devices[i].name == name {
				return &fs.devices[i]
			}
		}
	}
	return nil
}

// Root is the top of the tree.
func (fs *FS) Root() *Inode { return &fs.root }

// Usage is how much room there is.
type Usage struct {
	// Blocks and Free count 4 KiB blocks.
	Blocks, Free uint64
	// Files and FilesFree count inodes.
	Files, FilesFree uint64
}

// Statfs tells how much room there is where an inode is; there is none at all
// in the base.
func (fs *FS) Statfs(ino *Inode) Usage {
	if !ino.layer {
		return Usage{}
	}
	return Usage{
		Blocks: uint64(max(fs.limits.Bytes, 0)) / pageSize, Free: uint64(max(fs.limits.Bytes-fs.bytes, 0)) / pageSize,
		Files: uint64(max(fs.limits.Inodes, 0)), FilesFree: uint64(max(fs.limits.Inodes-fs.inodes, 0)),
	}
}

// charge takes bytes from the limit, all or nothing.
func (fs *FS) charge(bytes int64) bool {
	if bytes > fs.limits.Bytes-fs.bytes {
		return false
	}
	fs.bytes += bytes
	return true
}
