package vfs

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestResolveFindsWhatAPathNames(t *testing.T) {
	fs := newTree(t, roomy)
	makeFile(t, fs, "/tmp/f", "x")
	ok(t, fs.Symlink("f", fs.Root(), "/tmp/link"))
	ok(t, fs.Symlink("/tmp", fs.Root(), "/tmp/up"))
	ok(t, fs.Symlink("a", fs.Root(), "/tmp/b"))
	ok(t, fs.Symlink("b", fs.Root(), "/tmp/a"))
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		path   string
		follow bool
		want   string
		errno  syscall.Errno
	}{
		{"/", true, "/", 0},
		{"///", true, "/", 0},
		{"/..", true, "/", 0},
		{".", true, "/work", 0},
		{"..", true, "/", 0},
		{"../tmp/./f", true, "/tmp/f", 0},
		{"/lib", false, "/lib", 0},
		{"/lib", true, "/usr/lib", 0},
		{"/lib/", false, "/usr/lib", 0},
		{"/lib/python3.13/os.py", false, "/usr/lib/python3.13/os.py", 0},
		{"/abs/../bin//python3", true, "/usr/bin/python3", 0},
		{"/totmp/up/link", true, "/tmp/f", 0},
		{"/totmp/up/link", false, "/tmp/link", 0},
		{"/lib64/ld-linux-x86-64.so.2", true, "/lib64/ld-linux-x86-64.so.2", 0},
		{"/dev/null", true, "/dev/null", 0},
		{"/empty/", true, "/empty", 0},
		{"", true, "", syscall.ENOENT},
		{"/work/hidden", true, "", syscall.ENOENT},
		{"/dev/fd", true, "", syscall.ENOENT},
		{"/nothing/x", true, "", syscall.ENOENT},
		{"/tmp/f/", true, "", syscall.ENOTDIR},
		{"/tmp/f/x", true, "", syscall.ENOTDIR},
		{"/tmp/link/", false, "", syscall.ENOTDIR},
		{"/dev/null/x", true, "", syscall.ENOTDIR},
		{"/usr/bin/python3/..", true, "", syscall.ENOTDIR},
		{"/loop", true, "", syscall.ELOOP},
		{"/loop", false, "/loop", 0},
		{"/tmp/a/x", false, "", syscall.ELOOP},
		{"/tmp/" + long, true, "", syscall.ENAMETOOLONG},
		{"/" + long + "/x", true, "", syscall.ENAMETOOLONG},
		{strings.Repeat("/", 4095), true, "/", 0},
		{strings.Repeat("/", 4096), true, "", syscall.ENAMETOOLONG},
	} {
		ino, e := fs.Resolve(&fs.work, c.path, c.follow)
		if e != c.errno {
			t.Errorf("%.40q: errno %v, want %v", c.path, errnoText(e), errnoText(c.errno))
			continue
		}
		if e != 0 {
			continue
		}
		if got, named := fs.Path(ino); got != c.want || !named {
			t.Errorf("%.40q: is %q, want %q", c.path, got, c.want)
		}
		if again, _ := fs.Resolve(&fs.work, c.path, c.follow); again != ino {
			t.Errorf("%.40q: another inode the second time", c.path)
		}
	}
}

func TestFortyLinksAreFollowedAndNoMore(t *testing.T) {
	fs := newTree(t, roomy)
	ok(t, fs.Mkdir(fs.Root(), "/tmp/l0", 0o755))
	for i := range 41 {
		ok(t, fs.Symlink(fmt.Sprint("l", i), fs.Root(), fmt.Sprint("/tmp/l", i+1)))
	}
	_, e := fs.Resolve(fs.Root(), "/tmp/l40", true)
	ok(t, e)
	_, e = fs.Resolve(fs.Root(), "/tmp/l41", true)
	want(t, e, syscall.ELOOP)
}

