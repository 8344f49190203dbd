package linux

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stat gives the fields of struct stat that tests look at.
type stat struct {
	mode, uid uint32
	nlink     uint64
	size      int64
	mtime     [2]uint64
	ino, dev  uint64
}

func decodeStat(b []byte) stat {
	le := binary.LittleEndian
	return stat{
		dev: le.Uint64(b), ino: le.Uint64(b[8:]), nlink: le.Uint64(b[16:]), mode: le.Uint32(b[24:]), uid: le.Uint32(b[28:]),
		size: int64(le.Uint64(b[48:])), mtime: [2]uint64{le.Uint64(b[88:]), le.Uint64(b[96:])},
	}
}

func decodeStatx(b []byte) stat {
	le := binary.LittleEndian
	return stat{
		dev: uint64(le.Uint32(b[136:]))<<8 | uint64(le.Uint32(b[140:])), ino: le.Uint64(b[32:]), nlink: uint64(le.Uint32(b[16:])),
		mode: uint32(le.Uint16(b[28:])), uid: le.Uint32(b[20:]), size: int64(le.Uint64(b[40:])),
		mtime: [2]uint64{le.Uint64(b[112:]), uint64(le.Uint32(b[120:]))},
	}
}

func (g *guest) lstat(name string) stat {
	g.t.Helper()
	buf := g.alloc(144)
	g.must(unix.SYS_LSTAT, g.str(name), buf)
	return decodeStat(g.get(buf, 144))
}

func TestEveryWayOfStatTellsTheSame(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "12345")
	g.must(unix.SYS_SYMLINK, g.str("f"), g.str("/work/l"))
	buf := g.alloc(256)
	at := func(addr uint64) stat { return decodeStat(g.get(addr, 144)) }
	name, link, empty := g.str("/work/f"), g.str("/work/l"), g.str("")
	dir, fd := g.open("/work", 0), g.open("/work/f", 0)
	g.must(unix.SYS_STAT, name, buf)
	want := at(buf)
	if want.mode != syscall.S_IFREG|0o644 || want.size != 5 || want.uid != userID || want.nlink != 1 {
		t.Errorf("stat tells %+v", want)
	}
	for _, c := range [][]uint64{
		{unix.SYS_LSTAT, name, buf}, {unix.SYS_STAT, link, buf}, {unix.SYS_FSTAT, fd, buf},
		{unix.SYS_NEWFSTATAT, dir, g.str("f"), buf, 0}, {unix.SYS_NEWFSTATAT, dir, g.str("l"), buf, 0},
		{unix.SYS_NEWFSTATAT, cwdFD, g.str("f"), buf, atSymlinkNofollow}, {unix.SYS_NEWFSTATAT, 1 << 31, name, buf, 0},
		{unix.SYS_NEWFSTATAT, 0xffffff9c, g.str("f"), buf, 0}, {unix.SYS_NEWFSTATAT, fd, empty, buf, atEmptyPath},
	} {
		g.fill(buf, 144, 0xCC)
		g.must(c[0], c[1:]...)
		if got := at(buf); got != want {
			t.Errorf("call %d%#x tells %+v, want %+v", c[0], c[1:], got, want)
		}
	}
	for _, c := range [][]uint64{{dir, g.str("f"), 0}, {fd, empty, atEmptyPath}, {cwdFD, link, 0}} {
		g.must(unix.SYS_STATX, c[0], c[1], c[2], 0xfff, buf)
		if got := decodeStatx(g.get(buf, 256)); got != want {
			t.Errorf("statx%#x tells %+v, want %+v", c, got, want)
		}
	}
	g.must(unix.SYS_NEWFSTATAT, dir, g.str("l"), buf, atSymlinkNofollow)
	if got := at(buf); got.mode != syscall.S_IFLNK|0o777 || got.size != 1 {
		t.Errorf("the link is %+v", got)
	}
	g.must(unix.SYS_NEWFSTATAT, cwdFD, empty, buf, atEmptyPath)
	if got := at(buf); got.mode&syscall.S_IFMT != syscall.S_IFDIR {
		t.Errorf("the working folder is %+v", got)
	}
	g.must(unix.SYS_FSTAT, 1, buf)
	if got := at(buf); got.mode&syscall.S_IFMT != syscall.S_IFIFO {
		t.Errorf("standard output is %+v", got)
	}
}

