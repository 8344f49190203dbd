package linux

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCopyFileRangeMovesBytesBetweenFiles(t *testing.T) {
	g := newGuest(t)
	in := g.open(dataPath, syscall.O_RDONLY)
	out := g.open("/work/copy", syscall.O_CREAT|syscall.O_RDWR)
	from, to := g.bytes(words(4)), g.bytes(words(2))
	g.want(5, unix.SYS_COPY_FILE_RANGE, in, from, out, to, 5, 0)
	if g.word(from) != 9 || g.word(to) != 7 {
		t.Errorf("offsets %d and %d", g.word(from), g.word(to))
	}
	if got := g.content("/work/copy"); got != "\x00\x00"+dataText[4:9] {
		t.Errorf("the copy is %q", got)
	}
	// Without offsets both positions move, and the end of the file ends it.
	g.must(unix.SYS_LSEEK, in, 10, 0)
	g.want(uint64(len(dataText)-10), unix.SYS_COPY_FILE_RANGE, in, 0, out, 0, 1<<40, 0)
	g.want(0, unix.SYS_COPY_FILE_RANGE, in, 0, out, 0, 10, 0)
	if got := g.content("/work/copy"); got != dataText[10:] {
		t.Errorf("the copy is %q", got)
	}
	g.refused(syscall.EINVAL, unix.SYS_COPY_FILE_RANGE, in, 0, out, 0, 10, 1)
	g.refused(syscall.EBADF, unix.SYS_COPY_FILE_RANGE, in, 0, in, 0, 10, 0)
	g.refused(syscall.EINVAL, unix.SYS_COPY_FILE_RANGE, out, g.bytes(words(0)), out, g.bytes(words(3)), 10, 0)
	g.refused(syscall.EFAULT, unix.SYS_COPY_FILE_RANGE, in, 8, out, 0, 10, 0)
	g.refused(syscall.EINVAL, unix.SYS_COPY_FILE_RANGE, in, g.bytes(words(1<<63)), out, 0, 10, 0)
	null := g.open("/dev/null", syscall.O_WRONLY)
	g.refused(syscall.EINVAL, unix.SYS_COPY_FILE_RANGE, in, 0, null, 0, 10, 0)
}
