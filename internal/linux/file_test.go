package linux

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// iov puts an array of struct iovec into guest memory.
func (g *guest) iov(v ...uint64) uint64 { return g.bytes(words(v...)) }

func TestReadAndWriteMoveTheSharedPosition(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/f", syscall.O_CREAT|syscall.O_RDWR)
	g.want(10, unix.SYS_WRITE, fd, g.str("0123456789"), 10)
	copied := g.must(unix.SYS_DUP, fd)
	g.want(2, unix.SYS_LSEEK, copied, 2, 0)
	buf := g.alloc(16)
	g.want(3, unix.SYS_READ, fd, buf, 3)
	g.want(5, unix.SYS_READ, copied, buf+3, 13)
	g.want(0, unix.SYS_READ, fd, buf, 16)
	if got := string(g.get(buf, 8)); got != "23456789" {
		t.Errorf("read %q", got)
	}
	g.want(4, unix.SYS_PREAD64, fd, buf, 4, 6)
	g.want(2, unix.SYS_PWRITE64, fd, g.str("ab"), 2, 12)
	g.want(10, unix.SYS_LSEEK, fd, 0, 1)
	if got := g.content("/work/f"); got != "0123456789\x00\x00ab" {
		t.Errorf("the file is %q", got)
	}
}

func TestVectorsAreReadAndWrittenInOrder(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/f", syscall.O_CREAT|syscall.O_RDWR)
	a, b := g.str("hello "), g.str("world")
	g.want(11, unix.SYS_WRITEV, fd, g.iov(a, 6, 0, 0, b, 5), 3)
	g.want(5, unix.SYS_PWRITEV, fd, g.iov(b, 5), 1, 0)
	buf := g.alloc(16)
	g.want(11, unix.SYS_PREADV, fd, g.iov(buf+4, 4, buf, 4, buf+8, 8), 3, 0)
	if got := string(g.get(buf, 11)); got != "d woworlrld" {
		t.Errorf("read %q", got)
	}
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	g.want(11, unix.SYS_READV, fd, g.iov(buf, 16), 1)
	g.want(0, unix.SYS_WRITEV, fd, 0, 0)
	for name, tt := range map[string]struct {
		addr, n uint64
		want    syscall.Errno
	}{
		"too many":        {buf, maxIOV + 1, syscall.EINVAL},
		"negative count":  {buf, ^uint64(0), syscall.EINVAL},
		"huge piece":      {g.iov(buf, 1<<63), 1, syscall.EINVAL},
		"sum too large":   {g.iov(buf, maxCount, buf, maxCount), 2, syscall.EINVAL},
		"unmapped vector": {g.l.Stack.Hi, 1, syscall.EFAULT},
		"unmapped piece":  {g.iov(g.l.Stack.Hi, 4), 1, syscall.EFAULT},
	} {
		for _, nr := range []uint64{unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREADV, unix.SYS_PWRITEV} {
			g.want(0, unix.SYS_LSEEK, fd, 0, 0)
			if got := g.call(nr, fd, tt.addr, tt.n, 0); got != fail(tt.want) {
				t.Errorf("%s: call %d = %s", name, nr, answerText(got))
			}
		}
	}
}

func TestATransferStopsAtBadMemoryAndTellsWhatWasMoved(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/f", syscall.O_CREAT|syscall.O_RDWR)
	good := g.str("good")
	g.want(4, unix.SYS_WRITEV, fd, g.iov(good, 4, g.l.Stack.Hi, 4), 2)
	g.want(4, unix.SYS_LSEEK, fd, 0, 1)
	g.want(4, unix.SYS_WRITE, fd, good, 4)
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	g.want(4, unix.SYS_READV, fd, g.iov(good, 4, g.l.Exe.Lo, 4), 2)
	g.want(4, unix.SYS_LSEEK, fd, 0, 1)
}

