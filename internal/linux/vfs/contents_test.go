//go:build linux

package vfs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestHolesCostNothingAndReadAsZeros(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/f", "")
	must(t, fs.Truncate(ino, maxFile))
	n, e := fs.WriteAt(ino, []byte("end"), maxFile-3)
	if n != 3 || e != 0 {
		t.Fatal(n, e)
	}
	if fs.bytes != pageSize {
		t.Errorf("charged %d bytes", fs.bytes)
	}
	b := []byte("..........")
	if n, e := ino.ReadAt(b, maxFile-6); n != 6 || e != 0 || string(b[:n]) != "\x00\x00\x00end" {
		t.Errorf("read %q %v", b[:n], e)
	}
	must(t, fs.Truncate(ino, 1))
	fs.check(t)
	if fs.bytes != 0 {
		t.Errorf("%d bytes are left", fs.bytes)
	}
}

func TestWhatIsCutOffDoesNotComeBack(t *testing.T) {
	for _, size := range []int64{0, 1, pageSize - 1, pageSize, pageSize + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			fs := newFS(t)
			data := strings.Repeat("x", 2*pageSize)
			ino := fs.makeFile(t, "/tmp/f", data)
			must(t, fs.Truncate(ino, size))
			fs.check(t)
			must(t, fs.Truncate(ino, 2*pageSize))
			if got := ino.text(t); got != data[:size]+strings.Repeat("\x00", 2*pageSize-int(size)) {
				t.Error("bytes came back")
			}
		})
	}
}

func TestOffsetsAndSizesHaveBounds(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/f", "")
	dir, null := fs.get(t, "/tmp"), fs.get(t, "/dev/null")
	write := func(ino *Inode, n int, off int64) syscall.Errno {
		_, e := fs.WriteAt(ino, make([]byte, n), off)
		return e
	}
	read := func(ino *Inode, off int64) syscall.Errno {
		_, e := ino.ReadAt(make([]byte, 1), off)
		return e
	}
	for _, c := range []struct {
		name      string
		got, want syscall.Errno
	}{
		{"writing before the start", write(ino, 1, -1), syscall.EINVAL},
		{"writing behind the largest file", write(ino, 1, maxFile), syscall.EFBIG},
		{"writing at the last offset", write(ino, 1, 1<<63-1), syscall.EFBIG},
		{"writing nothing there", write(ino, 0, maxFile), 0},
		{"writing to a folder", write(dir, 1, 0), syscall.EISDIR},
		{"writing to a device", write(null, 1, 0), syscall.EINVAL},
		{"reading before the start", read(ino, -1), syscall.EINVAL},
		{"reading at the last offset", read(ino, 1<<63-1), 0},
		{"reading a folder", read(dir, 0), syscall.EISDIR},
		{"reading a device", read(null, 0), syscall.EINVAL},
		{"cutting to less than nothing", fs.Truncate(ino, -1), syscall.EINVAL},
		{"growing too far", fs.Truncate(ino, maxFile+1), syscall.EFBIG},
		{"allocating nothing", fs.Allocate(ino, 0, 0), syscall.EINVAL},
		{"allocating before the start", fs.Allocate(ino, -1, 1), syscall.EINVAL},
		{"allocating too far", fs.Allocate(ino, maxFile, 1), syscall.EFBIG},
		{"allocating past all numbers", fs.Allocate(ino, 1<<62, 1<<62), syscall.EFBIG},
		{"allocating more than there is", fs.Allocate(ino, 0, roomy.Bytes+1), syscall.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, c.got, c.want) })
	}
	if n, e := fs.WriteAt(ino, []byte("four"), maxFile-2); n != 2 || e != 0 {
		t.Errorf("across the end of the largest file: %d %v", n, e)
	}
	fs.check(t)
}

