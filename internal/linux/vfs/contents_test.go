//go:build linux

package vfs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestHolesCostNothingAndReadAsZeros(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "")
	ok(t, fs.Truncate(ino, maxFileSize))
	n, e := fs.WriteAt(ino, []byte("end"), maxFileSize-3)
	if n != 3 || e != 0 {
		t.Fatal(n, e)
	}
	if fs.bytes != chunkSize {
		t.Errorf("charged %d bytes", fs.bytes)
	}
	b := []byte("..........")
	if n, e := ino.ReadAt(b, maxFileSize-6); n != 6 || e != 0 || string(b[:n]) != "\x00\x00\x00end" {
		t.Errorf("read %q %v", b[:n], e)
	}
	ok(t, fs.Truncate(ino, 1))
	if fs.bytes != 0 {
		t.Errorf("%d bytes are left", fs.bytes)
	}
}

func TestWhatIsCutOffDoesNotComeBack(t *testing.T) {
	for _, size := range []int64{0, 1, chunkSize - 1, chunkSize, chunkSize + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			fs := newTree(t, roomy)
			data := strings.Repeat("x", 2*chunkSize)
			ino := makeFile(t, fs, "/tmp/f", data)
			ok(t, fs.Truncate(ino, size))
			ok(t, fs.Truncate(ino, 2*chunkSize))
			if got := readAll(t, ino); got != data[:size]+strings.Repeat("\x00", 2*chunkSize-int(size)) {
				t.Error("bytes came back")
			}
		})
	}
}

func TestOffsetsAndSizesHaveBounds(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "")
	dir, null := mustResolve(t, fs, "/tmp"), mustResolve(t, fs, "/dev/null")
	write := func(ino *Inode, n int, off int64) syscall.Errno {
		_, e := fs.WriteAt(ino, make([]byte, n), off)
		return e
	}
	read := func(ino *Inode, off int64) syscall.Errno {
		_, e := ino.ReadAt(make([]byte, 1), off)
		return e
	}
	for _, c := range []struct {
		name       string
		got, asked syscall.Errno
	}{
		{"writing before the start", write(ino, 1, -1), syscall.EINVAL},
		{"writing behind the largest file", write(ino, 1, maxFileSize), syscall.EFBIG},
		{"writing at the last offset", write(ino, 1, 1<<63-1), syscall.EFBIG},
		{"writing nothing there", write(ino, 0, maxFileSize), 0},
		{"writing to a folder", write(dir, 1, 0), syscall.EISDIR},
		{"writing to a device", write(null, 1, 0), syscall.EINVAL},
		{"reading before the start", read(ino, -1), syscall.EINVAL},
		{"reading at the last offset", read(ino, 1<<63-1), 0},
		{"reading a folder", read(dir, 0), syscall.EISDIR},
		{"reading a device", read(null, 0), syscall.EINVAL},
		{"cutting to less than nothing", fs.Truncate(ino, -1), syscall.EINVAL},
		{"growing too far", fs.Truncate(ino, maxFileSize+1), syscall.EFBIG},
		{"allocating nothing", fs.Allocate(ino, 0, 0), syscall.EINVAL},
		{"allocating before the start", fs.Allocate(ino, -1, 1), syscall.EINVAL},
		{"allocating too far", fs.Allocate(ino, maxFileSize, 1), syscall.EFBIG},
		{"allocating past all numbers", fs.Allocate(ino, 1<<62, 1<<62), syscall.EFBIG},
		{"allocating more than there is", fs.Allocate(ino, 0, roomy.Bytes+1), syscall.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, c.got, c.asked) })
	}
	if n, e := fs.WriteAt(ino, []byte("four"), maxFileSize-2); n != 2 || e != 0 {
		t.Errorf("across the end of the largest file: %d %v", n, e)
	}
}

func TestWriteStopsWhereTheRoomEnds(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 3*chunkSize + 100, Inodes: 10})
	ino := makeFile(t, fs, "/tmp/f", "")
	n, e := fs.WriteAt(ino, make([]byte, 5*chunkSize), 10)
	if n != 3*chunkSize-10 || e != 0 {
		t.Fatalf("wrote %d %v", n, e)
	}
	_, e = fs.WriteAt(ino, []byte("x"), 3*chunkSize)
	want(t, e, syscall.ENOSPC)
	if n, e := fs.WriteAt(ino, []byte("x"), 0); n != 1 || e != 0 {
		t.Errorf("rewriting: %d %v", n, e)
	}
	if s := ino.Stat(); s.Size != 3*chunkSize || s.Blocks != 24 {
		t.Errorf("size %d blocks %d", s.Size, s.Blocks)
	}
	ok(t, fs.Truncate(ino, chunkSize))
	want(t, fs.Allocate(ino, 0, 3*chunkSize+1), syscall.ENOSPC)
	if fs.bytes != chunkSize {
		t.Errorf("an allocation that failed kept %d bytes", fs.bytes-chunkSize)
	}
	want(t, fs.Allocate(ino, 100, 2*chunkSize), 0)
	if s := ino.Stat(); s.Size != 100+2*chunkSize || s.Blocks != 24 {
		t.Errorf("size %d blocks %d", s.Size, s.Blocks)
	}
}

