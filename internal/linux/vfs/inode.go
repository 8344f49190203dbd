package vfs

import (
	"slices"
	"strings"
	"syscall"
)

// Inode is one file, folder, symbolic link or device. It belongs to the tree
// that gave it and is of no use to another.
type Inode struct {
	fs     *FS
	kind   Kind
	base   bool
	number uint64

	// parent and name are the inode's first name, and more are its other hard
	// links. A removed folder keeps its parent.
	parent *Inode
	name   string
	more   []link

	// children are a folder's entries: all of them in the layer, those met so
	// far in the base.
	children map[string]*Inode

	// Of the base only.
	path   string
	info   Info
	rdev   uint64
	shared []byte
	loaded bool

	// Of the layer only. nlink counts names, subdirs the folders in a folder.
	mode     uint32
	nlink    int
	subdirs  int
	refs     int
	linkable bool
	freed    bool
	target   string
	data     contents
	times    [3]Time
}

// link is one name of an inode.
type link struct {
	dir  *Inode
	name string
}

// Time is a time stamp for Utimes.
type Time struct {
	// Sec and Nsec are the time since the Unix epoch.
	Sec, Nsec int64
	// Now asks for the present time, Omit for no change; the other fields are
	// then not looked at.
	Now, Omit bool
}

// The bits of stamp, in the order of Inode.times.
const (
	atime = 1 << iota
	mtime
	ctime
)

// stamp sets time stamps to the present.
func (ino *Inode) stamp(which int) {
	sec, nsec := ino.fs.clock()
	for i := range ino.times {
		if which&(1<<i) != 0 {
			ino.times[i] = Time{Sec: sec, Nsec: nsec}
		}
	}
}

// Kind says what the inode is.
func (ino *Inode) Kind() Kind { return ino.kind }

// ReadLink gives the target of a symbolic link, "" for what is none.
func (ino *Inode) ReadLink() string {
	if ino.base {
		return ino.info.Target
	}
	return ino.target
}

// Stat is what stat tells of an inode.
type Stat struct {
	Dev, Ino, Nlink uint64
	// Mode includes the type bits.
	Mode, UID, GID uint32
	Rdev           uint64
	// Size is in bytes, Blocks in units of 512 bytes.
	Size, Blksize, Blocks int64
	AtimeSec, AtimeNsec   int64
	MtimeSec, MtimeNsec   int64
	CtimeSec, CtimeNsec   int64
}

// Stat describes the inode. The number of links of a base folder is 1, which
// by convention says that folders in it are not counted.
func (ino *Inode) Stat() Stat {
	s := Stat{Ino: ino.number, Blksize: chunkSize}
	if ino.base {
		s.Dev, s.Nlink, s.Rdev, s.Mode, s.Size = BaseDev, 1, ino.rdev, ino.baseMode(), ino.info.Size
		s.AtimeSec, s.MtimeSec, s.CtimeSec = baseTime, baseTime, baseTime
		s.Blocks = (s.Size + 511) / 512
		if ino.kind == Symlink {
			s.Size, s.Blocks = int64(len(ino.info.Target)), 0
		}
		return s
	}
	s.Dev, s.Nlink, s.UID, s.GID = LayerDev, uint64(ino.nlink), ownerID, ownerID
	s.AtimeSec, s.AtimeNsec = ino.times[0].Sec, ino.times[0].Nsec
	s.MtimeSec, s.MtimeNsec = ino.times[1].Sec, ino.times[1].Nsec
	s.CtimeSec, s.CtimeNsec = ino.times[2].Sec, ino.times[2].Nsec
	switch ino.kind {
	case Dir:
		s.Mode, s.Size = syscall.S_IFDIR|ino.mode, chunkSize
		if ino.nlink > 0 {
			s.Nlink = uint64(2 + ino.subdirs)
		}
	case Symlink:
		s.Mode, s.Size = syscall.S_IFLNK|0o777, int64(len(ino.target))
	case Socket:
		s.Mode = syscall.S_IFSOCK | ino.mode
	default:
		s.Mode, s.Size, s.Blocks = syscall.S_IFREG|ino.mode, ino.data.size, ino.data.allocated()/512
	}
	return s
}

func (ino *Inode) baseMode() uint32 {
	switch ino.kind {
	case Dir:
		return syscall.S_IFDIR | 0o555
	case Symlink:
		return syscall.S_IFLNK | 0o777
	case Device:
		return syscall.S_IFCHR | 0o666
	}
	if ino.info.Executable {
		return syscall.S_IFREG | 0o555
	}
	return syscall.S_IFREG | 0o444
}

// The owner's permission bits.
const (
	mayRead  = 0o400
	mayWrite = 0o200
	mayExec  = 0o100
)

