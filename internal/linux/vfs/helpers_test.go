package vfs

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// fakeBase is a base from a table: a path that ends in a slash is a folder,
// "path -> target" is a link, anything else is a file with its path as content.
type fakeBase map[string]Info

// newFakeBase makes a base; parents of what is listed are folders.
func newFakeBase(entries ...string) fakeBase {
	b := fakeBase{}
	add := func(p string, info Info) {
		info.Inode = uint64(len(b) + 1)
		b[p] = info
	}
	add("/", Info{Kind: Dir})
	for _, e := range entries {
		p, target, isLink := strings.Cut(e, " -> ")
		info := Info{Kind: File, Size: int64(len(p)), Executable: strings.Contains(p, "/bin/")}
		switch {
		case isLink:
			info = Info{Kind: Symlink, Target: target}
		case strings.HasSuffix(p, "/"):
			info, p = Info{Kind: Dir}, strings.TrimSuffix(p, "/")
		}
		for d := path.Dir(p); b[d].Inode == 0; d = path.Dir(d) {
			add(d, Info{Kind: Dir})
		}
		add(p, info)
	}
	return b
}

func (b fakeBase) Lookup(p string) (Info, bool) {
	info, ok := b[p]
	return info, ok
}

func (b fakeBase) ReadDir(p string) []string {
	var out []string
	for q := range b {
		if q != "/" && path.Dir(q) == p {
			out = append(out, path.Base(q))
		}
	}
	slices.Sort(out)
	return out
}

func (b fakeBase) Content(p string) ([]byte, error) {
	if strings.HasSuffix(p, "broken") {
		return nil, errors.New("broken")
	}
	return []byte(p), nil
}

var roomy = Limits{Bytes: 1 << 20, Inodes: 100}

// tick is a clock that advances by a second a call.
func tick() Clock {
	now := int64(1_800_000_000)
	return func() (int64, int64) {
		now++
		return now, 5
	}
}

func testBase() fakeBase {
	return newFakeBase(
		"/usr/lib/python3.13/os.py", "/usr/lib/python3.13/json/", "/usr/bin/python3",
		"/lib64/ld-linux-x86-64.so.2", "/lib -> usr/lib", "/abs -> /usr/lib", "/usr/lib/broken",
		"/work/hidden", "/loop -> loop", "/totmp -> /tmp", "/empty/")
}

func newTree(t testing.TB, lim Limits) *FS {
	t.Helper()
	fs := New(testBase(), lim, tick())
	t.Cleanup(func() { checkAccounts(t, fs, nil) })
	return fs
}

// makeFile makes a file with content and leaves it closed.
func makeFile(t testing.TB, fs *FS, p, content string) *Inode {
	t.Helper()
	ino, e := fs.Open(fs.Root(), p, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY, 0o644)
	if e != 0 {
		t.Fatalf("open %s: %v", p, e)
	}
	if n, e := fs.WriteAt(ino, []byte(content), 0); e != 0 || n != len(content) {
		t.Fatalf("write %s: %d, %v", p, n, e)
	}
	return ino
}

func mustResolve(t testing.TB, fs *FS, p string) *Inode {
	t.Helper()
	ino, e := fs.Resolve(fs.Root(), p, false)
	if e != 0 {
		t.Fatalf("resolve %s: %v", p, e)
	}
	return ino
}

func readAll(t testing.TB, ino *Inode) string {
	t.Helper()
	b := make([]byte, ino.Stat().Size+10)
	n, e := ino.ReadAt(b, 0)
	if e != 0 {
		t.Fatalf("read: %v", e)
	}
	return string(b[:n])
}

// ok fails the test unless e is 0.
func ok(t testing.TB, e syscall.Errno) {
	t.Helper()
	if e != 0 {
		t.Fatalf("errno %v", e)
	}
}

// want fails the test unless e is the errno asked for.
func want(t testing.TB, e, asked syscall.Errno) {
	t.Helper()
	if e != asked {
		t.Fatalf("errno %q, want %q", errnoText(e), errnoText(asked))
	}
}

func errnoText(e syscall.Errno) string {
	if e == 0 {
		return "success"
	}
	return e.Error()
}

// checkAccounts recounts what the layer holds: everything with a name, and
// what held keeps alive (with its folders).
func checkAccounts(t testing.TB, fs *FS, held []*Inode) {
	t.Helper()
	seen := map[*Inode]int{}
	for dirs := []*Inode{&fs.tmp, &fs.work}; len(dirs) > 0; {
		d := dirs[0]
		dirs = dirs[1:]
		subdirs := 0
		for name, c := range d.children {
			if seen[c]++; seen[c] > 1 && c.kind == Dir {
				t.Fatalf("folder %s has two names", name)
			}
			if c.kind == Dir {
				subdirs++
				dirs = append(dirs, c)
				if c.parent != d || c.name != name {
					t.Fatalf("folder %s does not know its place", name)
				}
			}
		}
		if subdirs != d.subdirs {
			t.Fatalf("%d folders in %s, counted %d", subdirs, d.name, d.subdirs)
		}
	}
	orphans := map[*Inode]bool{}
	for _, h := range held {
		for ; !h.base && h.nlink == 0 && !orphans[h]; h = h.parent {
			orphans[h] = true
			if h.kind != Dir {
				break
			}
		}
	}
	inodes, bytes := 0, int64(0)
	for ino, names := range seen {
		if ino.nlink != names || len(ino.more) != names-1 {
			t.Fatalf("%s has %d names, counted %d", ino.name, names, ino.nlink)
		}
		inodes += names
	}
	inodes += len(orphans)
	for ino := range maps.Keys(seen) {
		orphans[ino] = true
	}
	for ino := range orphans {
		bytes += int64(len(ino.target)) + ino.data.allocated()
		if last := (ino.data.size + chunkSize - 1) / chunkSize; ino.data.chunks != nil {
			for i := range ino.data.chunks {
				if i >= last {
					t.Fatalf("chunk %d past the end of %s", i, ino.name)
				}
			}
		}
	}
	if fs.inodes != inodes || fs.bytes != bytes || fs.orphans != len(orphans)-len(seen) {
		t.Fatalf("counted %d inodes (%d without a name), %d bytes; there are %d (%d), %d",
			fs.inodes, fs.orphans, fs.bytes, inodes, len(orphans)-len(seen), bytes)
	}
	if fs.inodes > max(fs.limits.Inodes, 0) || fs.bytes > max(fs.limits.Bytes, 0) {
		t.Fatalf("past the limits: %d inodes, %d bytes", fs.inodes, fs.bytes)
	}
}