func TestTheBaseCannotBeChanged(t *testing.T) {
	fs := newTree(t, roomy)
	makeFile(t, fs, "/tmp/f", "x")
	root := fs.Root()
	lib, null := mustResolve(t, fs, "/usr/lib/python3.13/os.py"), mustResolve(t, fs, "/dev/null")
	open := func(p string, flags int) func() syscall.Errno {
		return func() syscall.Errno { _, e := fs.Open(root, p, flags, 0o644); return e }
	}
	for name, c := range map[string]struct {
		do   func() syscall.Errno
		want syscall.Errno
	}{
		"create":               {open("/usr/new", syscall.O_CREAT|syscall.O_WRONLY), syscall.EROFS},
		"create in root":       {open("/new", syscall.O_CREAT|syscall.O_WRONLY), syscall.EROFS},
		"create in dev":        {open("/dev/shm", syscall.O_CREAT|syscall.O_RDWR), syscall.EROFS},
		"create what is there": {open("/usr/bin/python3", syscall.O_CREAT|syscall.O_EXCL), syscall.EEXIST},
		"open for writing":     {open("/usr/bin/python3", syscall.O_WRONLY), syscall.EROFS},
		"truncate by open":     {open("/usr/bin/python3", syscall.O_TRUNC), syscall.EROFS},
		"open to read":         {open("/usr/bin/python3", syscall.O_RDONLY|syscall.O_CREAT), 0},
		"write to a device":    {open("/dev/null", syscall.O_RDWR|syscall.O_TRUNC), 0},
		"folder for writing":   {open("/usr", syscall.O_WRONLY), syscall.EISDIR},
		"unnamed":              {open("/usr", openTmpfile|syscall.O_DIRECTORY|syscall.O_RDWR), syscall.EROFS},
		"mkdir":                {func() syscall.Errno { return fs.Mkdir(root, "/usr/x", 0o755) }, syscall.EROFS},
		"mkdir what is there":  {func() syscall.Errno { return fs.Mkdir(root, "/tmp", 0o755) }, syscall.EEXIST},
		"rmdir":                {func() syscall.Errno { return fs.Rmdir(root, "/empty") }, syscall.EROFS},
		"rmdir of tmp":         {func() syscall.Errno { return fs.Rmdir(root, "/tmp") }, syscall.EROFS},
		"rmdir of root":        {func() syscall.Errno { return fs.Rmdir(root, "/") }, syscall.EBUSY},
		"unlink":               {func() syscall.Errno { return fs.Unlink(root, "/usr/bin/python3") }, syscall.EROFS},
		"symlink":              {func() syscall.Errno { return fs.Symlink("x", root, "/usr/x") }, syscall.EROFS},
		"link into":            {func() syscall.Errno { return fs.Link(mustResolve(t, fs, "/tmp/f"), root, "/usr/x") }, syscall.EROFS},
		"link out of":          {func() syscall.Errno { return fs.Link(lib, root, "/tmp/x") }, syscall.EXDEV},
		"rename into":          {func() syscall.Errno { return fs.Rename(root, "/tmp/f", root, "/usr/x", 0) }, syscall.EXDEV},
		"rename out of":        {func() syscall.Errno { return fs.Rename(root, "/usr/bin/python3", root, "/tmp/x", 0) }, syscall.EXDEV},
		"rename within":        {func() syscall.Errno { return fs.Rename(root, "/usr/bin", root, "/usr/x", 0) }, syscall.EROFS},
		"rename of tmp":        {func() syscall.Errno { return fs.Rename(root, "/tmp", root, "/work", 0) }, syscall.EROFS},
		"write":                {func() syscall.Errno { _, e := fs.WriteAt(lib, []byte("x"), 0); return e }, syscall.EROFS},
		"truncate":             {func() syscall.Errno { return fs.Truncate(lib, 0) }, syscall.EROFS},
		"allocate":             {func() syscall.Errno { return fs.Allocate(lib, 0, 1) }, syscall.EROFS},
		"chmod":                {func() syscall.Errno { return fs.Chmod(lib, 0o777) }, syscall.EROFS},
		"chown":                {func() syscall.Errno { return fs.Chown(lib, -1, -1) }, syscall.EROFS},
		"utimes":               {func() syscall.Errno { return fs.Utimes(lib, Time{Now: true}, Time{Omit: true}) }, syscall.EROFS},
		"utimes of nothing":    {func() syscall.Errno { return fs.Utimes(lib, Time{Omit: true}, Time{Omit: true}) }, 0},
		"bytes to a device":    {func() syscall.Errno { _, e := fs.WriteAt(null, []byte("x"), 0); return e }, syscall.EINVAL},
	} {
		if e := c.do(); e != c.want {
			t.Errorf("%s: %s, want %s", name, errnoText(e), errnoText(c.want))
		}
	}
	fs.Ref(lib)
	fs.Unref(lib)
	fs.Unref(lib)
}

