//go:build linux

package vfs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSavedLayerComesBackTheSame(t *testing.T) {
	fs := newFS(t)
	must(t, fs.Mkdir(fs.Root(), "/tmp/d", 0o700))
	must(t, fs.Mkdir(fs.Root(), "/tmp/d/locked", 0o755))
	fs.makeFile(t, "/tmp/d/locked/f", strings.Repeat("text", 3000))
	must(t, fs.Chmod(fs.get(t, "/tmp/d/locked"), 0o500))
	fs.makeFile(t, "/work/empty", "")
	must(t, fs.Symlink("../tmp/d", fs.Root(), "/work/link"))
	must(t, fs.Symlink(strings.Repeat("l", 200), fs.Root(), "/work/long"))
	gone := fs.makeFile(t, "/work/gone", "x")
	fs.Ref(gone)
	must(t, fs.Unlink(fs.Root(), "/work/gone"))

	saved := roundTrip(t, fs)
	again, err := Import(testBase(), roomy, ticks(), saved)
	if err != nil {
		t.Fatal(err)
	}
	again.check(t)
	if diff := cmp.Diff(saved, roundTrip(t, again)); diff != "" {
		t.Errorf("saved and saved again (-first +second):\n%.2000s", diff)
	}
	if a, b := fs.get(t, "/tmp/d").Stat(), again.get(t, "/tmp/d").Stat(); a.MtimeSec != b.MtimeSec || a.Nlink != b.Nlink || a.Mode != b.Mode {
		t.Errorf("%+v became %+v", a, b)
	}
	if got := again.get(t, "/work/link/locked/f").text(t); got != strings.Repeat("text", 3000) {
		t.Errorf("read %d bytes", len(got))
	}
}

// roundTrip saves a tree and takes it through JSON.
func roundTrip(t testing.TB, fs *FS) []Saved {
	t.Helper()
	saved, err := fs.Export()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var out []Saved
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLayerThatCannotBeSavedIsRefused(t *testing.T) {
	for name, make := range map[string]func(*FS){
		"several names":    func(fs *FS) { must(t, fs.Link(fs.makeFile(t, "/tmp/a", ""), fs.Root(), "/work/b")) },
		"not UTF-8":        func(fs *FS) { fs.makeFile(t, "/tmp/\xff", "") },
		"target not UTF-8": func(fs *FS) { must(t, fs.Symlink("\xff", fs.Root(), "/tmp/l")) },
		"too large":        func(fs *FS) { must(t, fs.Truncate(fs.makeFile(t, "/tmp/a", ""), maxSaved+1)) },
		"too large at last": func(fs *FS) {
			must(t, fs.Truncate(fs.makeFile(t, "/tmp/a", ""), maxSaved))
			fs.makeFile(t, "/tmp/b", "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newFS(t)
			make(fs)
			if _, err := fs.Export(); !errors.Is(err, ErrSaved) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestForeignSavedLayerIsRefused(t *testing.T) {
	dir := func(p string) Saved { return Saved{Path: p, Kind: Dir, Mode: 0o755} }
	file := func(p string) Saved { return Saved{Path: p, Kind: File, Mode: 0o644} }
	link := func(p, to string) Saved { return Saved{Path: p, Kind: Symlink, Mode: 0o777, Target: to} }
	var deep []Saved
	for p := "/tmp"; len(deep) < maxDepth; {
		p += "/d"
		deep = append(deep, dir(p))
	}
	for name, saved := range map[string][]Saved{
		"no path":              {file("")},
		"relative":             {file("tmp/a")},
		"in the base":          {file("/usr/a")},
		"in the root":          {file("/a")},
		"a device":             {file("/dev/a")},
		"a mount":              {dir("/tmp")},
		"with dots":            {file("/tmp/../usr/a")},
		"ending in dots":       {dir("/tmp/..")},
		"ending in a dot":      {dir("/tmp/.")},
		"ending in a slash":    {dir("/tmp/a/")},
		"two slashes":          {file("/tmp//a")},
		"with a NUL":           {file("/tmp/a\x00")},
		"a long name":          {file("/tmp/" + strings.Repeat("n", 256))},
		"twice":                {file("/tmp/a"), file("/tmp/a")},
		"before its folder":    {file("/tmp/a/b"), dir("/tmp/a")},
		"below a file":         {file("/tmp/a"), file("/tmp/a/b")},
		"through a link":       {link("/tmp/a", "/work"), file("/tmp/a/b")},
		"too deep":             deep,
		"no kind":              {{Path: "/tmp/a", Mode: 0o644}},
		"an unknown kind":      {{Path: "/tmp/a", Kind: 9}},
		"a device's kind":      {{Path: "/tmp/a", Kind: Device}},
		"a folder with data":   {{Path: "/tmp/a", Kind: Dir, Data: []byte("x")}},
		"a file with target":   {{Path: "/tmp/a", Kind: File, Target: "x"}},
		"a link to nothing":    {link("/tmp/a", "")},
		"a link to a NUL":      {link("/tmp/a", "\x00")},
		"a long target":        {link("/tmp/a", strings.Repeat("n", 4096))},
		"a link's mode":        {{Path: "/tmp/a", Kind: Symlink, Target: "x"}},
		"a mode with a type":   {{Path: "/tmp/a", Kind: File, Mode: 0o100644}},
		"too many":             {file("/tmp/1"), file("/tmp/2"), file("/tmp/3"), file("/tmp/4"), dir("/tmp/5"), file("/tmp/6")},
		"too many bytes":       {{Path: "/tmp/a", Kind: File, Data: make([]byte, 2*pageSize+1)}},
		"time out of bounds":   {{Path: "/tmp/a", Kind: File, Nsec: 1e9}},
		"time below bounds":    {{Path: "/tmp/a", Kind: File, Nsec: -1}},
		"long target, no room": {{Path: "/tmp/a", Kind: File, Data: make([]byte, 2*pageSize)}, link("/tmp/b", strings.Repeat("n", 200))},
	} {
		t.Run(name, func(t *testing.T) {
			lim := Limits{Bytes: 2 * pageSize, Inodes: 5}
			if name == "too deep" {
				lim.Inodes = 1000
			}
			if _, err := Import(testBase(), lim, ticks(), saved); !errors.Is(err, ErrSaved) {
				t.Errorf("got %v", err)
			}
		})
	}
}