func TestPathErrors(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "")
	g.must(unix.SYS_SYMLINK, g.str("loop"), g.str("/work/loop"))
	buf, fd, stdout := g.alloc(256), g.open("/work/f", 0), uint64(1)
	for _, tt := range []struct {
		name string
		dir  uint64
		want syscall.Errno
	}{
		{"/nothing", cwdFD, syscall.ENOENT},
		{"", cwdFD, syscall.ENOENT},
		{"/work/f/x", cwdFD, syscall.ENOTDIR},
		{"/work/f/", cwdFD, syscall.ENOTDIR},
		{"/work/loop", cwdFD, syscall.ELOOP},
		{"/work/" + strings.Repeat("n", 256), cwdFD, syscall.ENAMETOOLONG},
		{strings.Repeat("/", 4096), cwdFD, syscall.ENAMETOOLONG},
		{"f", 99, syscall.EBADF},
		{"f", fd, syscall.ENOTDIR},
		{"f", stdout, syscall.ENOTDIR},
	} {
		p := g.str(tt.name)
		for _, c := range [][]uint64{
			{unix.SYS_NEWFSTATAT, tt.dir, p, buf, 0}, {unix.SYS_STATX, tt.dir, p, 0, 0, buf},
			{unix.SYS_OPENAT, tt.dir, p, 0, 0}, {unix.SYS_FACCESSAT, tt.dir, p, 0},
			{unix.SYS_FACCESSAT2, tt.dir, p, 0, 0}, {unix.SYS_FCHMODAT, tt.dir, p, 0o600},
			{unix.SYS_FCHOWNAT, tt.dir, p, userID, userID, 0}, {unix.SYS_UTIMENSAT, tt.dir, p, 0, 0},
		} {
			if got := g.call(c[0], c[1:]...); got != fail(tt.want) {
				t.Errorf("%.20q at %#x: call %d = %s, want %v", tt.name, tt.dir, c[0], answerText(got), tt.want)
			}
		}
	}
	g.refused(syscall.EBADF, unix.SYS_NEWFSTATAT, 99, g.str(""), buf, atEmptyPath)
	g.want(0, unix.SYS_NEWFSTATAT, stdout, g.str(""), buf, atEmptyPath)
}

func TestAPathMayEndAtTheLastByteOfMemory(t *testing.T) {
	g := newGuest(t)
	end := g.l.Stack.Hi
	put := func(s string) uint64 {
		g.m.CopyOut(end-uint64(len(s)), []byte(s))
		return end - uint64(len(s))
	}
	g.want(0, unix.SYS_ACCESS, put("/work\x00"), 0)
	g.refused(syscall.EFAULT, unix.SYS_ACCESS, put("/work"), 0)
	g.refused(syscall.EFAULT, unix.SYS_ACCESS, end, 0)
	g.refused(syscall.EFAULT, unix.SYS_ACCESS, ^uint64(0), 0)
	g.refused(syscall.ENAMETOOLONG, unix.SYS_ACCESS, g.bytes([]byte(strings.Repeat("a/", 4096))), 0)
}

func TestAccessLooksAtTheOwnersRights(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "")
	for _, tt := range []struct {
		path        string
		chmod, mode uint64
		want        syscall.Errno
	}{
		{"/work/f", 0o644, 0, 0}, {"/work/f", 0o600, 6, 0}, {"/work/f", 0o400, 2, syscall.EACCES}, {"/work/f", 0o077, 4, syscall.EACCES},
		{"/work/f", 0o700, 7, 0}, {"/work/f", 0o700, 8, syscall.EINVAL},
		{dataPath, 0, 4, 0}, {dataPath, 0, 2, syscall.EROFS}, {dataPath, 0, 1, syscall.EACCES}, {"/dev/null", 0, 6, 0},
	} {
		if tt.chmod != 0 {
			g.must(unix.SYS_CHMOD, g.str(tt.path), tt.chmod)
		}
		if got := g.call(unix.SYS_ACCESS, g.str(tt.path), tt.mode); got != result(tt.want) {
			t.Errorf("access of %s (%o) for %d = %s, want %v", tt.path, tt.chmod, tt.mode, answerText(got), tt.want)
		}
	}
}

