package vfs

import (
	"strings"
	"syscall"
	"testing"
)

func TestHolesReadAsZeroAndCostNothing(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 3 * chunkSize, Inodes: 10})
	ino := makeFile(t, fs, "/tmp/f", "x")
	n, e := fs.WriteAt(ino, []byte("end"), 1<<39)
	ok(t, e)
	if s := ino.Stat(); n != 3 || s.Size != 1<<39+3 || s.Blocks != 16 {
		t.Errorf("%d written, %+v", n, s)
	}
	b := []byte("garbage")
	if n, e := ino.ReadAt(b, 1<<39-4); n != 7 || e != 0 || string(b) != "\x00\x00\x00\x00end" {
		t.Errorf("%d, %v, %q", n, e, b)
	}
	ok(t, fs.Truncate(ino, 1<<40))
	ok(t, fs.Truncate(ino, 1))
	ok(t, fs.Truncate(ino, 5))
	if got := readAll(t, ino); got != "x\x00\x00\x00\x00" || fs.bytes != chunkSize {
		t.Errorf("%q, %d bytes", got, fs.bytes)
	}
}

func TestAFullLayerTakesWhatFits(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 2 * chunkSize, Inodes: 2})
	ino := makeFile(t, fs, "/tmp/f", "x")
	big := []byte(strings.Repeat("y", 3*chunkSize))
	n, e := fs.WriteAt(ino, big, 1)
	ok(t, e)
	if n != 2*chunkSize-1 || ino.Stat().Size != 2*chunkSize {
		t.Errorf("%d bytes", n)
	}
	_, e = fs.WriteAt(ino, big, 2*chunkSize)
	want(t, e, syscall.ENOSPC)
	want(t, fs.Symlink("x", fs.Root(), "/tmp/l"), syscall.ENOSPC)
	if u := fs.Statfs(ino); u != (Usage{Blocks: 2, Free: 0, Files: 2, FilesFree: 1}) {
		t.Errorf("%+v", u)
	}
	if u := fs.Statfs(fs.Root()); u != (Usage{Blocks: 2, Files: 2}) {
		t.Errorf("%+v", u)
	}
	ok(t, fs.Link(ino, fs.Root(), "/tmp/g"))
	want(t, fs.Link(ino, fs.Root(), "/tmp/h"), syscall.ENOSPC)
	want(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755), syscall.ENOSPC)
	ok(t, fs.Rename(fs.Root(), "/tmp/g", fs.Root(), "/work/g", 0)) // takes nothing
	ok(t, fs.Unlink(fs.Root(), "/work/g"))
	fs.Ref(ino)
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	if fs.bytes != 2*chunkSize || fs.inodes != 1 {
		t.Errorf("an open file gave back its room: %d bytes, %d inodes", fs.bytes, fs.inodes)
	}
	fs.Unref(ino)
	if fs.bytes != 0 || fs.inodes != 0 {
		t.Errorf("%d bytes, %d inodes left", fs.bytes, fs.inodes)
	}
}

func TestWritesAreBoundedByTheFileSize(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "x")
	n, e := fs.WriteAt(ino, []byte("12345"), maxFileSize-2)
	ok(t, e)
	if n != 2 {
		t.Errorf("%d bytes", n)
	}
	_, e = fs.WriteAt(ino, []byte("1"), maxFileSize)
	want(t, e, syscall.EFBIG)
	_, e = fs.WriteAt(ino, []byte("1"), -1)
	want(t, e, syscall.EINVAL)
	n, e = fs.WriteAt(ino, nil, 1<<50)
	if n != 0 || e != 0 {
		t.Errorf("writing nothing: %d, %v", n, e)
	}
	want(t, fs.Truncate(ino, maxFileSize+1), syscall.EFBIG)
	want(t, fs.Truncate(ino, -1), syscall.EINVAL)
	want(t, fs.Truncate(&fs.tmp, 0), syscall.EISDIR)
	_, e = fs.tmp.ReadAt(nil, 0)
	want(t, e, syscall.EISDIR)
	_, e = ino.ReadAt(nil, -1)
	want(t, e, syscall.EINVAL)
}

func TestAllocateTakesAllOrNothing(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 4 * chunkSize, Inodes: 4})
	ino := makeFile(t, fs, "/tmp/f", "x")
	ok(t, fs.Allocate(ino, 0, chunkSize+1))
	if s := ino.Stat(); s.Size != chunkSize+1 || s.Blocks != 16 {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		off, n int64
		want   syscall.Errno
	}{
		{0, 5 * chunkSize, syscall.ENOSPC}, {2 * chunkSize, 3 * chunkSize, syscall.ENOSPC},
		{0, maxFileSize, syscall.ENOSPC}, {1, maxFileSize, syscall.EFBIG}, {1 << 62, 1 << 62, syscall.EFBIG},
		{-1, 1, syscall.EINVAL}, {0, 0, syscall.EINVAL},
	} {
		want(t, fs.Allocate(ino, c.off, c.n), c.want)
	}
	if fs.bytes != 2*chunkSize {
		t.Errorf("%d bytes", fs.bytes)
	}
	ok(t, fs.Allocate(ino, 0, 4*chunkSize))
	if got := readAll(t, ino); got != "x"+strings.Repeat("\x00", 4*chunkSize-1) {
		t.Error("allocating changed the content")
	}
}

func TestAnUnnamedFileLivesByItsReference(t *testing.T) {
	fs := newTree(t, roomy)
	const flags = openTmpfile | syscall.O_DIRECTORY | syscall.O_RDWR
	ino, e := fs.Open(fs.Root(), "/tmp", flags, 0o600)
	ok(t, e)
	fs.Ref(ino)
	_, e = fs.WriteAt(ino, []byte("x"), 0)
	ok(t, e)
	if _, named := fs.Path(ino); named || ino.Stat().Nlink != 0 || len(fs.ReadDir(&fs.tmp)) != 2 {
		t.Error("it has a name")
	}
	checkAccounts(t, fs, []*Inode{ino})
	ok(t, fs.Link(ino, fs.Root(), "/tmp/f"))
	fs.Unref(ino)
	if got := readAll(t, mustResolve(t, fs, "/tmp/f")); got != "x" {
		t.Errorf("%q", got)
	}
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	ino, e = fs.Open(fs.Root(), "/tmp", flags|syscall.O_EXCL, 0o600)
	ok(t, e)
	fs.Ref(ino)
	want(t, fs.Link(ino, fs.Root(), "/tmp/f"), syscall.ENOENT)
	fs.Unref(ino)
}

func TestALayerWithoutRoomRefusesEverything(t *testing.T) {
	for _, lim := range []Limits{{}, {Bytes: -5, Inodes: -5}} {
		fs := newTree(t, lim)
		want(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755), syscall.ENOSPC)
		_, e := fs.Open(fs.Root(), "/tmp/f", syscall.O_CREAT, 0o644)
		want(t, e, syscall.ENOSPC)
		if u := fs.Statfs(&fs.tmp); u != (Usage{}) {
			t.Errorf("%+v", u)
		}
	}
}
