//go:build linux

package vfs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBaseCannotBeChanged(t *testing.T) {
	const create = syscall.O_WRONLY | syscall.O_CREAT
	open := func(p string, flags int) func(*FS) syscall.Errno {
		return func(fs *FS) syscall.Errno {
			_, e := fs.Open(fs.Root(), p, flags, 0o644)
			return e
		}
	}
	rename := func(from, to string) func(*FS) syscall.Errno {
		return func(fs *FS) syscall.Errno { return fs.Rename(fs.Root(), from, fs.Root(), to, 0) }
	}
	link := func(from, to string) func(*FS) syscall.Errno {
		return func(fs *FS) syscall.Errno { return fs.Link(fs.child(t, from), fs.Root(), to) }
	}
	on := func(p string, f func(*FS, *Inode) syscall.Errno) func(*FS) syscall.Errno {
		return func(fs *FS) syscall.Errno { return f(fs, fs.child(t, p)) }
	}
	for _, c := range []struct {
		name string
		do   func(*FS) syscall.Errno
		want syscall.Errno
	}{
		{"opening a file to write", open("/usr/lib/os.py", syscall.O_WRONLY), syscall.EROFS},
		{"opening a file to read and write", open("/usr/lib/os.py", syscall.O_RDWR), syscall.EROFS},
		{"emptying a file", open("/usr/lib/os.py", syscall.O_TRUNC), syscall.EROFS},
		{"opening a folder to write", open("/usr", syscall.O_WRONLY), syscall.EISDIR},
		{"making a file", open("/usr/new", create), syscall.EROFS},
		{"making a file that is there", open("/usr/lib/os.py", create|syscall.O_EXCL), syscall.EEXIST},
		{"making a file beside the mounts", open("/new", create), syscall.EROFS},
		{"making a device", open("/dev/new", create), syscall.EROFS},
		{"making a file without a name", open("/usr", syscall.O_RDWR|syscall.O_DIRECTORY|openTmpfile), syscall.EROFS},
		{"opening a file to read", open("/lib/os.py", syscall.O_RDONLY), 0},
		{"opening a device to write", open("/dev/null", create|syscall.O_TRUNC), 0},
		{"making a folder", func(fs *FS) syscall.Errno { return fs.Mkdir(fs.Root(), "/usr/new", 0o755) }, syscall.EROFS},
		{"making a folder that is there", func(fs *FS) syscall.Errno { return fs.Mkdir(fs.Root(), "/usr", 0o755) }, syscall.EEXIST},
		{"making a link", func(fs *FS) syscall.Errno { return fs.Symlink("a", fs.Root(), "/usr/new") }, syscall.EROFS},
		{"removing a file", func(fs *FS) syscall.Errno { return fs.Unlink(fs.Root(), "/usr/lib/os.py") }, syscall.EROFS},
		{"removing a folder", func(fs *FS) syscall.Errno { return fs.Rmdir(fs.Root(), "/usr/bin") }, syscall.EROFS},
		{"removing a mount", func(fs *FS) syscall.Errno { return fs.Rmdir(fs.Root(), "/tmp") }, syscall.EROFS},
		{"moving within the base", rename("/usr/lib/os.py", "/usr/lib/so.py"), syscall.EROFS},
		{"moving a mount", rename("/tmp", "/usr/tmp"), syscall.EROFS},
		{"moving out of the base", rename("/usr/lib/os.py", "/tmp/os.py"), syscall.EXDEV},
		{"moving into the base", rename("/tmp/a", "/usr/a"), syscall.EXDEV},
		{"linking within the base", link("/usr/lib/os.py", "/usr/new"), syscall.EROFS},
		{"linking out of the base", link("/usr/lib/os.py", "/tmp/os.py"), syscall.EXDEV},
		{"changing permissions", on("/usr/lib/os.py", func(fs *FS, i *Inode) syscall.Errno { return fs.Chmod(i, 0o777) }), syscall.EROFS},
		{"changing the owner", on("/usr", func(fs *FS, i *Inode) syscall.Errno { return fs.Chown(i, 1000, 1000) }), syscall.EROFS},
		{"changing times", on("/usr", func(fs *FS, i *Inode) syscall.Errno { return fs.Utimes(i, Time{Now: true}, Time{Omit: true}) }), syscall.EROFS},
		{"changing no times", on("/usr", func(fs *FS, i *Inode) syscall.Errno { return fs.Utimes(i, Time{Omit: true}, Time{Omit: true}) }), 0},
		{"writing", on("/usr/lib/os.py", func(fs *FS, i *Inode) syscall.Errno { _, e := fs.WriteAt(i, []byte("x"), 0); return e }), syscall.EROFS},
		{"cutting", on("/usr/lib/os.py", func(fs *FS, i *Inode) syscall.Errno { return fs.Truncate(i, 0) }), syscall.EROFS},
		{"allocating", on("/usr/lib/os.py", func(fs *FS, i *Inode) syscall.Errno { return fs.Allocate(i, 0, 1) }), syscall.EROFS},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := newFS(t)
			fs.makeFile(t, "/tmp/a", "")
			want(t, c.do(fs), c.want)
			fs.check(t)
		})
	}
}