func TestDescriptorsAreOnlyGoodForWhatTheyWereOpenedFor(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "content")
	buf := g.alloc(64)
	null := g.open("/dev/null", syscall.O_RDWR)
	for name, tt := range map[string]struct {
		flags       uint64
		read, write syscall.Errno
	}{
		"reading": {syscall.O_RDONLY, 0, syscall.EBADF},
		"writing": {syscall.O_WRONLY, syscall.EBADF, 0},
		"path":    {oPath, syscall.EBADF, syscall.EBADF},
		"path rw": {oPath | syscall.O_RDWR, syscall.EBADF, syscall.EBADF},
		"neither": {3, syscall.EBADF, syscall.EBADF},
	} {
		fd := g.open("/work/f", tt.flags)
		for nr, a := range map[uint64][6]uint64{
			unix.SYS_READ: {fd, buf, 1}, unix.SYS_PREAD64: {fd, buf, 1}, unix.SYS_READV: {fd, g.iov(buf, 1), 1},
			unix.SYS_SENDFILE: {null, fd, 0, 1},
		} {
			if got := errnoOf(g.call(nr, a[:]...)); got != tt.read {
				t.Errorf("%s: call %d answers %v", name, nr, got)
			}
		}
		for nr, a := range map[uint64][6]uint64{
			unix.SYS_WRITE: {fd, buf, 1}, unix.SYS_PWRITE64: {fd, buf, 1}, unix.SYS_WRITEV: {fd, g.iov(buf, 1), 1},
			unix.SYS_FALLOCATE: {fd, 0, 0, 1},
		} {
			if got := errnoOf(g.call(nr, a[:]...)); got != tt.write {
				t.Errorf("%s: call %d answers %v", name, nr, got)
			}
		}
		if got := errnoOf(g.call(unix.SYS_FTRUNCATE, fd, 7)); (got == 0) != (tt.write == 0) {
			t.Errorf("%s: ftruncate answers %v", name, got)
		}
	}
}

func TestLseekBoundsPositions(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "0123456789")
	fd := g.open("/work/f", syscall.O_RDWR)
	const huge = 1<<63 - 1
	for _, tt := range []struct {
		off, whence uint64
		want        uint64
	}{
		{4, 0, 4}, {^uint64(0), 1, 3}, {^uint64(3), 1, fail(syscall.EINVAL)}, {^uint64(0), 2, 9}, {5, 2, 15},
		{^uint64(0), 0, fail(syscall.EINVAL)}, {huge, 0, huge}, {1, 1, fail(syscall.EINVAL)}, {huge, 2, fail(syscall.EINVAL)},
		{3, 3, 3}, {3, 4, 10}, {10, 3, fail(syscall.ENXIO)}, {1 << 63, 4, fail(syscall.ENXIO)}, {0, 5, fail(syscall.EINVAL)},
	} {
		g.want(tt.want, unix.SYS_LSEEK, fd, tt.off, tt.whence)
	}
	g.want(huge, unix.SYS_LSEEK, fd, huge, 0)
	buf := g.alloc(8)
	g.want(0, unix.SYS_READ, fd, buf, 8)
	g.refused(syscall.EFBIG, unix.SYS_WRITE, fd, buf, 8)
	g.refused(syscall.ESPIPE, unix.SYS_LSEEK, 1, 0, 0)
	g.refused(syscall.EBADF, unix.SYS_LSEEK, 999, 0, 0)
	for _, nr := range []uint64{unix.SYS_PREAD64, unix.SYS_PWRITE64} {
		g.refused(syscall.EINVAL, nr, fd, buf, 1, 1<<63)
		g.refused(syscall.ESPIPE, nr, 1, buf, 1, 0)
		g.refused(syscall.EBADF, nr, 999, buf, 1, 0)
	}
}

