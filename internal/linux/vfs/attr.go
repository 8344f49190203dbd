//go:build linux

package vfs

import "syscall"

// What may be asked of [Inode.Access], as in access(2).
const (
	MayExec  = 1
	MayWrite = 2
	MayRead  = 4
)

// Access says why the guest's user may not do all of need to an inode: EROFS
// for what is read-only whatever its permissions, else EACCES.
func (ino *Inode) Access(need uint32) syscall.Errno {
	granted := ino.mode >> 6
	if !ino.layer {
		if need&MayWrite != 0 && ino.kind != Device {
			return syscall.EROFS
		}
		granted = ino.mode
	}
	if need&^granted&7 != 0 {
		return syscall.EACCES
	}
	return 0
}

// Stat is what stat says of an inode, under the names of struct stat. Sizes
// are in bytes, Blocks in units of 512 bytes.
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

// formats are the file types of st_mode.
var formats = [...]uint32{File: syscall.S_IFREG, Dir: syscall.S_IFDIR, Symlink: syscall.S_IFLNK, Device: syscall.S_IFCHR}

// Stat describes the inode. A folder of the base has one link, which means
// that nobody has counted the folders in it.
func (ino *Inode) Stat() Stat {
	s := Stat{
		Dev: BaseDev, Ino: ino.number, Nlink: uint64(ino.nlink), Mode: ino.mode | formats[ino.kind],
		UID: baseOwner, GID: baseOwner, Rdev: ino.rdev, Size: ino.size, Blksize: pageSize,
		AtimeSec: baseTime, MtimeSec: baseTime, CtimeSec: baseTime,
	}
	if !ino.layer {
		if ino.kind == File {
			s.Blocks = pagesIn(ino.size) * (pageSize / 512)
		}
		return s
	}
	s.Dev, s.UID, s.GID = layerDev, layerOwner, layerOwner
	switch ino.kind {
	case File:
		s.Blocks = int64(len(ino.data)) * (pageSize / 512)
	case Dir:
		s.Size = pageSize
	case Symlink:
		s.Blocks = targetBytes(ino.target) / 512
	}
	s.AtimeSec, s.AtimeNsec = ino.atime.sec, ino.atime.nsec
	s.MtimeSec, s.MtimeNsec = ino.mtime.sec, ino.mtime.nsec
	s.CtimeSec, s.CtimeNsec = ino.ctime.sec, ino.ctime.nsec
	return s
}

// Chmod sets the permission bits.
func (fs *FS) Chmod(ino *Inode, mode uint32) syscall.Errno {
	switch {
	case !ino.layer:
		return syscall.EROFS
	case ino.kind == Symlink:
		return syscall.EOPNOTSUPP
	}
	ino.mode = mode & 0o7777
	ino.changed()
	return 0
}

// Chown accepts the owner that everything in the layer has, and -1, which
// keeps it.
func (fs *FS) Chown(ino *Inode, uid, gid int) syscall.Errno {
	switch {
	case !ino.layer:
		return syscall.EROFS
	case uid != -1 && uid != layerOwner || gid != -1 && gid != layerOwner:
		return syscall.EPERM
	}
	ino.changed()
	return 0
}

// Time is a time stamp to set: the clock's for Now, none for Omit.
type Time struct {
	Sec, Nsec int64
	Now, Omit bool
}

// Utimes sets the times of the last access and of the last modification.
func (fs *FS) Utimes(ino *Inode, atime, mtime Time) syscall.Errno {
	switch {
	case atime.Omit && mtime.Omit:
		return 0
	case !ino.layer:
		return syscall.EROFS
	}
	now := fs.now()
	set := func(to *stamp, t Time) {
		switch {
		case t.Omit:
		case t.Now:
			*to = now
		default:
			*to = stamp{t.Sec, t.Nsec}
		}
	}
	set(&ino.atime, atime)
	set(&ino.mtime, mtime)
	ino.ctime = now
	return 0
}
