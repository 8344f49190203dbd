package linux

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sharedFile makes a file of three pages and maps it shared.
func sharedFile(t *testing.T) (g *guest, fd, at uint64) {
	t.Helper()
	g = newGuest(t)
	fd = g.open("/work/m", syscall.O_CREAT|syscall.O_RDWR)
	g.must(unix.SYS_FTRUNCATE, fd, 3*page-100)
	at = g.must(unix.SYS_MMAP, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, mapShared, fd, 0)
	return g, fd, at
}

func (g *guest) pread(fd uint64, n int, off uint64) string {
	g.t.Helper()
	buf := g.alloc(n)
	return string(g.get(buf, int(g.must(unix.SYS_PREAD64, fd, buf, uint64(n), off))))
}

func TestASharedMappingAndItsFileStayEqual(t *testing.T) {
	g, fd, at := sharedFile(t)
	g.m.CopyOut(at+page-2, []byte("mapped"))
	if got := g.pread(fd, 8, page-3); got != "\x00mapped\x00" {
		t.Errorf("the file reads %q", got)
	}
	g.must(unix.SYS_PWRITE64, fd, g.str("written"), 7, 2*page-3)
	if got := string(g.get(at+2*page-4, 9)); got != "\x00written\x00" {
		t.Errorf("the mapping reads %q", got)
	}
	// Beyond the end of the file there is nothing to write back to.
	g.m.CopyOut(at+3*page-100, []byte("lost"))
	g.must(unix.SYS_MUNMAP, at, 3*page)
	if n := len(g.p.mem.shared); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
	if got := g.pread(fd, 8, page-3) + g.pread(fd, 200, 3*page-104); got != "\x00mapped\x00\x00\x00\x00\x00" {
		t.Errorf("the file reads %q", got)
	}
}

func TestASharedMappingOutlivesItsDescriptorAndItsName(t *testing.T) {
	g, fd, at := sharedFile(t)
	second := g.open("/work/m", syscall.O_RDWR)
	g.must(unix.SYS_CLOSE, fd)
	g.must(unix.SYS_UNLINK, g.str("/work/m"))
	g.m.CopyOut(at, []byte("late"))
	g.want(0, unix.SYS_MSYNC, at, page, 4)
	if got := g.pread(second, 4, 0); got != "late" {
		t.Errorf("the file reads %q", got)
	}
	g.must(unix.SYS_CLOSE, second)
	g.must(unix.SYS_MUNMAP, at, 3*page)
	work := g.p.lookup("/work")
	if u := g.p.fs.Statfs(work); u.Blocks-u.Free > 1 {
		t.Errorf("%d blocks are still in use", u.Blocks-u.Free)
	}
}

func TestUnmappingAPartKeepsTheRestShared(t *testing.T) {
	g, fd, at := sharedFile(t)
	g.m.CopyOut(at+page, []byte("middle"))
	g.must(unix.SYS_MUNMAP, at+page, page)
	g.m.CopyOut(at, []byte("first"))
	g.m.CopyOut(at+2*page, []byte("third"))
	for off, want := range map[uint64]string{0: "first", page: "middle", 2 * page: "third"} {
		if got := g.pread(fd, len(want), off); got != want {
			t.Errorf("at %#x the file reads %q, want %q", off, got, want)
		}
	}
	if n := len(g.p.mem.shared); n != 2 {
		t.Errorf("%d mappings", n)
	}
	// Anonymous memory over the first page ends that part too.
	g.must(unix.SYS_MMAP, at, page, syscall.PROT_READ|syscall.PROT_WRITE, mapFixed|mapAnonymous|mapPrivate, 0, 0)
	g.m.CopyOut(at, []byte("other"))
	if got := g.pread(fd, 5, 0); got != "first" {
		t.Errorf("the file reads %q", got)
	}
}

func TestASharedMappingGrowsWithItsFile(t *testing.T) {
	g, fd, at := sharedFile(t)
	blocker := g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapAnonymous|mapPrivate, 0, 0)
	g.must(unix.SYS_PWRITE64, fd, g.str("tail"), 4, 5*page)
	moved := g.must(unix.SYS_MREMAP, at, 3*page, 6*page, mremapMayMove)
	if moved == at {
		t.Fatalf("the mapping at %#x did not have to move past %#x", at, blocker)
	}
	if got := string(g.get(moved+5*page, 4)); got != "tail" {
		t.Errorf("the mapping reads %q", got)
	}
	g.m.CopyOut(moved+4*page, []byte("new"))
	if got := g.pread(fd, 3, 4*page); got != "new" {
		t.Errorf("the file reads %q", got)
	}
	g.must(unix.SYS_MREMAP, moved, 6*page, page, 0)
	g.m.CopyOut(moved, []byte("head"))
	if got := g.pread(fd, 4, 0); got != "head" || len(g.p.mem.shared) != 1 {
		t.Errorf("the file reads %q, %d mappings", got, len(g.p.mem.shared))
	}
}

func TestASharedMappingTakesItsRoomAtOnce(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/big", syscall.O_CREAT|syscall.O_RDWR)
	g.must(unix.SYS_FTRUNCATE, fd, uint64(testLimits.Bytes)+page)
	g.refused(syscall.ENOMEM, unix.SYS_MMAP, 0, uint64(testLimits.Bytes)+page, syscall.PROT_READ|syscall.PROT_WRITE, mapShared, fd, 0)
	if len(g.p.mem.shared) != 0 || len(g.p.mem.free) != 1 {
		t.Error("a refused mapping left something behind")
	}
}

func TestSharedMappingsAreBounded(t *testing.T) {
	g, fd, _ := sharedFile(t)
	for range maxShared - 1 {
		g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapShared, fd, 0)
	}
	g.refused(syscall.ENOMEM, unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapShared, fd, 0)
}

func TestASecondMappingSeesWhatTheFirstHolds(t *testing.T) {
	g, fd, at := sharedFile(t)
	g.m.CopyOut(at, []byte("shared"))
	for _, kind := range []uint64{mapPrivate, mapShared} {
		second := g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, kind, fd, 0)
		if got := string(g.get(second, 6)); got != "shared" {
			t.Errorf("kind %d reads %q", kind, got)
		}
	}
}