// child finds an inode without following a last link.
func (fs *FS) child(t testing.TB, p string) *Inode {
	t.Helper()
	ino, e := fs.Resolve(fs.Root(), p, false)
	if e != 0 {
		t.Fatalf("%s: %v", p, e)
	}
	return ino
}

func TestPathsResolveAcrossTheLayers(t *testing.T) {
	fs := newFS(t)
	must(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755))
	must(t, fs.Symlink("/usr/lib/up/python", fs.Root(), "/tmp/d/py"))
	fs.makeFile(t, "/tmp/d/f", "")
	for _, c := range []struct {
		from, path string
		want       string
		err        syscall.Errno
	}{
		{"/", "/", "/", 0},
		{"/", "//usr///lib//", "/usr/lib", 0},
		{"/", "/../..", "/", 0},
		{"/usr", ".", "/usr", 0},
		{"/usr", "..", "/", 0},
		{"/usr/lib", "up/python", "/usr/bin/python", 0},
		{"/usr", "lib/abs", "/usr/bin/python", 0},
		{"/", "/lib/os.py", "/usr/lib/os.py", 0},
		{"/", "/scratch/d/py", "/usr/bin/python", 0},
		{"/tmp/d", "../../work", "/work", 0},
		{"/", "/dev/../tmp/./d", "/tmp/d", 0},
		{"/", "/dev/null", "/dev/null", 0},
		{"/", "/dev/kept", "/dev/kept", 0},
		{"/", "/tmp/d/f", "/tmp/d/f", 0},
		{"/", "", "", syscall.ENOENT},
		{"/", "/tmp/hidden", "", syscall.ENOENT},
		{"/", "/usr/lib/gone", "", syscall.ENOENT},
		{"/", "/usr/lib/os.py/", "", syscall.ENOTDIR},
		{"/", "/usr/lib/abs/", "", syscall.ENOTDIR},
		{"/", "/usr/lib/os.py/x", "", syscall.ENOTDIR},
		{"/tmp/d/f", "x", "", syscall.ENOTDIR},
		{"/", "/loop", "", syscall.ELOOP},
		{"/", "/loop/x", "", syscall.ELOOP},
		{"/", "/" + strings.Repeat("n", 256), "", syscall.ENAMETOOLONG},
		{"/", "/" + strings.Repeat("n", 255), "", syscall.ENOENT},
		{"/", strings.Repeat("/", 4095), "/", 0},
		{"/", strings.Repeat("/", 4096), "", syscall.ENAMETOOLONG},
		{"/", "/tmp\x00", "", syscall.EINVAL},
	} {
		t.Run(c.from+" "+c.path[:min(len(c.path), 30)], func(t *testing.T) {
			ino, e := fs.Resolve(fs.get(t, c.from), c.path, true)
			want(t, e, c.err)
			if e != 0 || c.err != 0 {
				return
			}
			if p, ok := fs.Path(ino); !ok || p != c.want {
				t.Errorf("path %q %v, want %q", p, ok, c.want)
			}
		})
	}
}

func TestFortyLinksAreFollowedAndNoMore(t *testing.T) {
	fs := newFS(t)
	fs.makeFile(t, "/tmp/0", "")
	for i := range 41 {
		must(t, fs.Symlink(fmt.Sprint(i), fs.Root(), fmt.Sprint("/tmp/", i+1)))
	}
	_, e := fs.Resolve(fs.Root(), "/tmp/40", true)
	want(t, e, 0)
	_, e = fs.Resolve(fs.Root(), "/tmp/41", true)
	want(t, e, syscall.ELOOP)
	ino, e := fs.Resolve(fs.Root(), "/tmp/41", false)
	want(t, e, 0)
	if ino.Kind() != Symlink || ino.ReadLink() != "40" {
		t.Errorf("kind %v to %q", ino.Kind(), ino.ReadLink())
	}
}

