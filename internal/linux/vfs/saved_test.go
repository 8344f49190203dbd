//go:build linux

package vfs

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSavedLayerComesBackTheSame(t *testing.T) {
	fs := newTree(t, roomy)
	ok(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o700))
	ok(t, fs.Mkdir(fs.Root(), "/tmp/d/locked", 0o755))
	ino := makeFile(t, fs, "/tmp/d/locked/f", strings.Repeat("text", 3000))
	ok(t, fs.Link(ino, fs.Root(), "/work/hard"))
	ok(t, fs.Utimes(ino, Time{Sec: -5, Nsec: 7}, Time{Sec: 1 << 33}))
	ok(t, fs.Chmod(mustResolve(t, fs, "/tmp/d/locked"), 0o500))
	ok(t, fs.Truncate(makeFile(t, fs, "/work/sparse", "start"), 1<<35))
	makeFile(t, fs, "/work/\xff is no UTF-8", "")
	ok(t, fs.Symlink("../tmp/d", fs.Root(), "/work/link"))
	ok(t, fs.Symlink("\xfe", fs.Root(), "/work/odd"))

	saved := roundTrip(t, fs)
	again, err := Import(testBase(), roomy, tick(), saved)
	if err != nil {
		t.Fatal(err)
	}
	checkAccounts(t, again, nil)
	if diff := cmp.Diff(saved, roundTrip(t, again)); diff != "" {
		t.Errorf("saved and saved again (-first +second):\n%.2000s", diff)
	}
	f, e := again.Resolve(again.Root(), "/work/link/locked/f", true)
	ok(t, e)
	if got := readAll(t, f); got != strings.Repeat("text", 3000) {
		t.Errorf("read %d bytes", len(got))
	}
	s := f.Stat()
	if f != mustResolve(t, again, "/work/hard") || s.Nlink != 2 || s.AtimeSec != -5 || s.AtimeNsec != 7 || s.MtimeSec != 1<<33 {
		t.Errorf("the file became %+v", s)
	}
	if s := mustResolve(t, again, "/work/sparse").Stat(); s.Size != 1<<35 || s.Blocks != 8 {
		t.Errorf("the file with a hole became %+v", s)
	}
}

func TestLayerInUseWithoutANameIsNotSaved(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "x")
	fs.Ref(ino)
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	if _, err := fs.Export(); !errors.Is(err, ErrUnnamed) {
		t.Errorf("got %v", err)
	}
	fs.Unref(ino)
	if _, err := fs.Export(); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestForeignSavedLayerIsRefused(t *testing.T) {
	tops := []Saved{
		{Parent: -1, Name: []byte("tmp"), Kind: Dir, Mode: 0o1777},
		{Parent: -1, Name: []byte("work"), Kind: Dir, Mode: 0o755},
	}
	add := func(list ...Saved) []Saved { return append(append([]Saved{}, tops...), list...) }
	file := func(name string) Saved { return Saved{Name: []byte(name)} }
	dir := func(parent int, name string) Saved { return Saved{Parent: parent, Name: []byte(name), Kind: Dir} }
	data := func(size, off int64, n int) Saved {
		return Saved{Name: []byte("a"), Size: size, Data: []Extent{{off, make([]byte, n)}}}
	}
	deep := add()
	for len(deep) < maxDepth+3 {
		deep = append(deep, dir(len(deep)-1, "d"))
	}
	for name, saved := range map[string][]Saved{
		"one folder only":          tops[:1],
		"the folders turned round": {tops[1], tops[0]},
		"another folder":           {tops[0], {Parent: -1, Name: []byte("usr"), Kind: Dir}},
		"a folder that is a file":  {tops[0], {Parent: -1, Name: []byte("work")}},
		"a third top":              add(dir(-1, "dev")),
		"no name":                  add(file("")),
		"a dot":                    add(file(".")),
		"two dots":                 add(dir(0, "..")),
		"a slash":                  add(file("a/b")),
		"a NUL":                    add(file("a\x00")),
		"a long name":              add(file(strings.Repeat("n", 256))),
		"twice":                    add(file("a"), file("a")),
		"before its folder":        add(dir(3, "a"), dir(0, "b")),
		"in itself":                add(dir(2, "a")),
		"below a file":             add(file("a"), dir(2, "b")),
		"below a link":             add(Saved{Name: []byte("a"), Kind: Symlink, Target: []byte("/tmp")}, dir(2, "b")),
		"too deep":                 deep,
		"an unknown kind":          add(Saved{Name: []byte("a"), Kind: 9}),
		"a device":                 add(Saved{Name: []byte("a"), Kind: Device}),
		"a folder with contents":   add(Saved{Name: []byte("a"), Kind: Dir, Data: []Extent{{0, []byte("x")}}}),
		"a folder with a size":     add(Saved{Name: []byte("a"), Kind: Dir, Size: 1}),
		"a file with a target":     add(Saved{Name: []byte("a"), Target: []byte("x")}),
		"a link to nothing":        add(Saved{Name: []byte("a"), Kind: Symlink}),
		"a link to a NUL":          add(Saved{Name: []byte("a"), Kind: Symlink, Target: []byte{0}}),
		"a long target":            add(Saved{Name: []byte("a"), Kind: Symlink, Target: make([]byte, maxPath+1)}),
		"a mode with a type":       add(Saved{Name: []byte("a"), Mode: 0o100644}),
		"a time out of bounds":     add(Saved{Name: []byte("a"), Modify: [2]int64{0, 1e9}}),
		"a time below bounds":      add(Saved{Name: []byte("a"), Access: [2]int64{0, -1}}),
		"a size below nothing":     add(data(-1, 0, 0)),
		"a size past the largest":  add(data(maxFileSize+1, 0, 0)),
		"contents past the end":    add(data(10, 8, 3)),
		"contents before start":    add(data(10, -1, 1)),
		"contents at no offset":    add(data(10, 1<<63-1, 1)),
		"more bytes than fit":      add(data(1<<20, 0, 2*chunkSize+1)),
		"a link to nowhere":        add(Saved{Name: []byte("a"), Link: 9}),
		"a link to itself":         add(Saved{Name: []byte("a"), Link: 2}),
		"a link below nothing":     add(file("a"), Saved{Name: []byte("b"), Link: -1}),
		"a link to a folder":       add(dir(0, "a"), Saved{Name: []byte("b"), Kind: Dir, Link: 2}),
		"a link of another kind":   add(file("a"), Saved{Name: []byte("b"), Kind: Symlink, Link: 2}),
		"too many":                 add(file("1"), file("2"), file("3"), file("4"), file("5"), file("6")),
		"too many names":           add(file("1"), file("2"), file("3"), file("4"), file("5"), Saved{Name: []byte("6"), Link: 2}),
	} {
		t.Run(name, func(t *testing.T) {
			lim := Limits{Bytes: 2 * chunkSize, Inodes: 5}
			if name == "too deep" {
				lim.Inodes = 2 * maxDepth
			}
			if _, err := Import(testBase(), lim, tick(), saved); !errors.Is(err, ErrSaved) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Import(testBase(), Limits{Bytes: 2 * chunkSize, Inodes: 5}, tick(), add(file("1"), data(1<<20, 1<<19, chunkSize))); err != nil {
		t.Errorf("a layer that is in order: %v", err)
	}
	var e syscall.Errno
	if _, err := Import(testBase(), Limits{Inodes: 5}, tick(), add(data(1, 0, 1))); !errors.As(err, &e) || e != syscall.ENOSPC {
		t.Errorf("the cause is lost: %v", err)
	}
}