func TestAppendWritesAtTheEnd(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "abc")
	fd := g.open("/work/f", syscall.O_WRONLY|syscall.O_APPEND)
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	g.want(3, unix.SYS_WRITE, fd, g.str("def"), 3)
	g.want(6, unix.SYS_LSEEK, fd, 0, 1)
	if got := g.content("/work/f"); got != "abcdef" {
		t.Errorf("the file is %q", got)
	}
	g.want(uint64(syscall.O_WRONLY|syscall.O_APPEND), unix.SYS_FCNTL, fd, fGetFL, 0)
	g.want(0, unix.SYS_FCNTL, fd, fSetFL, 0)
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	g.want(1, unix.SYS_WRITE, fd, g.str("X"), 1)
	if got := g.content("/work/f"); got != "Xbcdef" {
		t.Errorf("the file is %q", got)
	}
}

func TestStandardStreams(t *testing.T) {
	g := newGuest(t)
	buf := g.str("text")
	g.want(0, unix.SYS_READ, 0, buf, 4)
	g.want(4, unix.SYS_WRITE, 1, buf, 4)
	g.want(4, unix.SYS_WRITEV, 2, g.iov(buf, 2, buf+2, 2), 2)
	g.refused(syscall.EBADF, unix.SYS_WRITE, 0, buf, 4)
	g.refused(syscall.EBADF, unix.SYS_READ, 1, buf, 4)
	if g.out[1] != "text" || g.out[2] != "text" {
		t.Errorf("output %v", g.out)
	}
	g.want(0, unix.SYS_CLOSE, 1)
	g.refused(syscall.EBADF, unix.SYS_WRITE, 1, buf, 4)
	g.want(1, unix.SYS_DUP, 2)
	g.want(4, unix.SYS_WRITE, 1, buf, 4)
	if g.out[2] != "texttext" {
		t.Errorf("a copy of standard error writes %v", g.out)
	}
}

func TestDuplicatesTakeTheLowestFreeDescriptor(t *testing.T) {
	g := newGuest(t)
	fd := g.open(dataPath, syscall.O_RDONLY|syscall.O_CLOEXEC)
	g.want(1, unix.SYS_FCNTL, fd, fGetFD)
	g.want(4, unix.SYS_DUP, fd)
	g.want(0, unix.SYS_FCNTL, 4, fGetFD)
	g.want(10, unix.SYS_FCNTL, fd, fDupFD, 10)
	g.want(11, unix.SYS_FCNTL, fd, fDupFDCloexec, 10)
	g.want(1, unix.SYS_FCNTL, 11, fGetFD)
	g.want(20, unix.SYS_DUP3, fd, 20, syscall.O_CLOEXEC)
	g.want(1, unix.SYS_FCNTL, 20, fGetFD)
	g.want(20, unix.SYS_DUP2, fd, 20)
	g.want(0, unix.SYS_FCNTL, 20, fGetFD)
	g.want(fd, unix.SYS_DUP2, fd, fd)
	g.want(1, unix.SYS_FCNTL, fd, fGetFD)
	g.want(0, unix.SYS_FCNTL, fd, fSetFD, 0)
	g.want(0, unix.SYS_IOCTL, fd, 0x5451)
	g.want(1, unix.SYS_FCNTL, fd, fGetFD)
	g.want(0, unix.SYS_CLOSE, 4)
	g.want(4, unix.SYS_DUP, fd)
	for _, lock := range []uint64{fSetLK, fSetLKW, fOFDSetLK, fOFDSetLKW} {
		g.want(0, unix.SYS_FCNTL, fd, lock, 0)
	}
	lock := g.bytes(words(1))
	g.want(0, unix.SYS_FCNTL, fd, fGetLK, lock)
	if g.word(lock) != fUnlck {
		t.Error("a lock is held")
	}
}

