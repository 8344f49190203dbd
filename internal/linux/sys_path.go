package linux

import (
	"encoding/binary"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

const (
	atFDCWD           = -100
	atSymlinkNofollow = 0x100
	atRemoveDir       = 0x200
	atSymlinkFollow   = 0x400
	atEmptyPath       = 0x1000
)

// start gives the folder at which a path relative to dirfd starts.
func (p *Process) start(dirfd uint64, path string) (*vfs.Inode, syscall.Errno) {
	if int32(dirfd) == atFDCWD || path != "" && path[0] == '/' {
		return p.cwd, 0
	}
	f := p.fds.get(uint64(uint32(dirfd)))
	if f == nil {
		return nil, syscall.EBADF
	}
	ino := f.inode()
	if ino == nil || ino.Kind() != vfs.Dir {
		return nil, syscall.ENOTDIR
	}
	return ino, 0
}

// pathArg copies a path argument and finds where it starts.
func (p *Process) pathArg(dirfd, addr uint64) (*vfs.Inode, string, syscall.Errno) {
	path, e := p.cstring(addr, maxPath)
	if e != 0 {
		return nil, "", e
	}
	dir, e := p.start(dirfd, path)
	return dir, path, e
}

const cwdFD = uint64(1<<64 - 100)

func sysOpen(p *Process, a *args) uint64  { return p.openAt(cwdFD, a[0], a[1], a[2]) }
func sysCreat(p *Process, a *args) uint64 { return p.openAt(cwdFD, a[0], openCreat, a[1]) }
func sysOpenat(p *Process, a *args) uint64 {
	return p.openAt(a[0], a[1], a[2], a[3])
}

const openCreat = syscall.O_CREAT | syscall.O_WRONLY | syscall.O_TRUNC

func (p *Process) openAt(dirfd, addr, flags, mode uint64) uint64 {
	dir, path, e := p.pathArg(dirfd, addr)
	if e != 0 {
		return fail(e)
	}
	if p.fds.used >= maxDescriptors {
		return fail(syscall.EMFILE) // before a file is made for nothing
	}
	ino, e := p.fs.Open(dir, path, int(uint32(flags)), uint32(mode)&^p.umask)
	if e != 0 {
		return fail(e)
	}
	p.fs.Ref(ino)
	const kept = syscall.O_ACCMODE | syscall.O_APPEND | syscall.O_NONBLOCK | syscall.O_DIRECTORY | oPath | 0x8000
	f := &description{file: treeFile{ino}, flags: int(flags) & kept}
	fd, e := p.fds.add(f, 0, flags&syscall.O_CLOEXEC != 0)
	if e != 0 {
		p.fs.Unref(ino)
		return fail(e)
	}
	return uint64(fd)
}

// inodeArg resolves a path argument, or the descriptor itself for an empty
// path where the flags say so.
func (p *Process) inodeArg(dirfd, addr, flags uint64) (*vfs.Inode, *description, syscall.Errno) {
	path, e := p.cstring(addr, maxPath)
	if e != 0 {
		return nil, nil, e
	}
	if path == "" && flags&atEmptyPath != 0 {
		if int32(dirfd) == atFDCWD {
			return p.cwd, nil, 0
		}
		f := p.fds.get(uint64(uint32(dirfd)))
		if f == nil {
			return nil, nil, syscall.EBADF
		}
		return f.inode(), f, 0
	}
	dir, e := p.start(dirfd, path)
	if e != 0 {
		return nil, nil, e
	}
	ino, e := p.fs.Resolve(dir, path, flags&atSymlinkNofollow == 0)
	return ino, nil, e
}

// streamStat is what stat says of a standard stream: a pipe.
func streamStat() vfs.Stat {
	return vfs.Stat{Dev: 12, Ino: 1, Nlink: 1, Mode: syscall.S_IFIFO | 0o600, UID: userID, GID: userID, Blksize: 4096}
}

// statOf describes what inodeArg gave.
func statOf(ino *vfs.Inode, f *description) vfs.Stat {
	if ino == nil {
		return f.stat()
	}
	return ino.Stat()
}

// encodeStat gives struct stat of x86-64 (arch/x86/include/uapi/asm/stat.h).
func encodeStat(s vfs.Stat) []byte {
	b := make([]byte, 144)
	le := binary.LittleEndian
	le.PutUint64(b[0:], s.Dev)
	le.PutUint64(b[8:], s.Ino)
	le.PutUint64(b[16:], s.Nlink)
	le.PutUint32(b[24:], s.Mode)
	le.PutUint32(b[28:], s.UID)
	le.PutUint32(b[32:], s.GID)
	le.PutUint64(b[40:], s.Rdev)
	le.PutUint64(b[48:], uint64(s.Size))
	le.PutUint64(b[56:], uint64(s.Blksize))
	le.PutUint64(b[64:], uint64(s.Blocks))
	le.PutUint64(b[72:], uint64(s.AtimeSec))
	le.PutUint64(b[80:], uint64(s.AtimeNsec))
	le.PutUint64(b[88:], uint64(s.MtimeSec))
	le.PutUint64(b[96:], uint64(s.MtimeNsec))
	le.PutUint64(b[104:], uint64(s.CtimeSec))
	le.PutUint64(b[112:], uint64(s.CtimeNsec))
	return b
}

// encodeStatx gives struct statx (include/uapi/linux/stat.h).
func encodeStatx(s vfs.Stat) []byte {
	b := make([]byte, 256)
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0x7ff) // STATX_BASIC_STATS
	le.PutUint32(b[4:], uint32(s.Blksize))
	le.PutUint32(b[16:], uint32(s.Nlink))
	le.PutUint32(b[20:], s.UID)
	le.PutUint32(b[24:], s.GID)
	le.PutUint16(b[28:], uint16(s.Mode))
	le.PutUint64(b[32:], s.Ino)
	le.PutUint64(b[40:], uint64(s.Size))
	le.PutUint64(b[48:], uint64(s.Blocks))
	for i, t := range [][2]int64{{s.AtimeSec, s.AtimeNsec}, {}, {s.CtimeSec, s.CtimeNsec}, {s.MtimeSec, s.MtimeNsec}} {
		le.PutUint64(b[64+i*16:], uint64(t[0]))
		le.PutUint32(b[72+i*16:], uint32(t[1]))
	}
	le.PutUint32(b[128:], uint32(s.Rdev>>8))
	le.PutUint32(b[132:], uint32(s.Rdev&0xff))
	le.PutUint32(b[136:], uint32(s.Dev>>8))
	le.PutUint32(b[140:], uint32(s.Dev&0xff))
	return b
}