func TestBaseFilesAreDescribedAndReadInPlace(t *testing.T) {
	fs := newTree(t, roomy)
	ino := mustResolve(t, fs, "/usr/bin/python3")
	s := ino.Stat()
	if s.Mode != syscall.S_IFREG|0o555 || s.UID != 0 || s.Dev != BaseDev || s.Size != 16 || s.MtimeSec != baseTime || s.Nlink != 1 {
		t.Errorf("%+v", s)
	}
	if b, shared := ino.Content(); !shared || string(b) != "/usr/bin/python3" || readAll(t, ino) != string(b) {
		t.Errorf("content %q, %v", b, shared)
	}
	if n, e := ino.ReadAt(make([]byte, 4), 99); n != 0 || e != 0 {
		t.Errorf("read past the end: %d, %v", n, e)
	}
	for p, mode := range map[string]uint32{
		"/usr/lib/python3.13/os.py": syscall.S_IFREG | 0o444, "/usr": syscall.S_IFDIR | 0o555, "/": syscall.S_IFDIR | 0o555,
		"/lib": syscall.S_IFLNK | 0o777, "/dev": syscall.S_IFDIR | 0o555, "/dev/zero": syscall.S_IFCHR | 0o666,
		"/tmp": syscall.S_IFDIR | 0o1777, "/work": syscall.S_IFDIR | 0o755,
	} {
		s := mustResolve(t, fs, p).Stat()
		if inLayer := p == "/tmp" || p == "/work"; s.Mode != mode || (s.Dev == BaseDev) == inLayer || (s.UID == 1000) != inLayer {
			t.Errorf("%s: %+v", p, s)
		}
	}
	if l := mustResolve(t, fs, "/lib"); l.ReadLink() != "usr/lib" || l.Stat().Size != 7 {
		t.Errorf("link to %q", l.ReadLink())
	}
	if mustResolve(t, fs, "/dev/urandom").Stat().Rdev != 1<<8|9 {
		t.Error("wrong device number")
	}
	broken := mustResolve(t, fs, "/usr/lib/broken")
	if _, shared := broken.Content(); shared {
		t.Error("broken file has content")
	}
	_, e := broken.ReadAt(make([]byte, 1), 0)
	want(t, e, syscall.EIO)
	if _, shared := makeFile(t, fs, "/tmp/f", "x").Content(); shared {
		t.Error("file of the layer has shared content")
	}
}

func TestReadDirMergesBaseAndLayer(t *testing.T) {
	fs := newTree(t, roomy)
	makeFile(t, fs, "/tmp/z", "x")
	ok(t, fs.Mkdir(fs.Root(), "/tmp/a", 0o755))
	ok(t, fs.Symlink("x", fs.Root(), "/tmp/m"))
	for p, names := range map[string]string{
		"/":     "abs dev empty lib lib64 loop tmp totmp usr work",
		"/usr":  "bin lib",
		"/dev":  "full null random urandom zero",
		"/tmp":  "a m z",
		"/work": "",
	} {
		dir := mustResolve(t, fs, p)
		list := fs.ReadDir(dir)
		var got []string
		for _, d := range list[2:] {
			got = append(got, d.Name)
			ino, e := fs.Resolve(dir, d.Name, false)
			if e != 0 || ino.Stat().Ino != d.Inode || ino.Kind() != d.Kind {
				t.Errorf("%s in %s: %+v does not match %v", d.Name, p, d, e)
			}
		}
		if s := strings.Join(got, " "); s != names {
			t.Errorf("%s: %s, want %s", p, s, names)
		}
		if list[0].Name != "." || list[1].Name != ".." || list[0].Inode != dir.Stat().Ino {
			t.Errorf("%s begins with %v", p, list[:2])
		}
	}
	if fs.ReadDir(mustResolve(t, fs, "/tmp/z")) != nil {
		t.Error("a file has a listing")
	}
}

