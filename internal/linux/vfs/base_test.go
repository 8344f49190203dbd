//go:build linux

package vfs

import (
	"errors"
	"path"
	"sort"
	"syscall"
	"testing"
)

// mapBase is a base made of a map from paths to contents; a path that ends in
// a slash is a folder, contents that start with "->" make a symbolic link.
type mapBase map[string]string

func testBase() mapBase {
	return mapBase{
		"/": "", "/usr/": "", "/usr/bin/": "", "/usr/bin/python": "ELF", "/usr/lib/": "",
		"/usr/lib/os.py": "import sys\n", "/usr/lib/empty": "", "/lib": "->usr/lib", "/loop": "->loop",
		"/usr/lib/up": "->../bin", "/usr/lib/abs": "->/usr/bin/python", "/usr/lib/gone": "->nowhere",
		"/scratch": "->/tmp", "/tmp/": "", "/tmp/hidden": "of the base", "/dev/": "", "/dev/null": "a file",
		"/dev/kept": "x",
	}
}

func (b mapBase) Lookup(p string) (Info, bool) {
	v, ok := b[p]
	if ok && p != "/" {
		info := Info{Kind: File, Size: int64(len(v)), Executable: path.Dir(p) == "/usr/bin", Inode: b.number(p)}
		if len(v) > 2 && v[:2] == "->" {
			info.Kind, info.Size, info.Target = Symlink, 0, v[2:]
		}
		return info, true
	}
	if p != "/" {
		p += "/"
	}
	_, ok = b[p]
	return Info{Kind: Dir, Inode: b.number(p)}, ok
}

func (b mapBase) number(p string) uint64 {
	n := uint64(1)
	for k := range b {
		if k < p {
			n++
		}
	}
	return n
}

func (b mapBase) ReadDir(p string) []string {
	var names []string
	for k := range b {
		if k = path.Clean(k); k != "/" && path.Dir(k) == p {
			names = append(names, path.Base(k))
		}
	}
	sort.Strings(names)
	return names
}

func (b mapBase) Content(p string) ([]byte, error) {
	v, ok := b[p]
	if !ok {
		return nil, errors.New("no such file")
	}
	return []byte(v), nil
}

// ticks is a clock that goes on by a second with every look at it.
func ticks() Clock {
	n := int64(0)
	return func() (int64, int64) {
		n++
		return n, 5
	}
}

var roomy = Limits{Bytes: 64 << 20, Inodes: 10000}

func newFS(t testing.TB) *FS {
	t.Helper()
	return New(testBase(), roomy, ticks())
}

// must fails the test for any error.
func must(t testing.TB, e syscall.Errno) {
	t.Helper()
	if e != 0 {
		t.Fatalf("unexpected %v", e)
	}
}

func want(t testing.TB, got, want syscall.Errno) {
	t.Helper()
	if got != want {
		t.Errorf("got %d (%v), want %d (%v)", got, got, want, want)
	}
}

// make opens a file for writing, makes it if need be, and holds it.
func (fs *FS) makeFile(t testing.TB, p, data string) *Inode {
	t.Helper()
	ino, e := fs.Open(fs.Root(), p, syscall.O_RDWR|syscall.O_CREAT|syscall.O_TRUNC, 0o644)
	must(t, e)
	n, e := fs.WriteAt(ino, []byte(data), 0)
	must(t, e)
	if n != len(data) {
		t.Fatalf("wrote %d of %d bytes", n, len(data))
	}
	return ino
}

func (fs *FS) get(t testing.TB, p string) *Inode {
	t.Helper()
	ino, e := fs.Resolve(fs.Root(), p, true)
	if e != 0 {
		t.Fatalf("%s: %v", p, e)
	}
	return ino
}

func (ino *Inode) text(t testing.TB) string {
	t.Helper()
	b := make([]byte, ino.Stat().Size)
	n, e := ino.ReadAt(b, 0)
	must(t, e)
	return string(b[:n])
}

// check recounts what the layer is charged for, and the links and pins of
// everything in it. held are the inodes to which the test has references.
func (fs *FS) check(t testing.TB, held ...*Inode) {
	t.Helper()
	names, folders, pins := map[*Inode]int{}, map[*Inode]int{}, map[*Inode]int{}
	all := map[*Inode]bool{}
	var visit func(dir *Inode)
	visit = func(dir *Inode) {
		for name, c := range dir.children {
			if names[c]++; c.kind == Dir {
				folders[dir]++
				if c.parent != dir || c.name != name || names[c] > 1 {
					t.Errorf("folder %q does not know its place", name)
				}
				visit(c)
			}
			if c.freed || c.nlink == 0 {
				t.Errorf("%q is linked and freed", name)
			}
			all[c] = true
		}
	}
	visit(&fs.tmp)
	visit(&fs.work)
	// Removed folders that are held keep those above them.
	for _, ino := range held {
		for ino.layer && !all[ino] && ino != &fs.tmp && ino != &fs.work {
			all[ino] = true
			if ino.kind != Dir {
				break
			}
			ino = ino.parent
		}
	}
	bytes, inodes := int64(0), 0
	for ino := range all {
		inodes += max(1, names[ino])
		links := names[ino]
		switch ino.kind {
		case Dir:
			if pins[ino.parent]++; links > 0 {
				links = 2 + folders[ino]
			}
		case File:
			bytes += int64(len(ino.data)) * pageSize
			for n := range ino.data {
				if n < 0 || n >= pagesIn(ino.size) {
					t.Errorf("page %d of a file of %d bytes", n, ino.size)
				}
			}
			if page := ino.data[ino.size/pageSize]; page != nil {
				for _, b := range page[ino.size%pageSize:] {
					if b != 0 {
						t.Error("bytes behind the end of a file")
						break
					}
				}
			}
		case Symlink:
			bytes += targetBytes(ino.target)
		}
		if ino.nlink != links || ino.freed {
			t.Errorf("%q: %d links, counted %d; freed %v", ino.name, ino.nlink, links, ino.freed)
		}
	}
	for _, ino := range append([]*Inode{&fs.tmp, &fs.work}, keys(all)...) {
		if ino.pins != pins[ino] {
			t.Errorf("%q: %d pins, counted %d", ino.name, ino.pins, pins[ino])
		}
	}
	if fs.bytes != bytes || fs.inodes != inodes {
		t.Errorf("charged %d bytes and %d inodes, counted %d and %d", fs.bytes, fs.inodes, bytes, inodes)
	}
	if fs.bytes > fs.limits.Bytes || fs.inodes > fs.limits.Inodes {
		t.Errorf("charged %d bytes and %d inodes, more than the limits", fs.bytes, fs.inodes)
	}
}

func keys(m map[*Inode]bool) []*Inode {
	var list []*Inode
	for ino := range m {
		list = append(list, ino)
	}
	return list
}