func (p *Process) putBytes(addr uint64, b []byte) uint64 {
	if !p.cpu.CopyOut(addr, b) {
		return fail(syscall.EFAULT)
	}
	return 0
}

func (p *Process) statAt(dirfd, path, out, flags uint64) uint64 {
	ino, f, e := p.inodeArg(dirfd, path, flags)
	if e != 0 {
		return fail(e)
	}
	return p.putBytes(out, encodeStat(statOf(ino, f)))
}

func sysStat(p *Process, a *args) uint64  { return p.statAt(cwdFD, a[0], a[1], 0) }
func sysLstat(p *Process, a *args) uint64 { return p.statAt(cwdFD, a[0], a[1], atSymlinkNofollow) }
func sysNewfstatat(p *Process, a *args) uint64 {
	return p.statAt(a[0], a[1], a[2], a[3])
}

func sysFstat(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	return p.putBytes(a[1], encodeStat(f.stat()))
}

func sysStatx(p *Process, a *args) uint64 {
	ino, f, e := p.inodeArg(a[0], a[1], a[2])
	if e != 0 {
		return fail(e)
	}
	return p.putBytes(a[4], encodeStatx(statOf(ino, f)))
}

func sysAccess(p *Process, a *args) uint64     { return p.accessAt(cwdFD, a[0], a[1], 0) }
func sysFaccessat(p *Process, a *args) uint64  { return p.accessAt(a[0], a[1], a[2], 0) }
func sysFaccessat2(p *Process, a *args) uint64 { return p.accessAt(a[0], a[1], a[2], a[3]) }