func TestOpenHonoursItsFlags(t *testing.T) {
	const creat, excl, trunc = syscall.O_CREAT, syscall.O_EXCL, syscall.O_TRUNC
	const dir, nofollow, rdwr, wronly = syscall.O_DIRECTORY, syscall.O_NOFOLLOW, syscall.O_RDWR, syscall.O_WRONLY
	const tmpfile = openTmpfile | dir
	for _, c := range []struct {
		path  string
		flags int
		want  syscall.Errno
		names string // what /tmp holds afterwards, if not the same
	}{
		{"/tmp/new", 0, syscall.ENOENT, ""},
		{"/tmp/new", creat, 0, "d dangling f link new ro"},
		{"/tmp/new/", creat, syscall.EISDIR, ""},
		{"/tmp/new", creat | dir, syscall.EINVAL, ""},
		{"/tmp/f", creat | excl, syscall.EEXIST, ""},
		{"/tmp/f", creat | wronly, 0, ""},
		{"/tmp/f", dir, syscall.ENOTDIR, ""},
		{"/tmp/link", nofollow, syscall.ELOOP, ""},
		{"/tmp/link", creat | nofollow, syscall.ELOOP, ""},
		{"/tmp/link", openPath | nofollow | creat | trunc, 0, ""},
		{"/tmp/link", dir | nofollow, syscall.ENOTDIR, ""},
		{"/tmp/link", rdwr, 0, ""},
		{"/tmp/dangling", rdwr, syscall.ENOENT, ""},
		{"/tmp/dangling", creat | excl, syscall.EEXIST, ""},
		{"/tmp/dangling", creat, 0, "d dangling f link made ro"},
		{"/tmp/d", wronly, syscall.EISDIR, ""},
		{"/tmp/d", trunc, syscall.EISDIR, ""},
		{"/tmp/d", creat, syscall.EISDIR, ""},
		{"/tmp/d/.", creat | excl, syscall.EEXIST, ""},
		{"/", creat, syscall.EISDIR, ""},
		{"/tmp/d", dir, 0, ""},
		{"/tmp/ro", wronly, syscall.EACCES, ""},
		{"/tmp/ro", trunc, syscall.EACCES, ""},
		{"/tmp/ro", 0, 0, ""},
		{"/tmp/d", tmpfile | rdwr, 0, ""},
		{"/tmp/d", tmpfile, syscall.EINVAL, ""},
		{"/tmp/d", openTmpfile | rdwr, syscall.EINVAL, ""},
		{"/tmp/f", tmpfile | rdwr, syscall.ENOTDIR, ""},
		{"/tmp/none", tmpfile | rdwr, syscall.ENOENT, ""},
	} {
		t.Run(fmt.Sprintf("%s %#x", c.path, c.flags), func(t *testing.T) {
			fs := newTree(t, roomy)
			makeFile(t, fs, "/tmp/f", "content")
			ok(t, fs.Chmod(makeFile(t, fs, "/tmp/ro", "x"), 0o444))
			ok(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o755))
			ok(t, fs.Symlink("f", fs.Root(), "/tmp/link"))
			ok(t, fs.Symlink("made", fs.Root(), "/tmp/dangling"))
			ino, e := fs.Open(fs.Root(), c.path, c.flags, 0o600)
			want(t, e, c.want)
			if e == 0 {
				fs.Ref(ino)
				fs.Unref(ino)
			}
			if c.names == "" {
				c.names = "d dangling f link ro"
			}
			var names []string
			for _, d := range fs.ReadDir(&fs.tmp)[2:] {
				names = append(names, d.Name)
			}
			if s := strings.Join(names, " "); s != c.names {
				t.Errorf("/tmp holds %s, want %s", s, c.names)
			}
			if got := readAll(t, mustResolve(t, fs, "/tmp/f")); got != "content" {
				t.Errorf("the file holds %q", got)
			}
		})
	}
}

func TestOwnerBitsAreHonoured(t *testing.T) {
	fs := newTree(t, roomy)
	root := fs.Root()
	ok(t, fs.Mkdir(root, "/tmp/d", 0o700))
	ok(t, fs.Mkdir(root, "/tmp/e", 0o700))
	ok(t, fs.Mkdir(root, "/tmp/d/sub", 0o500))
	makeFile(t, fs, "/tmp/d/f", "x")
	d := mustResolve(t, fs, "/tmp/d")
	ok(t, fs.Chmod(d, 0o500))
	want(t, fs.Mkdir(root, "/tmp/d/x", 0o700), syscall.EACCES)
	want(t, fs.Unlink(root, "/tmp/d/f"), syscall.EACCES)
	want(t, fs.Rmdir(root, "/tmp/d/sub"), syscall.EACCES)
	want(t, fs.Rename(root, "/tmp/d/f", root, "/tmp/f", 0), syscall.EACCES)
	want(t, fs.Link(mustResolve(t, fs, "/tmp/d/f"), root, "/tmp/d/g"), syscall.EACCES)
	ok(t, fs.Chmod(d, 0o600))
	_, e := fs.Resolve(root, "/tmp/d/f", true)
	want(t, e, syscall.EACCES)
	ok(t, fs.Chmod(d, 0o700))
	want(t, fs.Rename(root, "/tmp/d/sub", root, "/tmp/e/sub", 0), syscall.EACCES) // its ".." would change
	ok(t, fs.Rename(root, "/tmp/d/sub", root, "/tmp/d/sub2", 0))
	ino, e := fs.Open(root, "/tmp/secret", syscall.O_CREAT|syscall.O_RDWR, 0)
	ok(t, e)
	_, e = fs.WriteAt(ino, []byte("x"), 0)
	ok(t, e)
	_, e = fs.Open(root, "/tmp/secret", syscall.O_RDONLY, 0)
	want(t, e, syscall.EACCES)
}