func TestRootListsTheBaseAndTheMounts(t *testing.T) {
	fs := newFS(t)
	names := func(p string) string {
		var list []string
		for _, d := range fs.ReadDir(fs.get(t, p)) {
			if d.Name != "." && d.Name != ".." && d.Inode != fs.child(t, p+"/"+d.Name).Stat().Ino {
				t.Errorf("%s/%s has another number in stat", p, d.Name)
			}
			list = append(list, d.Name)
		}
		return strings.Join(list, " ")
	}
	for p, want := range map[string]string{
		"/":    ". .. dev lib loop scratch tmp usr work",
		"/dev": ". .. full kept null random urandom zero",
		"/usr": ". .. bin lib",
		"/tmp": ". ..",
	} {
		if got := names(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	if fs.ReadDir(fs.get(t, "/usr/lib/os.py")) != nil {
		t.Error("a file was listed")
	}
}

func TestListingIsASnapshot(t *testing.T) {
	fs := newFS(t)
	fs.makeFile(t, "/tmp/a", "")
	list := fs.ReadDir(fs.get(t, "/tmp"))
	must(t, fs.Unlink(fs.Root(), "/tmp/a"))
	fs.makeFile(t, "/tmp/b", "")
	if len(list) != 3 || list[2].Name != "a" {
		t.Errorf("listing became %v", list)
	}
}

func TestBaseFilesAreSharedNotCopied(t *testing.T) {
	fs := newFS(t)
	ino := fs.get(t, "/usr/lib/os.py")
	b, ok := ino.Content()
	if !ok || string(b) != "import sys\n" {
		t.Fatalf("content %q %v", b, ok)
	}
	if got := ino.text(t); got != string(b) {
		t.Errorf("read %q", got)
	}
	if n, e := ino.ReadAt(make([]byte, 9), 1<<40); n != 0 || e != 0 {
		t.Errorf("read behind the end: %d %v", n, e)
	}
	if again := fs.get(t, "/lib/os.py"); again != ino {
		t.Error("the same file is two inodes")
	}
	for _, p := range []string{"/usr", "/dev/null", "/tmp"} {
		if _, ok := fs.get(t, p).Content(); ok {
			t.Errorf("%s has shared contents", p)
		}
	}
	if _, ok := fs.makeFile(t, "/tmp/f", "x").Content(); ok {
		t.Error("a file of the layer has shared contents")
	}
}

func TestStatShowsWhatLinuxWould(t *testing.T) {
	fs := newFS(t)
	fs.makeFile(t, "/tmp/f", strings.Repeat("x", 5000))
	must(t, fs.Symlink("f", fs.Root(), "/tmp/l"))
	must(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o750))
	for p, want := range map[string]Stat{
		"/usr/bin/python": {Dev: BaseDev, Nlink: 1, Mode: 0o100555, Size: 3, Blocks: 8},
		"/usr/lib/os.py":  {Dev: BaseDev, Nlink: 1, Mode: 0o100444, Size: 11, Blocks: 8},
		"/usr":            {Dev: BaseDev, Nlink: 1, Mode: 0o40555, Size: 4096},
		"/lib":            {Dev: BaseDev, Nlink: 1, Mode: 0o120777, Size: 7},
		"/dev/urandom":    {Dev: BaseDev, Nlink: 1, Mode: 0o20666, Rdev: 0x109},
		"/tmp":            {Dev: layerDev, Nlink: 3, Mode: 0o41777, UID: 1000, GID: 1000, Size: 4096},
		"/work":           {Dev: layerDev, Nlink: 2, Mode: 0o40755, UID: 1000, GID: 1000, Size: 4096},
		"/tmp/f":          {Dev: layerDev, Nlink: 1, Mode: 0o100644, UID: 1000, GID: 1000, Size: 5000, Blocks: 16},
		"/tmp/l":          {Dev: layerDev, Nlink: 1, Mode: 0o120777, UID: 1000, GID: 1000, Size: 1},
		"/tmp/d":          {Dev: layerDev, Nlink: 2, Mode: 0o40750, UID: 1000, GID: 1000, Size: 4096},
	} {
		got := fs.child(t, p).Stat()
		if got.Dev == BaseDev && (got.MtimeSec != baseTime || got.AtimeSec != baseTime || got.CtimeSec != baseTime) {
			t.Errorf("%s: times %+v", p, got)
		}
		want.Blksize, want.Ino = 4096, got.Ino
		want.AtimeSec, want.AtimeNsec = got.AtimeSec, got.AtimeNsec
		want.MtimeSec, want.MtimeNsec = got.MtimeSec, got.MtimeNsec
		want.CtimeSec, want.CtimeNsec = got.CtimeSec, got.CtimeNsec
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p, diff)
		}
	}
}

