//go:build linux

package vfs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestUnlinkedFileLivesWhileItIsOpen(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/f", "still here")
	fs.Ref(ino)
	fs.Ref(ino)
	must(t, fs.Unlink(fs.Root(), "/tmp/f"))
	fs.Unref(ino)
	fs.check(t, ino)
	if got := ino.text(t); got != "still here" || ino.Stat().Nlink != 0 {
		t.Errorf("read %q, %d links", got, ino.Stat().Nlink)
	}
	if _, ok := fs.Path(ino); ok {
		t.Error("it has a path")
	}
	want(t, fs.Link(ino, fs.Root(), "/tmp/g"), syscall.ENOENT)
	fs.Unref(ino)
	fs.check(t)
	if fs.bytes != 0 || fs.inodes != 0 {
		t.Errorf("%d bytes and %d inodes are left", fs.bytes, fs.inodes)
	}
	// A caller that goes on regardless must not upset the count.
	_, e := fs.WriteAt(ino, []byte("x"), 0)
	want(t, e, syscall.ESTALE)
	fs.Unref(ino)
	fs.Unref(nil)
	fs.check(t)
}

func TestRemovedFolderThatIsOpenFindsItsParent(t *testing.T) {
	fs := newFS(t)
	must(t, fs.Mkdir(fs.Root(), "/work/a", 0o755))
	must(t, fs.Mkdir(fs.Root(), "/work/a/b", 0o755))
	b := fs.get(t, "/work/a/b")
	fs.Ref(b)
	must(t, fs.Rmdir(fs.Root(), "/work/a/b"))
	must(t, fs.Rmdir(fs.Root(), "/work/a"))
	fs.check(t, b)
	if _, ok := fs.Path(b); ok {
		t.Error("it has a path")
	}
	if fs.ReadDir(b) != nil {
		t.Error("it is listed")
	}
	a, e := fs.Resolve(b, "..", true)
	must(t, e)
	if a.Kind() != Dir || a.freed {
		t.Error("its parent is gone")
	}
	if up, e := fs.Resolve(b, "../..", true); up != fs.get(t, "/work") || e != 0 {
		t.Errorf("two levels up: %v", e)
	}
	_, e = fs.Open(b, "new", syscall.O_CREAT, 0o644)
	want(t, e, syscall.ENOENT)
	want(t, fs.Mkdir(b, "new", 0o755), syscall.ENOENT)
	want(t, fs.Rename(fs.Root(), "/work", b, "new", 0), syscall.EXDEV)
	fs.makeFile(t, "/work/f", "")
	want(t, fs.Rename(fs.Root(), "/work/f", b, "new", 0), syscall.ENOENT)
	fs.Unref(b)
	fs.check(t)
	if fs.inodes != 1 {
		t.Errorf("%d inodes are left", fs.inodes)
	}
}

func TestFileWithoutANameMayBeGivenOne(t *testing.T) {
	const flags = syscall.O_RDWR | syscall.O_DIRECTORY | openTmpfile
	fs := newFS(t)
	for _, c := range []struct {
		name  string
		flags int
		want  syscall.Errno
	}{
		{"plain", flags, 0},
		{"exclusive", flags | syscall.O_EXCL, syscall.ENOENT},
	} {
		t.Run(c.name, func(t *testing.T) {
			ino, e := fs.Open(fs.Root(), "/tmp", c.flags, 0o600)
			must(t, e)
			fs.Ref(ino)
			fs.check(t, ino)
			want(t, fs.Link(ino, fs.Root(), "/tmp/"+c.name), c.want)
			fs.check(t, ino)
			fs.Unref(ino)
			fs.check(t)
		})
	}
	for _, c := range []struct {
		flags int
		want  syscall.Errno
	}{
		{flags &^ syscall.O_DIRECTORY, syscall.EINVAL},
		{flags &^ syscall.O_RDWR, syscall.EINVAL},
		{flags | syscall.O_CREAT, syscall.EINVAL},
	} {
		_, e := fs.Open(fs.Root(), "/tmp", c.flags, 0o600)
		want(t, e, c.want)
	}
	_, e := fs.Open(fs.Root(), "/tmp/plain", flags, 0o600)
	want(t, e, syscall.ENOTDIR)
}