func (p *Process) accessAt(dirfd, path, mode, flags uint64) uint64 {
	if mode > 7 {
		return fail(syscall.EINVAL)
	}
	ino, f, e := p.inodeArg(dirfd, path, flags)
	if e != 0 {
		return fail(e)
	}
	s := statOf(ino, f)
	perm := uint64(s.Mode)
	if s.UID == userID {
		perm >>= 6
	}
	switch {
	case mode&2 != 0 && s.Dev == vfs.BaseDev && s.Mode&syscall.S_IFMT != syscall.S_IFCHR:
		return fail(syscall.EROFS)
	case mode&^perm&7 != 0:
		return fail(syscall.EACCES)
	}
	return 0
}

func sysReadlink(p *Process, a *args) uint64   { return p.readlinkAt(cwdFD, a[0], a[1], a[2]) }
func sysReadlinkat(p *Process, a *args) uint64 { return p.readlinkAt(a[0], a[1], a[2], a[3]) }

func (p *Process) readlinkAt(dirfd, path, out, n uint64) uint64 {
	ino, _, e := p.inodeArg(dirfd, path, atSymlinkNofollow)
	if e != 0 {
		return fail(e)
	}
	if ino == nil || ino.Kind() != vfs.Symlink || n == 0 {
		return fail(syscall.EINVAL)
	}
	t := []byte(ino.ReadLink())
	t = t[:min(uint64(len(t)), n)]
	if !p.cpu.CopyOut(out, t) {
		return fail(syscall.EFAULT)
	}
	return uint64(len(t))
}

func sysMkdir(p *Process, a *args) uint64   { return p.mkdirAt(cwdFD, a[0], a[1]) }
func sysMkdirat(p *Process, a *args) uint64 { return p.mkdirAt(a[0], a[1], a[2]) }

func (p *Process) mkdirAt(dirfd, addr, mode uint64) uint64 {
	dir, path, e := p.pathArg(dirfd, addr)
	if e != 0 {
		return fail(e)
	}
	return result(p.fs.Mkdir(dir, path, uint32(mode)&^p.umask&0o7777))
}

func sysRmdir(p *Process, a *args) uint64    { return p.unlinkAt(cwdFD, a[0], atRemoveDir) }
func sysUnlink(p *Process, a *args) uint64   { return p.unlinkAt(cwdFD, a[0], 0) }
func sysUnlinkat(p *Process, a *args) uint64 { return p.unlinkAt(a[0], a[1], a[2]) }

func (p *Process) unlinkAt(dirfd, addr, flags uint64) uint64 {
	if flags&^atRemoveDir != 0 {
		return fail(syscall.EINVAL)
	}
	dir, path, e := p.pathArg(dirfd, addr)
	if e != 0 {
		return fail(e)
	}
	if flags&atRemoveDir != 0 {
		return result(p.fs.Rmdir(dir, path))
	}
	return result(p.fs.Unlink(dir, path))
}

func sysRename(p *Process, a *args) uint64 { return p.renameAt(cwdFD, a[0], cwdFD, a[1], 0) }
func sysRenameat(p *Process, a *args) uint64 {
	return p.renameAt(a[0], a[1], a[2], a[3], 0)
}
func sysRenameat2(p *Process, a *args) uint64 {
	return p.renameAt(a[0], a[1], a[2], a[3], a[4])
}