func TestReadlinkCutsWhatDoesNotFit(t *testing.T) {
	g := newGuest(t)
	g.must(unix.SYS_SYMLINKAT, g.str("target"), g.open("/work", 0), g.str("l"))
	buf := g.alloc(16)
	g.fill(buf, 16, '!')
	g.want(6, unix.SYS_READLINK, g.str("/work/l"), buf, 16)
	g.want(3, unix.SYS_READLINKAT, cwdFD, g.str("l"), buf+8, 3)
	if got := string(g.get(buf, 16)); got != "target!!tar!!!!!" {
		t.Errorf("read %q", got)
	}
	g.want(6, unix.SYS_READLINK, g.str("/work/l"), buf, ^uint64(0))
	g.refused(syscall.EINVAL, unix.SYS_READLINK, g.str("/work/l"), buf, 0)
	g.refused(syscall.EINVAL, unix.SYS_READLINK, g.str("/work"), buf, 16)
	g.refused(syscall.EFAULT, unix.SYS_READLINK, g.str("/work/l"), g.l.Exe.Lo, 16)
}

func TestNamesAreMadeMovedAndRemoved(t *testing.T) {
	g := newGuest(t)
	s := func(x string) uint64 { return g.str(x) }
	dir := g.open("/tmp", 0)
	for i, c := range []struct {
		want syscall.Errno
		call []uint64
	}{
		{0, []uint64{unix.SYS_MKDIR, s("d"), 0o777}},
		{syscall.EEXIST, []uint64{unix.SYS_MKDIR, s("d"), 0o777}},
		{0, []uint64{unix.SYS_MKDIRAT, dir, s("t"), 0o777}},
		{0, []uint64{unix.SYS_CREAT, s("/tmp/t/f"), 0o666}},
		{0, []uint64{unix.SYS_RENAMEAT, dir, s("t/f"), cwdFD, s("d/g")}},
		{syscall.ENOENT, []uint64{unix.SYS_RENAME, s("/tmp/t/f"), s("x")}},
		{0, []uint64{unix.SYS_LINK, s("d/g"), s("d/h")}},
		{0, []uint64{unix.SYS_LINKAT, cwdFD, s("d/g"), dir, s("i"), 0}},
		{syscall.EEXIST, []uint64{unix.SYS_RENAMEAT2, cwdFD, s("d/g"), cwdFD, s("d"), 1}},
		{syscall.EINVAL, []uint64{unix.SYS_RENAMEAT2, cwdFD, s("d/g"), cwdFD, s("d/h"), 8}},
		{0, []uint64{unix.SYS_SYMLINK, s("d/g"), s("l")}},
		{0, []uint64{unix.SYS_LINKAT, cwdFD, s("l"), cwdFD, s("l2"), 0}},
		{0, []uint64{unix.SYS_LINKAT, cwdFD, s("l"), cwdFD, s("g2"), atSymlinkFollow}},
		{syscall.EXDEV, []uint64{unix.SYS_LINKAT, 1, s(""), cwdFD, s("out"), atEmptyPath}},
		{syscall.EXDEV, []uint64{unix.SYS_LINK, s(dataPath), s("data")}},
		{syscall.ENOTEMPTY, []uint64{unix.SYS_RMDIR, s("d")}},
		{syscall.ENOTDIR, []uint64{unix.SYS_RMDIR, s("l")}},
		{syscall.EISDIR, []uint64{unix.SYS_UNLINK, s("d")}},
		{syscall.EINVAL, []uint64{unix.SYS_UNLINKAT, cwdFD, s("l"), 1}},
		{0, []uint64{unix.SYS_UNLINK, s("d/g")}},
		{0, []uint64{unix.SYS_UNLINKAT, cwdFD, s("d/h"), 0}},
		{0, []uint64{unix.SYS_UNLINKAT, cwdFD, s("d"), atRemoveDir}},
		{syscall.EROFS, []uint64{unix.SYS_UNLINK, s(dataPath)}},
		{syscall.EROFS, []uint64{unix.SYS_MKDIR, s("/usr/new"), 0o777}},
		{syscall.EROFS, []uint64{unix.SYS_CHMOD, s(dataPath), 0o777}},
		{syscall.EROFS, []uint64{unix.SYS_OPEN, s(dataPath), syscall.O_RDWR}},
		{syscall.EPERM, []uint64{unix.SYS_MKNOD, s("fifo"), syscall.S_IFIFO}},
		{syscall.EPERM, []uint64{unix.SYS_CHROOT, s("/work")}},
	} {
		got := g.call(c.call[0], c.call[1:]...)
		if e := errnoOf(got); e != c.want {
			t.Errorf("step %d: call %d answers %v, want %v", i, c.call[0], e, c.want)
		}
	}
	if n := g.lstat("/tmp/i").nlink; n != 2 {
		t.Errorf("the file has %d names, want 2", n)
	}
	if m := g.lstat("/work/l2").mode; m&syscall.S_IFMT != syscall.S_IFLNK {
		t.Errorf("a link to a link has mode %o", m)
	}
}