func TestDescriptorCallsRefuseWhatCannotBe(t *testing.T) {
	g := newGuest(t)
	fd := g.open(dataPath, syscall.O_RDONLY)
	for _, tt := range []struct {
		want syscall.Errno
		nr   uint64
		a    [4]uint64
	}{
		{syscall.EBADF, unix.SYS_DUP, [4]uint64{99}},
		{syscall.EBADF, unix.SYS_DUP, [4]uint64{^uint64(0)}},
		{syscall.EBADF, unix.SYS_DUP2, [4]uint64{99, 99}},
		{syscall.EBADF, unix.SYS_DUP2, [4]uint64{fd, maxDescriptors}},
		{syscall.EBADF, unix.SYS_DUP2, [4]uint64{fd, ^uint64(0)}},
		{syscall.EINVAL, unix.SYS_DUP3, [4]uint64{fd, fd}},
		{syscall.EINVAL, unix.SYS_DUP3, [4]uint64{fd, 9, 1}},
		{syscall.EINVAL, unix.SYS_FCNTL, [4]uint64{fd, fDupFD, maxDescriptors}},
		{syscall.EINVAL, unix.SYS_FCNTL, [4]uint64{fd, fDupFD, ^uint64(0)}},
		{syscall.EINVAL, unix.SYS_FCNTL, [4]uint64{fd, 9999}},
		{syscall.EBADF, unix.SYS_FCNTL, [4]uint64{99, fGetFD}},
		{syscall.EFAULT, unix.SYS_FCNTL, [4]uint64{fd, fGetLK, 8}},
		{syscall.ENOTTY, unix.SYS_IOCTL, [4]uint64{fd, 0x5401}},
		{syscall.EBADF, unix.SYS_IOCTL, [4]uint64{99, 0x5401}},
		{syscall.EBADF, unix.SYS_CLOSE, [4]uint64{99}},
		{syscall.EBADF, unix.SYS_FSYNC, [4]uint64{99}},
		{syscall.EINVAL, unix.SYS_CLOSE_RANGE, [4]uint64{5, 4}},
	} {
		g.refused(tt.want, tt.nr, tt.a[:]...)
	}
}

func TestCloseRangeEndsAtTheLastDescriptor(t *testing.T) {
	g := newGuest(t)
	for range 5 {
		g.open(dataPath, syscall.O_RDONLY)
	}
	g.want(0, unix.SYS_CLOSE_RANGE, 6, ^uint64(0), 4)
	g.want(0, unix.SYS_FCNTL, 5, fGetFD)
	g.want(1, unix.SYS_FCNTL, 6, fGetFD)
	g.want(0, unix.SYS_CLOSE_RANGE, 4, ^uint64(0))
	g.refused(syscall.EBADF, unix.SYS_FCNTL, 4, fGetFD)
	g.want(4, unix.SYS_DUP, 3)
	g.want(0, unix.SYS_CLOSE_RANGE, ^uint64(0), ^uint64(0))
}

func TestDescriptorsAreLimited(t *testing.T) {
	g := newGuest(t)
	for fd := uint64(3); fd < maxDescriptors; fd++ {
		if got := g.call(unix.SYS_DUP, 0); got != fd {
			t.Fatalf("dup = %s, want %d", answerText(got), fd)
		}
	}
	g.refused(syscall.EMFILE, unix.SYS_DUP, 0)
	g.refused(syscall.EMFILE, unix.SYS_FCNTL, 0, fDupFD, 5)
	g.refused(syscall.EMFILE, unix.SYS_OPEN, g.str("/work/new"), syscall.O_CREAT|syscall.O_RDWR, 0o600)
	g.want(0, unix.SYS_CLOSE, 500)
	g.want(500, unix.SYS_OPEN, g.str(dataPath), syscall.O_RDONLY, 0)
}

// dirent is an entry that getdents64 gave.
type dirent struct {
	name string
	kind byte
}

// list reads a folder in pieces of n bytes.
func (g *guest) list(fd, n uint64) []dirent {
	g.t.Helper()
	var out []dirent
	buf := g.alloc(int(n))
	for {
		k := g.must(unix.SYS_GETDENTS64, fd, buf, n)
		if k == 0 {
			return out
		}
		for b := g.get(buf, int(k)); len(b) > 0; {
			size := binary.LittleEndian.Uint16(b[16:])
			name, _, _ := strings.Cut(string(b[19:size]), "\x00")
			out = append(out, dirent{name, b[18]})
			b = b[size:]
		}
	}
}