func TestDeviceAndInodeNumbersAreUnique(t *testing.T) {
	fs := newFS(t)
	for i := range 5 {
		fs.makeFile(t, fmt.Sprint("/tmp/", i), "")
	}
	seen := map[[2]uint64]string{}
	var visit func(dir *Inode, p string)
	visit = func(dir *Inode, p string) {
		for _, d := range fs.ReadDir(dir)[2:] {
			c := dir.child(d.Name)
			s := c.Stat()
			id := [2]uint64{s.Dev, s.Ino}
			if seen[id] != "" {
				t.Errorf("%s/%s has the numbers of %s", p, d.Name, seen[id])
			}
			seen[id] = p + "/" + d.Name
			if c.Kind() == Dir {
				visit(c, p+"/"+d.Name)
			}
		}
	}
	visit(fs.Root(), "")
}

func TestTimesFollowChanges(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/f", "x")
	dir := fs.get(t, "/tmp")
	before, dirBefore := ino.Stat(), dir.Stat()
	must(t, fs.Chmod(ino, 0o600))
	s := ino.Stat()
	if s.MtimeSec != before.MtimeSec || s.CtimeSec <= before.CtimeSec {
		t.Errorf("after chmod: %+v", s)
	}
	if _, e := fs.WriteAt(ino, []byte("y"), 0); e != 0 {
		t.Fatal(e)
	}
	if s = ino.Stat(); s.MtimeSec <= before.MtimeSec || s.MtimeNsec != 5 || dir.Stat() != dirBefore {
		t.Errorf("after write: %+v", s)
	}
	must(t, fs.Utimes(ino, Time{Sec: -7, Nsec: 1}, Time{Omit: true}))
	if now := ino.Stat(); now.AtimeSec != -7 || now.AtimeNsec != 1 || now.MtimeSec != s.MtimeSec || now.CtimeSec <= s.CtimeSec {
		t.Errorf("after utimes: %+v", now)
	}
	must(t, fs.Utimes(ino, Time{Omit: true}, Time{Now: true}))
	if now := ino.Stat(); now.AtimeSec != -7 || now.MtimeSec != now.CtimeSec {
		t.Errorf("after utimes: %+v", now)
	}
	must(t, fs.Unlink(fs.Root(), "/tmp/f"))
	if dir.Stat().MtimeSec <= dirBefore.MtimeSec {
		t.Error("removing a file did not change its folder's time")
	}
}

func TestOnlyTheOwnOwnerIsAccepted(t *testing.T) {
	fs := newFS(t)
	ino := fs.makeFile(t, "/tmp/f", "")
	for _, c := range []struct {
		uid, gid int
		want     syscall.Errno
	}{{-1, -1, 0}, {1000, -1, 0}, {1000, 1000, 0}, {0, -1, syscall.EPERM}, {-1, 7, syscall.EPERM}} {
		want(t, fs.Chown(ino, c.uid, c.gid), c.want)
	}
}

func TestAccessNamesTheReason(t *testing.T) {
	fs := newFS(t)
	must(t, fs.Chmod(fs.makeFile(t, "/tmp/f", ""), 0o407))
	for _, c := range []struct {
		path string
		need uint32
		want syscall.Errno
	}{
		{"/usr/bin/python", MayRead | MayExec, 0},
		{"/usr/bin/python", MayWrite, syscall.EROFS},
		{"/usr/lib/os.py", MayExec, syscall.EACCES},
		{"/dev/null", MayRead | MayWrite, 0},
		{"/dev/null", MayExec, syscall.EACCES},
		{"/dev", MayWrite, syscall.EROFS},
		{"/tmp", MayRead | MayWrite | MayExec, 0},
		{"/tmp/f", 0, 0},
		{"/tmp/f", MayRead, 0},
		{"/tmp/f", MayWrite, syscall.EACCES},
		{"/tmp/f", MayExec, syscall.EACCES},
	} {
		t.Run(fmt.Sprint(c.path, " ", c.need), func(t *testing.T) {
			want(t, fs.get(t, c.path).Access(c.need), c.want)
		})
	}
}

func BenchmarkNew(b *testing.B) {
	base := testBase()
	clock := ticks()
	b.ReportAllocs()
	for b.Loop() {
		New(base, roomy, clock)
	}
}

func BenchmarkWriteAndRemoveMegabyte(b *testing.B) {
	fs := newFS(b)
	data := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		ino := fs.makeFile(b, "/tmp/f", "")
		if n, e := fs.WriteAt(ino, data, 0); n != len(data) || e != 0 {
			b.Fatal(n, e)
		}
		must(b, fs.Unlink(fs.Root(), "/tmp/f"))
	}
}