// permit checks the owner's bits of an inode of the layer, and that nobody
// writes to the base. Anybody may read the base and walk through it.
func (ino *Inode) permit(want uint32) syscall.Errno {
	switch {
	case ino.base && ino.kind != Device && want&mayWrite != 0:
		return syscall.EROFS
	case !ino.base && ino.kind != Symlink && want&^ino.mode != 0:
		return syscall.EACCES
	}
	return 0
}

// devices are the entries of /dev with their numbers
// (Documentation/admin-guide/devices.txt), sorted by name.
var devices = []struct {
	name string
	rdev uint64
}{
	{"full", 1<<8 | 7},
	{"null", 1<<8 | 3},
	{"random", 1<<8 | 8},
	{"urandom", 1<<8 | 9},
	{"zero", 1<<8 | 5},
}

// deviceNumber is the inode number of entry i of devices.
func deviceNumber(i int) uint64 { return ownNumbers + 2 + uint64(i) }

// child finds one name in a folder; nil when it is not there. The names "."
// and ".." are understood.
func (ino *Inode) child(name string) *Inode {
	switch name {
	case ".":
		return ino
	case "..":
		return ino.parent
	}
	c := ino.children[name]
	if c != nil || !ino.base {
		return c
	}
	if c = ino.baseChild(name); c == nil {
		return nil
	}
	if ino.children == nil {
		ino.children = make(map[string]*Inode)
	}
	ino.children[name] = c
	return c
}

// baseChild makes the inode for an entry of a folder of the base.
func (ino *Inode) baseChild(name string) *Inode {
	fs := ino.fs
	switch ino {
	case &fs.root:
		switch name {
		case "tmp":
			return &fs.tmp
		case "work":
			return &fs.work
		case "dev":
			return &fs.dev
		}
	case &fs.dev:
		for i, d := range devices {
			if d.name == name {
				return &Inode{fs: fs, kind: Device, base: true, number: deviceNumber(i), parent: ino, name: name, rdev: d.rdev}
			}
		}
		return nil
	}
	path := ino.path + "/" + name
	info, ok := fs.base.Lookup(path)
	if !ok {
		return nil
	}
	return &Inode{fs: fs, kind: info.Kind, base: true, number: info.Inode, parent: ino, name: path[len(ino.path)+1:], path: path, info: info}
}

// attach gives an inode of the layer a name in this folder of it. The name is
// free.
func (ino *Inode) attach(name string, c *Inode) {
	name = strings.Clone(name) // or it would keep the whole path in memory
	if c.nlink++; c.nlink == 1 {
		ino.fs.orphans--
		c.parent, c.name = ino, name
	} else {
		c.more = append(c.more, link{ino, name})
	}
	if ino.children == nil {
		ino.children = make(map[string]*Inode)
	}
	ino.children[name] = c
	ino.changed(c, 1)
}

// detach takes a name in this folder away from an inode. The caller sees to
// what becomes of an inode without a name, by lostName or reattach.
func (ino *Inode) detach(name string, c *Inode) {
	delete(ino.children, name)
	if c.nlink--; c.nlink > 0 {
		last := len(c.more) - 1
		if c.parent == ino && c.name == name {
			c.parent, c.name = c.more[last].dir, c.more[last].name
		} else {
			c.more[slices.Index(c.more, link{ino, name})] = c.more[last]
		}
		c.more[last] = link{}
		c.more = c.more[:last]
	}
	ino.changed(c, -1)
}

// changed notes that a name was added to this folder (by = 1) or removed (-1).
func (ino *Inode) changed(c *Inode, by int) {
	if c.kind == Dir {
		ino.subdirs += by
	}
	ino.stamp(mtime | ctime)
	c.times[2] = ino.times[2]
}

// removed says whether a folder of the layer was removed; no name can be added
// to it then.
func (ino *Inode) removed() bool { return !ino.base && ino.nlink == 0 }

// Path gives an absolute path of the inode, one of them if it has several. It is false when the inode has no name, or when the
// path would be longer than a path can be (4095 bytes).
func (fs *FS) Path(ino *Inode) (string, bool) {
	if ino.path != "" {
		return ino.path, true
	}
	n := 0
	for i := ino; i != &fs.root; i = i.parent {
		if i.removed() {
			return "", false
		}
		if n += 1 + len(i.name); n > maxPath {
			return "", false
		}
	}
	if n == 0 {
		return "/", true
	}
	b := make([]byte, n)
	for i := ino; i != &fs.root; i = i.parent {
		n -= len(i.name)
		copy(b[n:], i.name)
		n--
		b[n] = '/'
	}
	return string(b), true
}