func TestModesOwnersAndTimes(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "")
	name, fd := g.str("/work/f"), g.open("/work/f", syscall.O_RDWR)
	g.want(0o022, unix.SYS_UMASK, 0o077)
	g.must(unix.SYS_MKDIR, g.str("/work/d"), 0o777)
	if m := g.lstat("/work/d").mode; m != syscall.S_IFDIR|0o700 {
		t.Errorf("a folder is made with mode %o", m)
	}
	for i, c := range [][]uint64{{unix.SYS_CHMOD, name, 0o600}, {unix.SYS_FCHMOD, fd, 0o640}, {unix.SYS_FCHMODAT, cwdFD, g.str("f"), 0o604}} {
		g.must(c[0], c[1:]...)
		if m := g.lstat("/work/f").mode & 0o7777; m != []uint32{0o600, 0o640, 0o604}[i] {
			t.Errorf("call %d sets mode %o", c[0], m)
		}
	}
	const none = ^uint64(0)
	g.want(0, unix.SYS_CHOWN, name, userID, none)
	g.want(0, unix.SYS_FCHOWN, fd, none, userID)
	g.want(0, unix.SYS_LCHOWN, name, 0xffffffff, none)
	g.want(0, unix.SYS_FCHOWNAT, fd, g.str(""), userID, userID, atEmptyPath)
	g.refused(syscall.EPERM, unix.SYS_CHOWN, name, 0, 0)
	g.refused(syscall.EPERM, unix.SYS_FCHOWN, 1, userID, userID)
	g.refused(syscall.EPERM, unix.SYS_FCHMOD, 1, 0)
	g.refused(syscall.EBADF, unix.SYS_FCHMOD, 99, 0)

	g.must(unix.SYS_UTIMENSAT, cwdFD, name, g.bytes(words(1, 2, 3, 4)), 0)
	if s := g.lstat("/work/f"); s.mtime != [2]uint64{3, 4} {
		t.Errorf("modified at %v", s.mtime)
	}
	g.must(unix.SYS_UTIMENSAT, fd, 0, g.bytes(words(1, 2, 5, 1<<30-2)), 0)
	if s := g.lstat("/work/f"); s.mtime != [2]uint64{3, 4} {
		t.Errorf("an omitted time was set: %v", s.mtime)
	}
	g.must(unix.SYS_UTIMENSAT, fd, 0, g.bytes(words(1, 2, 5, 1<<30-1)), 0)
	if s := g.lstat("/work/f"); s.mtime != [2]uint64{1_800_000_000, 500} {
		t.Errorf("the time is not now: %v", s.mtime)
	}
	g.refused(syscall.EINVAL, unix.SYS_UTIMENSAT, fd, 0, g.bytes(words(1, 2, 5, 1e9)), 0)
	g.refused(syscall.EINVAL, unix.SYS_UTIMENSAT, fd, 0, g.bytes(words(1, 1<<63, 5, 6)), 0)
	g.refused(syscall.EPERM, unix.SYS_UTIMENSAT, 1, 0, 0, 0)
	g.refused(syscall.EROFS, unix.SYS_UTIMENSAT, cwdFD, g.str(dataPath), 0, 0)
	g.want(0, unix.SYS_TRUNCATE, name, 10)
	g.refused(syscall.EINVAL, unix.SYS_TRUNCATE, name, 1<<63)
	g.refused(syscall.EFBIG, unix.SYS_TRUNCATE, name, 1<<62)
	g.refused(syscall.EROFS, unix.SYS_TRUNCATE, g.str(dataPath), 0)
	g.refused(syscall.EOPNOTSUPP, unix.SYS_FALLOCATE, fd, 1, 0, 10)
	g.refused(syscall.EINVAL, unix.SYS_FALLOCATE, fd, 0, 1<<63, 10)
	g.refused(syscall.EINVAL, unix.SYS_FALLOCATE, fd, 0, 0, 0)
	g.refused(syscall.ENODEV, unix.SYS_FALLOCATE, 1, 0, 0, 1)
	g.refused(syscall.ENOSPC, unix.SYS_FALLOCATE, fd, 0, 0, 2<<20)
	g.refused(syscall.EFBIG, unix.SYS_FALLOCATE, fd, 0, 1<<63-1, 1<<63-1)
	g.want(0, unix.SYS_FALLOCATE, fd, 0, 0, 100)
	if s := g.lstat("/work/f"); s.size != 100 {
		t.Errorf("size %d", s.size)
	}
}