func TestWriteStopsWhereTheRoomEnds(t *testing.T) {
	fs := New(testBase(), Limits{Bytes: 3*pageSize + 100, Inodes: 10}, ticks())
	ino := fs.makeFile(t, "/tmp/f", "")
	n, e := fs.WriteAt(ino, make([]byte, 5*pageSize), 10)
	if n != 3*pageSize-10 || e != 0 {
		t.Fatalf("wrote %d %v", n, e)
	}
	_, e = fs.WriteAt(ino, []byte("x"), 3*pageSize)
	want(t, e, syscall.ENOSPC)
	if n, e := fs.WriteAt(ino, []byte("x"), 0); n != 1 || e != 0 {
		t.Errorf("rewriting: %d %v", n, e)
	}
	if s := ino.Stat(); s.Size != 3*pageSize || s.Blocks != 24 {
		t.Errorf("size %d blocks %d", s.Size, s.Blocks)
	}
	fs.check(t)
	must(t, fs.Truncate(ino, pageSize))
	want(t, fs.Allocate(ino, 0, 4*pageSize), syscall.ENOSPC)
	if fs.bytes != pageSize {
		t.Errorf("an allocation that failed kept %d bytes", fs.bytes-pageSize)
	}
	want(t, fs.Allocate(ino, 100, 2*pageSize), 0)
	if s := ino.Stat(); s.Size != 100+2*pageSize || s.Blocks != 24 {
		t.Errorf("size %d blocks %d", s.Size, s.Blocks)
	}
	fs.check(t)
}

func TestInodesAndFurtherNamesAreBounded(t *testing.T) {
	fs := New(testBase(), Limits{Bytes: 1 << 20, Inodes: 3}, ticks())
	ino := fs.makeFile(t, "/tmp/a", "")
	must(t, fs.Link(ino, fs.Root(), "/tmp/b"))
	must(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755))
	_, e := fs.Open(fs.Root(), "/tmp/c", syscall.O_CREAT, 0o644)
	want(t, e, syscall.ENOSPC)
	_, e = fs.Open(fs.Root(), "/tmp", syscall.O_RDWR|syscall.O_DIRECTORY|openTmpfile, 0o644)
	want(t, e, syscall.ENOSPC)
	want(t, fs.Link(ino, fs.Root(), "/tmp/c"), syscall.ENOSPC)
	want(t, fs.Mkdir(fs.Root(), "/tmp/c", 0o755), syscall.ENOSPC)
	want(t, fs.Symlink("a", fs.Root(), "/tmp/c"), syscall.ENOSPC)
	must(t, fs.Unlink(fs.Root(), "/tmp/a"))
	want(t, fs.Symlink("a", fs.Root(), "/tmp/c"), 0)
	fs.check(t)
}

func TestLongLinkTargetsAreCharged(t *testing.T) {
	fs := New(testBase(), Limits{Bytes: pageSize, Inodes: 10}, ticks())
	must(t, fs.Symlink(strings.Repeat("s", 127), fs.Root(), "/tmp/short"))
	must(t, fs.Symlink(strings.Repeat("l", 4095), fs.Root(), "/tmp/long"))
	want(t, fs.Symlink(strings.Repeat("l", 128), fs.Root(), "/tmp/more"), syscall.ENOSPC)
	want(t, fs.Symlink(strings.Repeat("l", 4096), fs.Root(), "/tmp/more"), syscall.ENAMETOOLONG)
	want(t, fs.Symlink("", fs.Root(), "/tmp/more"), syscall.ENOENT)
	fs.check(t)
	must(t, fs.Unlink(fs.Root(), "/tmp/long"))
	fs.check(t)
	if fs.bytes != 0 {
		t.Errorf("%d bytes are left", fs.bytes)
	}
}

func TestStatfsCountsWhatIsLeft(t *testing.T) {
	fs := New(testBase(), Limits{Bytes: 10 * pageSize, Inodes: 4}, ticks())
	fs.makeFile(t, "/tmp/f", "x")
	if got, want := fs.Statfs(fs.get(t, "/work")), (Usage{Blocks: 10, Free: 9, Files: 4, FilesFree: 3}); got != want {
		t.Errorf("layer: %+v, want %+v", got, want)
	}
	if got := fs.Statfs(fs.Root()); got != (Usage{}) {
		t.Errorf("base: %+v", got)
	}
}