func TestNamesAndFilesWithoutOneAreBounded(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 1 << 20, Inodes: 3})
	ino := makeFile(t, fs, "/tmp/a", "")
	ok(t, fs.Link(ino, fs.Root(), "/tmp/b"))
	ok(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755))
	_, e := fs.Open(fs.Root(), "/tmp/c", syscall.O_CREAT, 0o644)
	want(t, e, syscall.ENOSPC)
	_, e = fs.Open(fs.Root(), "/tmp", syscall.O_RDWR|syscall.O_DIRECTORY|openTmpfile, 0o644)
	want(t, e, syscall.ENOSPC)
	want(t, fs.Link(ino, fs.Root(), "/tmp/c"), syscall.ENOSPC)
	want(t, fs.Mkdir(fs.Root(), "/tmp/c", 0o755), syscall.ENOSPC)
	want(t, fs.Symlink("a", fs.Root(), "/tmp/c"), syscall.ENOSPC)
	ok(t, fs.Rename(fs.Root(), "/tmp/b", fs.Root(), "/tmp/c", 0))
	ok(t, fs.Unlink(fs.Root(), "/tmp/c"))
	ok(t, fs.Symlink("a", fs.Root(), "/tmp/c"))
}

func TestLinkTargetsAreCharged(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 4096, Inodes: 10})
	ok(t, fs.Symlink(strings.Repeat("l", 4095), fs.Root(), "/tmp/long"))
	want(t, fs.Symlink("ab", fs.Root(), "/tmp/more"), syscall.ENOSPC)
	want(t, fs.Symlink(strings.Repeat("l", 4096), fs.Root(), "/tmp/more"), syscall.ENAMETOOLONG)
	want(t, fs.Symlink("", fs.Root(), "/tmp/more"), syscall.ENOENT)
	ok(t, fs.Unlink(fs.Root(), "/tmp/long"))
	if fs.bytes != 0 {
		t.Errorf("%d bytes are left", fs.bytes)
	}
}

func TestStatfsCountsWhatIsLeft(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 10 * chunkSize, Inodes: 4})
	makeFile(t, fs, "/tmp/f", "x")
	if got, asked := fs.Statfs(mustResolve(t, fs, "/work")), (Usage{Blocks: 10, Free: 9, Files: 4, FilesFree: 3}); got != asked {
		t.Errorf("layer: %+v, want %+v", got, asked)
	}
	if got := fs.Statfs(fs.Root()); got.Free != 0 || got.FilesFree != 0 {
		t.Errorf("there is room in the base: %+v", got)
	}
}

func TestUnlinkedFileLivesWhileItIsOpen(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "still here")
	fs.Ref(ino)
	fs.Ref(ino)
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	fs.Unref(ino)
	checkAccounts(t, fs, []*Inode{ino})
	if got := readAll(t, ino); got != "still here" || ino.Stat().Nlink != 0 {
		t.Errorf("read %q, %d links", got, ino.Stat().Nlink)
	}
	if _, found := fs.Path(ino); found {
		t.Error("it has a path")
	}
	want(t, fs.Link(ino, fs.Root(), "/tmp/g"), syscall.ENOENT)
	fs.Unref(ino)
	checkAccounts(t, fs, nil)
	fs.Unref(ino)
	if fs.bytes != 0 || fs.inodes != 0 {
		t.Errorf("%d bytes and %d inodes are left", fs.bytes, fs.inodes)
	}
}

func TestFileWithoutANameMayBeGivenOne(t *testing.T) {
	const flags = syscall.O_RDWR | syscall.O_DIRECTORY | openTmpfile
	fs := newTree(t, roomy)
	for _, c := range []struct {
		name  string
		flags int
		asked syscall.Errno
	}{
		{"plain", flags, 0},
		{"exclusive", flags | syscall.O_EXCL, syscall.ENOENT},
	} {
		t.Run(c.name, func(t *testing.T) {
			ino, e := fs.Open(fs.Root(), "/tmp", c.flags, 0o600)
			ok(t, e)
			fs.Ref(ino)
			checkAccounts(t, fs, []*Inode{ino})
			want(t, fs.Link(ino, fs.Root(), "/tmp/"+c.name), c.asked)
			checkAccounts(t, fs, []*Inode{ino})
			fs.Unref(ino)
		})
	}
	for _, wrong := range []int{flags &^ syscall.O_DIRECTORY, flags &^ syscall.O_RDWR, flags | syscall.O_CREAT} {
		_, e := fs.Open(fs.Root(), "/tmp", wrong, 0o600)
		want(t, e, syscall.EINVAL)
	}
	_, e := fs.Open(fs.Root(), "/tmp/plain", flags, 0o600)
	want(t, e, syscall.ENOTDIR)
}

func TestTreeIsRemovedRelativeToDescriptors(t *testing.T) {
	// What shutil.rmtree does.
	fs := newTree(t, roomy)
	for _, d := range []string{"a", "a/b", "a/b/c", "a/d"} {
		ok(t, fs.Mkdir(fs.Root(), "/tmp/"+d, 0o755))
		makeFile(t, fs, "/tmp/"+d+"/file", "x")
		ok(t, fs.Symlink("/usr", fs.Root(), "/tmp/"+d+"/link"))
	}
	var remove func(parent *Inode, name string)
	remove = func(parent *Inode, name string) {
		dir, e := fs.Open(parent, name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
		ok(t, e)
		fs.Ref(dir)
		for _, d := range fs.ReadDir(dir)[2:] {
			if d.Kind == Dir {
				remove(dir, d.Name)
			} else {
				ok(t, fs.Unlink(dir, d.Name))
			}
		}
		fs.Unref(dir)
		ok(t, fs.Rmdir(parent, name))
	}
	tmp := mustResolve(t, fs, "/tmp")
	remove(tmp, "a")
	if fs.bytes != 0 || fs.inodes != 0 || tmp.Stat().Nlink != 2 {
		t.Errorf("%d bytes, %d inodes, %d links are left", fs.bytes, fs.inodes, tmp.Stat().Nlink)
	}
}