func TestGetdents64GoesThroughAFolderInPieces(t *testing.T) {
	g := newGuest(t)
	g.must(unix.SYS_MKDIR, g.str("/work/d"), 0o755)
	g.file("/work/d/file", "")
	g.must(unix.SYS_SYMLINK, g.str("file"), g.str("/work/d/link"))
	g.must(unix.SYS_MKDIR, g.str("/work/d/sub"), 0o755)
	want := []dirent{{".", syscall.DT_DIR}, {"..", syscall.DT_DIR}, {"file", syscall.DT_REG}, {"link", syscall.DT_LNK}, {"sub", syscall.DT_DIR}}
	fd := g.open("/work/d", syscall.O_RDONLY|syscall.O_DIRECTORY)
	for _, n := range []uint64{24, 32, 56, 4096} {
		g.want(0, unix.SYS_LSEEK, fd, 0, 0)
		if got := g.list(fd, n); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in pieces of %d bytes: %v", n, got)
		}
	}
	buf := g.alloc(64)
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	g.refused(syscall.EINVAL, unix.SYS_GETDENTS64, fd, buf, 23)
	g.refused(syscall.EFAULT, unix.SYS_GETDENTS64, fd, g.l.Exe.Lo, 64)
	if got := g.list(fd, 64); len(got) != len(want) {
		t.Errorf("entries that could not be stored are lost: %v", got)
	}
	g.refused(syscall.ENOTDIR, unix.SYS_GETDENTS64, 1, buf, 64)
	g.refused(syscall.EBADF, unix.SYS_GETDENTS64, 99, buf, 64)
	g.refused(syscall.EBADF, unix.SYS_GETDENTS64, g.open("/work/d", oPath), buf, 64)
	g.refused(syscall.ENOTDIR, unix.SYS_GETDENTS64, g.open("/work/d/file", 0), buf, 64)
	g.refused(syscall.EISDIR, unix.SYS_READ, fd, buf, 64)
}

func TestListingsUnderWayAreBounded(t *testing.T) {
	g := newGuest(t)
	for i := range 150 {
		g.file(fmt.Sprintf("/work/%03d", i), "")
		g.arena = g.l.Stack.Lo + 64<<10
	}
	name, buf := g.str("/work"), g.alloc(64)
	full := false
	for range maxDescriptors - 3 {
		fd := g.must(unix.SYS_OPEN, name, syscall.O_RDONLY, 0)
		got := g.call(unix.SYS_GETDENTS64, fd, buf, 64)
		if full = got == fail(syscall.ENOMEM); full {
			break
		}
	}
	if g.p.fds.listed > maxListed {
		t.Errorf("%d entries are kept", g.p.fds.listed)
	}
	g.want(0, unix.SYS_CLOSE_RANGE, 3, ^uint64(0))
	if g.p.fds.listed != 0 {
		t.Errorf("%d entries are kept when all is closed", g.p.fds.listed)
	}
}