func (p *Process) renameAt(fromFD, fromAddr, toFD, toAddr, flags uint64) uint64 {
	from, fromPath, e := p.pathArg(fromFD, fromAddr)
	if e != 0 {
		return fail(e)
	}
	to, toPath, e := p.pathArg(toFD, toAddr)
	if e != 0 {
		return fail(e)
	}
	return result(p.fs.Rename(from, fromPath, to, toPath, int(uint32(flags))))
}

func sysLink(p *Process, a *args) uint64   { return p.linkAt(cwdFD, a[0], cwdFD, a[1], 0) }
func sysLinkat(p *Process, a *args) uint64 { return p.linkAt(a[0], a[1], a[2], a[3], a[4]) }

func (p *Process) linkAt(fromFD, fromAddr, toFD, toAddr, flags uint64) uint64 {
	f := flags & atEmptyPath
	if flags&atSymlinkFollow == 0 {
		f |= atSymlinkNofollow
	}
	ino, _, e := p.inodeArg(fromFD, fromAddr, f)
	if e != 0 {
		return fail(e)
	}
	if ino == nil {
		return fail(syscall.EXDEV)
	}
	to, toPath, e := p.pathArg(toFD, toAddr)
	if e != 0 {
		return fail(e)
	}
	return result(p.fs.Link(ino, to, toPath))
}

func sysSymlink(p *Process, a *args) uint64   { return p.symlinkAt(a[0], cwdFD, a[1]) }
func sysSymlinkat(p *Process, a *args) uint64 { return p.symlinkAt(a[0], a[1], a[2]) }

func (p *Process) symlinkAt(targetAddr, dirfd, addr uint64) uint64 {
	target, e := p.cstring(targetAddr, maxPath)
	if e != 0 {
		return fail(e)
	}
	dir, path, e := p.pathArg(dirfd, addr)
	if e != 0 {
		return fail(e)
	}
	return result(p.fs.Symlink(target, dir, path))
}

// change applies fn to the inode that a path or a descriptor names.
func (p *Process) change(dirfd, addr, flags uint64, fn func(*vfs.Inode) syscall.Errno) uint64 {
	ino, _, e := p.inodeArg(dirfd, addr, flags)
	if e != 0 {
		return fail(e)
	}
	if ino == nil {
		return fail(syscall.EPERM)
	}
	return result(fn(ino))
}

func (p *Process) changeFD(fd uint64, fn func(*vfs.Inode) syscall.Errno) uint64 {
	f := p.fds.get(fd)
	if f == nil {
		return fail(syscall.EBADF)
	}
	if f.inode() == nil {
		return fail(syscall.EPERM)
	}
	return result(fn(f.inode()))
}

func (p *Process) chmodFn(mode uint64) func(*vfs.Inode) syscall.Errno {
	return func(i *vfs.Inode) syscall.Errno { return p.fs.Chmod(i, uint32(mode)&0o7777) }
}

func sysChmod(p *Process, a *args) uint64    { return p.change(cwdFD, a[0], 0, p.chmodFn(a[1])) }
func sysFchmodat(p *Process, a *args) uint64 { return p.change(a[0], a[1], 0, p.chmodFn(a[2])) }
func sysFchmod(p *Process, a *args) uint64   { return p.changeFD(a[0], p.chmodFn(a[1])) }

func (p *Process) chownFn(uid, gid uint64) func(*vfs.Inode) syscall.Errno {
	return func(i *vfs.Inode) syscall.Errno { return p.fs.Chown(i, int(int32(uid)), int(int32(gid))) }
}

func sysChown(p *Process, a *args) uint64 { return p.change(cwdFD, a[0], 0, p.chownFn(a[1], a[2])) }
func sysLchown(p *Process, a *args) uint64 {
	return p.change(cwdFD, a[0], atSymlinkNofollow, p.chownFn(a[1], a[2]))
}
func sysFchownat(p *Process, a *args) uint64 {
	return p.change(a[0], a[1], a[4], p.chownFn(a[2], a[3]))
}
func sysFchown(p *Process, a *args) uint64 { return p.changeFD(a[0], p.chownFn(a[1], a[2])) }