func TestFoldersNestToABound(t *testing.T) {
	fs := newFS(t)
	p := "/work"
	for range maxDepth - 1 {
		p += "/d"
		must(t, fs.Mkdir(fs.Root(), p, 0o755))
	}
	want(t, fs.Mkdir(fs.Root(), p+"/d", 0o755), syscall.ENAMETOOLONG)
	fs.makeFile(t, p+"/f", "")
	must(t, fs.Mkdir(fs.Root(), "/work/two", 0o755))
	must(t, fs.Mkdir(fs.Root(), "/work/two/levels", 0o755))
	above := strings.TrimSuffix(p, "/d")
	want(t, fs.Rename(fs.Root(), "/work/two", fs.Root(), above+"/two", 0), syscall.ENAMETOOLONG)
	want(t, fs.Rename(fs.Root(), "/work/two", fs.Root(), p, RenameExchange), syscall.ENAMETOOLONG)
	want(t, fs.Rename(fs.Root(), "/work/two/levels", fs.Root(), above+"/level", 0), 0)
	want(t, fs.Rename(fs.Root(), "/work/d", fs.Root(), "/tmp/d", 0), 0)
	fs.check(t)
	last := "/tmp" + strings.TrimPrefix(p, "/work")
	if got, ok := fs.Path(fs.get(t, last)); got != last || !ok {
		t.Errorf("path of the deepest folder: %d bytes, %v", len(got), ok)
	}
}

func TestLongestPathsAreReported(t *testing.T) {
	fs := newFS(t)
	name := strings.Repeat("n", 255)
	dir := fs.get(t, "/work")
	for range 100 {
		must(t, fs.Mkdir(dir, name, 0o755))
		dir = dir.child(name)
	}
	if p, ok := fs.Path(dir); !ok || len(p) != len("/work")+100*256 {
		t.Errorf("%d bytes, %v", len(p), ok)
	}
}

func TestPathOfAFileIsItsLastName(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/a", "")
	must(t, fs.Link(ino, fs.Root(), "/work/b"))
	if p, ok := fs.Path(ino); p != "/work/b" || !ok {
		t.Errorf("%q %v", p, ok)
	}
	must(t, fs.Unlink(fs.Root(), "/work/b"))
	if p, ok := fs.Path(ino); ok {
		t.Errorf("a name that is gone: %q", p)
	}
}

func TestRenameMovesReplacesAndExchanges(t *testing.T) {
	for _, c := range []struct {
		from, to string
		flags    int
		want     syscall.Errno
	}{
		{"f", "new", 0, 0},
		{"f", "f", 0, 0},
		{"f", "hard", 0, 0},
		{"f", "g", 0, 0},
		{"f", "d", 0, syscall.EISDIR},
		{"f", "g", RenameNoReplace, syscall.EEXIST},
		{"f", "new", RenameNoReplace, 0},
		{"f", "new/", 0, syscall.ENOTDIR},
		{"f/", "new", 0, syscall.ENOTDIR},
		{"f", "new", RenameExchange, syscall.ENOENT},
		{"f", "full", RenameExchange, 0},
		{"f", "full/sub", RenameExchange, 0},
		{"f", "new", RenameExchange | RenameNoReplace, syscall.EINVAL},
		{"f", "new", 4, syscall.EINVAL},
		{"none", "new", 0, syscall.ENOENT},
		{"d", "new/", 0, 0},
		{"d", "empty", 0, 0},
		{"d", "f", 0, syscall.ENOTDIR},
		{"empty", "full", 0, syscall.ENOTEMPTY},
		{"full", "full/sub/x", 0, syscall.EINVAL},
		{"full", "full", 0, 0},
		{"full/sub", "full", 0, syscall.ENOTEMPTY},
		{"full/sub", "full", RenameExchange, syscall.EINVAL},
		{"full", "full/sub", RenameExchange, syscall.EINVAL},
		{"link", "new", 0, 0},
		{"f", "link", 0, 0},
		{".", "new", 0, syscall.EBUSY},
		{"f", "..", 0, syscall.EBUSY},
		{"f", "..", RenameNoReplace, syscall.EEXIST},
		{"locked/f", "new", 0, syscall.EACCES},
		{"f", "locked/f", 0, syscall.EACCES},
		{"unwritable", "d/new", 0, syscall.EACCES},
		{"unwritable", "new", 0, 0},
		{"f", "/usr/new", 0, syscall.EXDEV},
		{"f", strings.Repeat("n", 256), 0, syscall.ENAMETOOLONG},
	} {
		t.Run(fmt.Sprintf("%s to %.10s with %d", c.from, c.to, c.flags), func(t *testing.T) {
			fs := newFS(t)
			work := fs.get(t, "/work")
			for _, d := range []string{"d", "empty", "full", "full/sub", "locked", "unwritable"} {
				must(t, fs.Mkdir(work, d, 0o755))
			}
			must(t, fs.Link(fs.makeFile(t, "/work/f", "f"), work, "hard"))
			fs.makeFile(t, "/work/g", "g")
			fs.makeFile(t, "/work/full/file", "")
			fs.makeFile(t, "/work/locked/f", "")
			must(t, fs.Symlink("nowhere", work, "link"))
			must(t, fs.Chmod(fs.get(t, "/work/locked"), 0o555))
			must(t, fs.Chmod(fs.get(t, "/work/unwritable"), 0o555))
			want(t, fs.Rename(work, c.from, work, c.to, c.flags), c.want)
			fs.check(t)
		})
	}
}