func TestARemovedFolderStaysUsableWhileOpen(t *testing.T) {
	fs := newTree(t, roomy)
	root := fs.Root()
	ok(t, fs.Mkdir(root, "/tmp/a", 0o755))
	ok(t, fs.Mkdir(root, "/tmp/a/b", 0o755))
	b := mustResolve(t, fs, "/tmp/a/b")
	fs.Ref(b)
	ok(t, fs.Rmdir(root, "/tmp/a/b"))
	ok(t, fs.Rmdir(root, "/tmp/a"))
	checkAccounts(t, fs, []*Inode{b})
	if _, named := fs.Path(b); named {
		t.Error("a removed folder has a path")
	}
	up, e := fs.Resolve(b, "../..", true)
	ok(t, e)
	if up != &fs.tmp {
		t.Error("../.. is not /tmp")
	}
	want(t, fs.Mkdir(b, "x", 0o755), syscall.ENOENT)
	_, e = fs.Open(b, "x", syscall.O_CREAT, 0o644)
	want(t, e, syscall.ENOENT)
	_, e = fs.Open(b, ".", openTmpfile|syscall.O_DIRECTORY|syscall.O_RDWR, 0o644)
	want(t, e, syscall.ENOENT)
	if n := len(fs.ReadDir(b)); n != 0 || b.Stat().Nlink != 0 {
		t.Errorf("%d entries, %d links", n, b.Stat().Nlink)
	}
	fs.Unref(b)
	checkAccounts(t, fs, nil)
	fs.Ref(b) // by a working folder that held no reference
	fs.Unref(b)
}

func TestTimesFollowChanges(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "x")
	before := fs.tmp.Stat()
	ok(t, fs.Link(ino, fs.Root(), "/tmp/g"))
	if after := fs.tmp.Stat(); after.MtimeSec <= before.MtimeSec || after.AtimeSec != before.AtimeSec {
		t.Error("the folder's times did not follow")
	}
	ok(t, fs.Utimes(ino, Time{Sec: 5, Nsec: 6}, Time{Omit: true}))
	s := ino.Stat()
	if s.AtimeSec != 5 || s.AtimeNsec != 6 || s.MtimeSec < 1_800_000_000 || s.CtimeSec <= s.MtimeSec {
		t.Errorf("%+v", s)
	}
	ok(t, fs.Utimes(ino, Time{Now: true}, Time{Sec: -7}))
	if s = ino.Stat(); s.AtimeSec < 1_800_000_000 || s.MtimeSec != -7 {
		t.Errorf("%+v", s)
	}
	want(t, fs.Utimes(ino, Time{Nsec: 1e9}, Time{}), syscall.EINVAL)
	for _, ids := range [][3]int{{-1, -1, 0}, {1000, 1000, 0}, {0, -1, 1}, {1000, 0, 1}} {
		if e := fs.Chown(ino, ids[0], ids[1]); (e != 0) != (ids[2] != 0) {
			t.Errorf("chown to %v: %v", ids, e)
		}
	}
	ok(t, fs.Symlink("f", fs.Root(), "/tmp/l"))
	want(t, fs.Chmod(mustResolve(t, fs, "/tmp/l"), 0o600), syscall.EOPNOTSUPP)
}