func TestTheWorkingFolderFollowsItsMoves(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(64)
	cwd := func() string {
		n := g.must(unix.SYS_GETCWD, buf, 64)
		return strings.TrimRight(string(g.get(buf, int(n))), "\x00")
	}
	g.must(unix.SYS_MKDIR, g.str("a"), 0o755)
	g.want(0, unix.SYS_CHDIR, g.str("a"))
	if got := cwd(); got != "/work/a" {
		t.Errorf("in %q", got)
	}
	g.must(unix.SYS_RENAME, g.str("/work/a"), g.str("/tmp/b"))
	if got := cwd(); got != "/tmp/b" {
		t.Errorf("in %q", got)
	}
	g.refused(syscall.ERANGE, unix.SYS_GETCWD, buf, 6)
	g.refused(syscall.ERANGE, unix.SYS_GETCWD, buf, 0)
	g.want(7, unix.SYS_GETCWD, buf, 7)
	g.must(unix.SYS_RMDIR, g.str("/tmp/b"))
	g.refused(syscall.ENOENT, unix.SYS_GETCWD, buf, 64)
	g.refused(syscall.ENOENT, unix.SYS_OPEN, g.str("new"), syscall.O_CREAT|syscall.O_RDWR, 0o600)
	g.want(0, unix.SYS_CHDIR, g.str(".."))
	fd := g.open("/work", 0)
	g.want(0, unix.SYS_FCHDIR, fd)
	g.refused(syscall.ENOTDIR, unix.SYS_CHDIR, g.str(dataPath))
	g.refused(syscall.ENOTDIR, unix.SYS_FCHDIR, 1)
	g.refused(syscall.EBADF, unix.SYS_FCHDIR, 99)
	if got := cwd(); got != "/work" {
		t.Errorf("in %q", got)
	}
	if u := g.p.fs.Statfs(g.p.cwd); u.Files != u.FilesFree {
		t.Errorf("a removed working folder is still charged: %+v", u)
	}
}

func TestStatfsTellsTheGuestsOwnLimits(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(120)
	for _, c := range [][]uint64{{unix.SYS_STATFS, g.str("/work"), buf}, {unix.SYS_FSTATFS, g.open("/work", 0), buf}, {unix.SYS_FSTATFS, 1, buf}} {
		g.fill(buf, 120, 0xFF)
		g.must(c[0], c[1:]...)
		if got := g.word(buf + 16); got != uint64(testLimits.Bytes/4096) {
			t.Errorf("call %d tells of %d blocks", c[0], got)
		}
	}
	g.refused(syscall.EBADF, unix.SYS_FSTATFS, 99, buf)
}

func TestOpenFlagsAreKeptAsFarAsFcntlTells(t *testing.T) {
	g := newGuest(t)
	for flags, want := range map[uint64]uint64{
		syscall.O_RDONLY | syscall.O_CLOEXEC:                    0,
		syscall.O_RDWR | syscall.O_APPEND | syscall.O_CREAT:     syscall.O_RDWR | syscall.O_APPEND,
		syscall.O_WRONLY | syscall.O_NONBLOCK | syscall.O_CREAT: syscall.O_WRONLY | syscall.O_NONBLOCK,
	} {
		fd := g.must(unix.SYS_OPEN, g.str(fmt.Sprintf("/work/%x", flags&3)), flags|syscall.O_CREAT, 0o644)
		g.want(want, unix.SYS_FCNTL, fd, fGetFL)
		g.want(flags&syscall.O_CLOEXEC/syscall.O_CLOEXEC, unix.SYS_FCNTL, fd, fGetFD)
	}
}