func TestOpenFollowsTheFlags(t *testing.T) {
	const create = syscall.O_CREAT
	fs := newFS(t)
	work := fs.get(t, "/work")
	fs.makeFile(t, "/work/f", "contents")
	must(t, fs.Chmod(fs.makeFile(t, "/work/secret", ""), 0))
	must(t, fs.Mkdir(work, "d", 0o755))
	must(t, fs.Symlink("f", work, "l"))
	must(t, fs.Symlink("made", work, "dangling"))
	for _, c := range []struct {
		path  string
		flags int
		want  syscall.Errno
	}{
		{"f", syscall.O_RDWR, 0},
		{"f", create | syscall.O_EXCL, syscall.EEXIST},
		{"f", syscall.O_DIRECTORY, syscall.ENOTDIR},
		{"f/", 0, syscall.ENOTDIR},
		{"f/", create, syscall.EISDIR},
		{"none", 0, syscall.ENOENT},
		{"none/", create, syscall.EISDIR},
		{"none/f", create, syscall.ENOENT},
		{"d", 0, 0},
		{"d", syscall.O_RDWR, syscall.EISDIR},
		{"d", create, syscall.EISDIR},
		{"d", create | syscall.O_DIRECTORY, syscall.EINVAL},
		{"d/", syscall.O_DIRECTORY | syscall.O_NOFOLLOW, 0},
		{".", create | syscall.O_EXCL, syscall.EEXIST},
		{"l", syscall.O_RDWR, 0},
		{"l", syscall.O_NOFOLLOW, syscall.ELOOP},
		{"l", syscall.O_NOFOLLOW | syscall.O_DIRECTORY, syscall.ENOTDIR},
		{"l", syscall.O_NOFOLLOW | openPath, 0},
		{"l", create | syscall.O_EXCL, syscall.EEXIST},
		{"dangling", create | syscall.O_EXCL, syscall.EEXIST},
		{"dangling", create | syscall.O_NOFOLLOW, syscall.ELOOP},
		{"dangling", create, 0},
		{"made", 0, 0},
		{"secret", 0, syscall.EACCES},
		{"secret", syscall.O_WRONLY, syscall.EACCES},
		{"secret", openPath, 0},
		{"secret", openPath | create | syscall.O_RDWR, 0},
		{"/dev/null", syscall.O_RDWR | syscall.O_TRUNC | create, 0},
		{"/dev/null", syscall.O_DIRECTORY, syscall.ENOTDIR},
	} {
		t.Run(fmt.Sprintf("%s with %#x", c.path, c.flags), func(t *testing.T) {
			_, e := fs.Open(work, c.path, c.flags, 0o600)
			want(t, e, c.want)
			fs.check(t)
		})
	}
	if ino, e := fs.Open(work, "f", syscall.O_RDWR|syscall.O_TRUNC, 0); e != 0 || ino.Stat().Size != 0 {
		t.Errorf("O_TRUNC left %v, %v", ino, e)
	}
	// A new file is open for writing whatever its mode.
	if ino, e := fs.Open(work, "readonly", syscall.O_WRONLY|create, 0o444); e != 0 || ino.Stat().Mode != 0o100444 {
		t.Errorf("a new file that cannot be written to: %v", e)
	}
}

func TestTreeIsRemovedRelativeToDescriptors(t *testing.T) {
	// What shutil.rmtree does.
	fs := newFS(t)
	for _, d := range []string{"a", "a/b", "a/b/c", "a/d"} {
		must(t, fs.Mkdir(fs.Root(), "/tmp/"+d, 0o755))
		fs.makeFile(t, "/tmp/"+d+"/file", "x")
		must(t, fs.Symlink("/usr", fs.Root(), "/tmp/"+d+"/link"))
	}
	var remove func(parent *Inode, name string)
	remove = func(parent *Inode, name string) {
		dir, e := fs.Open(parent, name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
		must(t, e)
		fs.Ref(dir)
		for _, d := range fs.ReadDir(dir)[2:] {
			if d.Kind == Dir {
				remove(dir, d.Name)
				must(t, fs.Rmdir(dir, d.Name))
			} else {
				must(t, fs.Unlink(dir, d.Name))
			}
		}
		fs.Unref(dir)
	}
	tmp := fs.get(t, "/tmp")
	remove(tmp, "a")
	want(t, fs.Rmdir(tmp, "a"), 0)
	fs.check(t)
	if fs.bytes != 0 || fs.inodes != 0 || tmp.Stat().Nlink != 2 {
		t.Errorf("%d bytes, %d inodes, %d links are left", fs.bytes, fs.inodes, tmp.Stat().Nlink)
	}
}