func sysTruncate(p *Process, a *args) uint64 {
	if int64(a[1]) < 0 {
		return fail(syscall.EINVAL)
	}
	return p.change(cwdFD, a[0], 0, func(i *vfs.Inode) syscall.Errno {
		if i.Stat().UID == userID && i.Stat().Mode&0o200 == 0 {
			return syscall.EACCES
		}
		return p.fs.Truncate(i, int64(a[1]))
	})
}

// sysUtimensat sets time stamps; path 0 means the descriptor itself.
func sysUtimensat(p *Process, a *args) uint64 {
	const now, omit = 1<<30 - 1, 1<<30 - 2
	t := [2]vfs.Time{{Now: true}, {Now: true}}
	if a[2] != 0 {
		var b [32]byte
		if !p.cpu.CopyIn(b[:], a[2]) {
			return fail(syscall.EFAULT)
		}
		for i := range t {
			sec := int64(binary.LittleEndian.Uint64(b[i*16:]))
			nsec := int64(binary.LittleEndian.Uint64(b[i*16+8:]))
			switch {
			case nsec == now:
			case nsec == omit:
				t[i] = vfs.Time{Omit: true}
			case nsec < 0 || nsec >= 1e9:
				return fail(syscall.EINVAL)
			default:
				t[i] = vfs.Time{Sec: sec, Nsec: nsec}
			}
		}
	}
	fn := func(i *vfs.Inode) syscall.Errno { return p.fs.Utimes(i, t[0], t[1]) }
	if a[1] == 0 {
		return p.changeFD(a[0], fn)
	}
	return p.change(a[0], a[1], a[3], fn)
}

func sysChdir(p *Process, a *args) uint64 {
	ino, _, e := p.inodeArg(cwdFD, a[0], 0)
	if e != 0 {
		return fail(e)
	}
	return p.setCwd(ino)
}

func sysFchdir(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	return p.setCwd(f.inode())
}

func (p *Process) setCwd(ino *vfs.Inode) uint64 {
	if ino == nil || ino.Kind() != vfs.Dir {
		return fail(syscall.ENOTDIR)
	}
	p.fs.Ref(ino)
	p.fs.Unref(p.cwd)
	p.cwd = ino
	return 0
}

func sysGetcwd(p *Process, a *args) uint64 {
	path, ok := p.fs.Path(p.cwd)
	if !ok {
		return fail(syscall.ENOENT)
	}
	b := append([]byte(path), 0)
	if uint64(len(b)) > a[1] {
		return fail(syscall.ERANGE)
	}
	if !p.cpu.CopyOut(a[0], b) {
		return fail(syscall.EFAULT)
	}
	return uint64(len(b))
}

func sysUmask(p *Process, a *args) uint64 {
	old := p.umask
	p.umask = uint32(a[0]) & 0o777
	return uint64(old)
}

// sysMknod refuses: there are no devices to make, and no FIFOs.
func sysMknod(*Process, *args) uint64 { return fail(syscall.EPERM) }

func sysStatfs(p *Process, a *args) uint64 {
	ino, _, e := p.inodeArg(cwdFD, a[0], 0)
	if e != 0 {
		return fail(e)
	}
	return p.statfs(ino, a[1])
}

func sysFstatfs(p *Process, a *args) uint64 {
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	return p.statfs(f.inode(), a[1])
}

func (p *Process) statfs(ino *vfs.Inode, out uint64) uint64 {
	if ino == nil {
		ino = p.fs.Root()
	}
	s := p.fs.Statfs(ino)
	b := make([]byte, 120)
	for i, v := range []uint64{0x01021994 /* TMPFS_MAGIC */, 4096, s.Blocks, s.Free, s.Free, s.Files, s.FilesFree, 0, 255, 4096} {
		binary.LittleEndian.PutUint64(b[i*8:], v)
	}
	return p.putBytes(out, b)
}
