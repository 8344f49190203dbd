package vfs

import "syscall"

// Chmod sets the permission bits of an inode of the layer; EROFS in the base.
func (fs *FS) Chmod(ino *Inode, mode uint32) syscall.Errno {
	switch {
	case ino.base:
		return syscall.EROFS
	case ino.kind == Symlink:
		return syscall.EOPNOTSUPP
	}
	ino.mode = mode & 0o7777
	ino.stamp(ctime)
	return 0
}

// Chown accepts the ids the inode has already, and -1 for no change: there is
// only one user. Other ids fail with EPERM, the base with EROFS.
func (fs *FS) Chown(ino *Inode, uid, gid int) syscall.Errno {
	switch {
	case ino.base:
		return syscall.EROFS
	case uid != -1 && uid != ownerID || gid != -1 && gid != ownerID:
		return syscall.EPERM
	}
	ino.stamp(ctime)
	return 0
}

// Utimes sets the times of access and of modification of an inode of the
// layer; EROFS in the base, EINVAL for nanoseconds out of range.
func (fs *FS) Utimes(ino *Inode, access, modify Time) syscall.Errno {
	for _, t := range []Time{access, modify} {
		if !t.Now && !t.Omit && (t.Nsec < 0 || t.Nsec >= 1e9) {
			return syscall.EINVAL
		}
	}
	if access.Omit && modify.Omit {
		return 0
	}
	if ino.base {
		return syscall.EROFS
	}
	for i, t := range []Time{access, modify} {
		switch {
		case t.Omit:
		case t.Now:
			ino.stamp(1 << i)
		default:
			ino.times[i] = Time{Sec: t.Sec, Nsec: t.Nsec}
		}
	}
	ino.stamp(ctime)
	return 0
}