func TestFoldersDoNotGetTooDeep(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 1 << 20, Inodes: 4 * maxDepth})
	deep := func(top string) (*Inode, int) {
		ok(t, fs.Mkdir(fs.Root(), top, 0o755))
		dir := mustResolve(t, fs, top)
		for n := 1; ; n++ {
			if e := fs.Mkdir(dir, "d", 0o755); e != 0 {
				want(t, e, syscall.ENAMETOOLONG)
				return dir, n
			}
			dir = dir.child("d")
		}
	}
	dir, n := deep("/tmp/a")
	if n != maxDepth-2 { // the root and /tmp
		t.Errorf("%d folders", n)
	}
	if _, e := fs.Open(dir, "f", syscall.O_CREAT, 0o644); e != 0 {
		t.Errorf("a file in the deepest folder: %v", e)
	}
	if p, named := fs.Path(dir); !named || len(p) != 2*n+4 {
		t.Errorf("path of %d bytes", len(p))
	}
	ok(t, fs.Mkdir(fs.Root(), "/tmp/b", 0o755))
	want(t, fs.Rename(fs.Root(), "/tmp/a", fs.Root(), "/tmp/b/a", 0), syscall.ENAMETOOLONG)
	ok(t, fs.Rename(fs.Root(), "/tmp/a", fs.Root(), "/work/a", 0))
	if saved, err := fs.Export(); err != nil || len(saved) != n+4 {
		t.Errorf("%d saved, %v", len(saved), err)
	}
}

func TestRenameEdges(t *testing.T) {
	fs := newTree(t, roomy)
	root := fs.Root()
	f := makeFile(t, fs, "/tmp/f", "f")
	makeFile(t, fs, "/work/g", "g")
	ok(t, fs.Link(f, root, "/tmp/f2"))
	ok(t, fs.Rename(root, "/tmp/f", root, "/tmp/f2", 0)) // two names of one file
	if s := f.Stat(); s.Nlink != 2 {
		t.Errorf("%d links", s.Nlink)
	}
	want(t, fs.Rename(root, "/tmp/f", root, "/work/g", RenameNoReplace), syscall.EEXIST)
	want(t, fs.Rename(root, "/tmp/f", root, "/work/none", RenameExchange), syscall.ENOENT)
	want(t, fs.Rename(root, "/tmp/f", root, "/work/g", 4), syscall.EINVAL)
	want(t, fs.Rename(root, "/tmp/f", root, "/work/g", 3), syscall.EINVAL)
	ok(t, fs.Rename(root, "/tmp/f", root, "/work/g", RenameExchange))
	if got := readAll(t, mustResolve(t, fs, "/work/g")) + readAll(t, mustResolve(t, fs, "/tmp/f")); got != "fg" {
		t.Errorf("after the exchange: %s", got)
	}
	if p, _ := fs.Path(mustResolve(t, fs, "/tmp/f")); p != "/tmp/f" {
		t.Errorf("path %s", p)
	}
	checkAccounts(t, fs, nil)
}

func TestLinksAreBounded(t *testing.T) {
	fs := newTree(t, Limits{Bytes: 1 << 20, Inodes: maxLinks + 10})
	f := makeFile(t, fs, "/tmp/f", "f")
	for i := 1; i < maxLinks; i++ {
		ok(t, fs.Link(f, fs.Root(), fmt.Sprint("/tmp/", i)))
	}
	want(t, fs.Link(f, fs.Root(), "/tmp/x"), syscall.EMLINK)
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	if p, named := fs.Path(f); !named || !slices.Contains([]string{"/tmp/1", fmt.Sprint("/tmp/", maxLinks-1)}, p) {
		t.Errorf("path %s", p)
	}
	want(t, fs.Link(&fs.tmp, fs.Root(), "/tmp/x"), syscall.EPERM)
}

func BenchmarkResolve(b *testing.B) {
	fs := New(testBase(), roomy, tick())
	for b.Loop() {
		if _, e := fs.Resolve(fs.Root(), "/usr/lib/python3.13/os.py", true); e != 0 {
			b.Fatal(e)
		}
	}
}

func BenchmarkWriteAndUnlink(b *testing.B) {
	fs := New(testBase(), roomy, tick())
	block := make([]byte, 1<<19)
	b.SetBytes(1 << 19)
	for b.Loop() {
		ino, e := fs.Open(fs.Root(), "/tmp/f", syscall.O_CREAT|syscall.O_WRONLY, 0o644)
		if e == 0 {
			_, e = fs.WriteAt(ino, block, 0)
		}
		if e == 0 {
			e = fs.Unlink(fs.Root(), "/tmp/f")
		}
		if e != 0 {
			b.Fatal(e)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	base := testBase()
	for b.Loop() {
		New(base, roomy, tick())
	}
}