func TestSendfileCopiesAndMovesOneOfThePositions(t *testing.T) {
	g := newGuest(t)
	in := g.open(dataPath, syscall.O_RDONLY)
	out := g.open("/work/copy", syscall.O_CREAT|syscall.O_RDWR)
	n := uint64(len(dataText))
	g.want(4, unix.SYS_SENDFILE, out, in, 0, 4)
	g.want(n-4, unix.SYS_SENDFILE, out, in, 0, ^uint64(0))
	g.want(0, unix.SYS_SENDFILE, out, in, 0, 100)
	at := g.bytes(words(4))
	g.want(5, unix.SYS_SENDFILE, out, in, at, 5)
	if g.word(at) != 9 || g.must(unix.SYS_LSEEK, in, 0, 1) != n {
		t.Error("the position given was not moved, or the file's own was")
	}
	if got := g.content("/work/copy"); got != dataText+dataText[4:9] {
		t.Errorf("the copy is %q", got)
	}
	g.want(n, unix.SYS_SENDFILE, 1, in, g.bytes(words(0)), 100)
	if g.out[1] != dataText {
		t.Errorf("output %q", g.out[1])
	}
	app := g.open("/work/copy", syscall.O_WRONLY|syscall.O_APPEND)
	for _, tt := range []struct {
		want syscall.Errno
		a    [4]uint64
	}{
		{syscall.EBADF, [4]uint64{99, in, 0, 1}},
		{syscall.EBADF, [4]uint64{out, 99, 0, 1}},
		{syscall.EBADF, [4]uint64{in, in, 0, 1}},
		{syscall.EBADF, [4]uint64{out, 1, 0, 1}},
		{syscall.EINVAL, [4]uint64{out, 0, 0, 1}},
		{syscall.EINVAL, [4]uint64{app, in, 0, 1}},
		{syscall.EFAULT, [4]uint64{out, in, g.l.Stack.Hi, 1}},
		{syscall.EINVAL, [4]uint64{out, in, g.bytes(words(1 << 63)), 1}},
	} {
		g.refused(tt.want, unix.SYS_SENDFILE, tt.a[:]...)
	}
}

func TestSendfileWithinOneFileEndsAtTheLimit(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", strings.Repeat("x", 100))
	in, out := g.open("/work/f", syscall.O_RDONLY), g.open("/work/f", syscall.O_WRONLY)
	g.must(unix.SYS_LSEEK, out, 100, 0)
	g.must(unix.SYS_SENDFILE, out, in, 0, ^uint64(0))
	if used := g.p.fs.Statfs(g.p.cwd); used.Free > used.Blocks {
		t.Errorf("usage %+v", used)
	}
}

func TestDevices(t *testing.T) {
	g := newGuest(t)
	buf := g.alloc(16)
	for _, tt := range []struct {
		path        string
		read, write uint64
		first       byte
	}{
		{"/dev/null", 0, 4, 0x11},
		{"/dev/zero", 4, 4, 0},
		{"/dev/full", 4, fail(syscall.ENOSPC), 0},
		{"/dev/random", 4, 4, 0xA5},
		{"/dev/urandom", 4, 4, 0xA5},
	} {
		fd := g.open(tt.path, syscall.O_RDWR)
		g.fill(buf, 16, 0x11)
		g.want(tt.read, unix.SYS_READ, fd, buf, 4)
		if b := g.get(buf, 5); b[0] != tt.first || b[4] != 0x11 {
			t.Errorf("%s gave % x", tt.path, b)
		}
		g.want(tt.write, unix.SYS_WRITE, fd, buf, 4)
		g.want(0, unix.SYS_LSEEK, fd, 100, 0)
	}
}

func TestLongTransfersEndEarlyWhenTheProcessIsStopped(t *testing.T) {
	g := newGuest(t)
	heap := g.mmap(4 << 20)
	zero, null := g.open("/dev/zero", syscall.O_RDWR), g.open("/dev/null", syscall.O_RDWR)
	hole := g.open("/work/hole", syscall.O_CREAT|syscall.O_RDWR)
	g.want(0, unix.SYS_FTRUNCATE, hole, 1<<39)
	for name, c := range map[string][]uint64{
		"read":      {unix.SYS_READ, zero, heap, 4 << 20},
		"write":     {unix.SYS_WRITE, null, heap, 4 << 20},
		"sendfile":  {unix.SYS_SENDFILE, null, hole, 0, 1 << 40},
		"getrandom": {unix.SYS_GETRANDOM, heap, 4 << 20, 0},
	} {
		if got := g.during(g.p.Stop, c[0], c[1:]...); got != transferSize {
			t.Errorf("%s = %s, want one piece", name, answerText(got))
		}
	}
}
