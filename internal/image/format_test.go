//go:build unix

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// buffer is a file in memory.
type buffer struct {
	b   []byte
	off int
}

func (f *buffer) Write(p []byte) (int, error) {
	f.b = append(f.b[:f.off], append(slices.Clone(p), f.b[min(len(f.b), f.off+len(p)):]...)...)
	f.off += len(p)
	return len(p), nil
}

func (f *buffer) Seek(off int64, _ int) (int64, error) {
	f.off = int(off)
	return off, nil
}

// smallImage makes an image of a few invented files.
func smallImage(t testing.TB, text string) []byte {
	t.Helper()
	f := new(buffer)
	w, err := newWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	exe := tinyELF()
	p, err := parseELF(bytes.NewReader(exe), int64(len(exe)))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		w.file("/usr/lib/python3.13/os.py", []byte(text), false, fileAlign),
		w.file("/usr/lib/python3.13/empty.py", nil, false, fileAlign),
		w.file("/usr/lib/python3.13-extra", []byte("x"), true, fileAlign),
		w.object("/usr/bin/python3.13", exe, p),
		w.object("/lib64/ld.so", exe, p),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	w.link("/usr/lib/python3.13/link", "os.py")
	_, err = w.finish(&Manifest{
		Python: "3.13.0", Tag: "cpython-313", Executable: "/usr/bin/python3.13", Interp: "/lib64/ld.so",
		StdLib: "/usr/lib/python3.13", LibraryPath: []string{"/lib"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.b
}

func openBytes(t testing.TB, b []byte) (*Image, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	im, err := Open(name)
	if err == nil {
		t.Cleanup(func() { _ = im.Close() })
	}
	return im, err
}

func TestImageShowsWhatWasWritten(t *testing.T) {
	im, err := openBytes(t, smallImage(t, "import sys\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Verify(); err != nil {
		t.Fatal(err)
	}
	dirs := map[string][]string{
		"/":                           {"lib64", "usr"},
		"/usr":                        {"bin", "lib"},
		"/usr/lib":                    {"python3.13", "python3.13-extra"},
		"/usr/lib/python3.13":         {"empty.py", "link", "os.py"},
		"/usr/lib/python3.13/os.py":   nil,
		"/usr/lib/python3":            nil,
		"/usr/lib/python3.13/missing": nil,
	}
	for dir, want := range dirs {
		if got := im.ReadDir(dir); !slices.Equal(got, want) {
			t.Errorf("ReadDir(%q) = %q, want %q", dir, got, want)
		}
	}
	if b, err := im.Content("/usr/lib/python3.13/os.py"); err != nil || string(b) != "import sys\n" {
		t.Errorf("content %q, %v", b, err)
	}
	if b, err := im.Content("/usr/lib/python3.13/empty.py"); err != nil || len(b) != 0 {
		t.Errorf("content %q, %v", b, err)
	}
	for _, p := range []string{"/usr", "/usr/lib/python3.13/link", "/nowhere", "", "usr"} {
		if _, err := im.Content(p); !errors.Is(err, ErrNotFound) {
			t.Errorf("Content(%q): %v", p, err)
		}
	}
	if e, ok := im.Lookup("/usr/lib/python3.13/link"); !ok || e.Kind != Symlink || e.Target != "os.py" || e.Size != 5 {
		t.Errorf("link %+v, %v", e, ok)
	}
	if e, ok := im.Lookup("/usr/lib/python3.13-extra"); !ok || e.Kind != File || !e.Executable {
		t.Errorf("executable %+v, %v", e, ok)
	}
	if e, ok := im.Lookup("/"); !ok || e.Kind != Dir || e.Inode == 0 {
		t.Errorf("root %+v, %v", e, ok)
	}
	if n := len(slices.Collect(im.Paths())); n != 5 || !slices.IsSorted(slices.Collect(im.Paths())) {
		t.Errorf("%d paths", n)
	}
	if len(im.Manifest().Objects) != 2 || im.Manifest().Objects[0].Path != "/lib64/ld.so" {
		t.Errorf("objects %+v", im.Manifest().Objects)
	}
}

func TestDifferentContentHasAnotherID(t *testing.T) {
	a, err := openBytes(t, smallImage(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBytes(t, smallImage(t, "b"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := openBytes(t, smallImage(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if a.ID() == b.ID() || a.ID() != c.ID() || !isID(a.ID()) {
		t.Errorf("IDs %s %s %s", a.ID(), b.ID(), c.ID())
	}
}

func TestEveryDamagedByteIsNoticed(t *testing.T) {
	sound := smallImage(t, "import sys\n")
	im, err := openBytes(t, sound)
	if err != nil {
		t.Fatal(err)
	}
	covered := make([]bool, len(sound))
	mark := func(off, size int64) {
		for i := off; i < off+size; i++ {
			covered[i] = true
		}
	}
	if err := im.Load(); err != nil {
		t.Fatal(err)
	}
	m := im.Manifest()
	for i := range im.index.len() {
		r := im.index.record(i)
		mark(r.off, r.size*int64(r.kind&1))
	}
	mark(m.Index.Offset, m.Index.Size)
	mark(m.ObjectTable.Offset, m.ObjectTable.Size)
	mark(0, 12)
	mark(16, 48)
	mark(int64(binary.LittleEndian.Uint64(sound[16:])), int64(binary.LittleEndian.Uint64(sound[24:])))
	for i := range sound {
		if !covered[i] || i%3 != 0 && i > headerSize {
			continue // padding has no meaning; of the rest, a part will do
		}
		bad := slices.Clone(sound)
		bad[i] ^= 0x41
		got, err := decodeAll(bad)
		if err == nil {
			err = got.Verify()
		}
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d of %d: %v", i, len(sound), err)
		}
	}
}

// decodeAll opens an image in memory.
func decodeAll(b []byte) (*Image, error) {
	im := &Image{file: b}
	if err := im.init(); err != nil {
		return nil, err
	}
	return im, im.Load()
}

func TestCutOffImageIsDamaged(t *testing.T) {
	sound := smallImage(t, "import sys\n")
	for _, n := range []int{0, 1, headerSize - 1, headerSize, len(sound) / 2, len(sound) - 1} {
		if _, err := openBytes(t, sound[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	if _, err := openBytes(t, append(slices.Clone(sound), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestFileCutOffWhileOpenIsDamaged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, smallImage(t, "import sys\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	im, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer checkClose(t, im)
	if err := im.Load(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := im.Content("/usr/lib/python3.13/os.py"); !errors.Is(err, ErrDamaged) {
		t.Errorf("content of a file that is gone: %v", err)
	}
}

func TestOpenRefusesWhatIsNoFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "image")
	if err := os.WriteFile(name, smallImage(t, "x"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "0000000000000000000000000000000000000000000000000000000000000000"+suffix)
	if err := os.Link(name, other); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(dir, "link"), filepath.Join(dir, "missing"), dir, other, os.DevNull} {
		if im, err := Open(bad); err == nil {
			t.Errorf("opened %s as %s", bad, im.ID())
		}
	}
}

func TestIndexRefusesUnsoundEntries(t *testing.T) {
	sum := string(make([]byte, 32))
	root := &record{path: "/", kind: Dir}
	file := func(p string, off, size int64) *record {
		return &record{path: p, kind: File, off: off, size: size, sum: sum}
	}
	tests := map[string][]*record{
		"no root":               {file("/a", 64, 1)},
		"root is a file":        {file("/", 64, 1)},
		"twice":                 {root, file("/a", 64, 1), file("/a", 128, 1)},
		"out of order":          {root, file("/b", 64, 1), file("/a", 128, 1)},
		"dot dot":               {root, file("/../a", 64, 1)},
		"relative":              {root, file("a", 64, 1)},
		"double slash":          {root, file("//a", 64, 1)},
		"NUL":                   {root, file("/a\x00", 64, 1)},
		"no parent":             {root, file("/d/a", 64, 1)},
		"parent is a file":      {root, file("/d", 64, 1), file("/d/a", 128, 1)},
		"overlap":               {root, file("/a", 64, 65), file("/b", 128, 1)},
		"same content range":    {root, file("/a", 64, 1), file("/b", 64, 1)},
		"in the header":         {root, file("/a", 0, 1)},
		"behind the end":        {root, file("/a", 64, 1<<20)},
		"unaligned":             {root, file("/a", 65, 1)},
		"link without target":   {root, {path: "/a", kind: Symlink}},
		"executable folder":     {root, {path: "/a", kind: Dir, executable: true}},
		"unknown kind of entry": {root, {path: "/a", kind: 7}},
	}
	for name, records := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeIndex(encodeIndex(records), 4096); !errors.Is(err, ErrDamaged) {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := decodeIndex(encodeIndex([]*record{root, file("/a", 64, 1)}), 4096); err != nil {
		t.Errorf("a sound index: %v", err)
	}
}

func TestObjectTableRefusesUnsoundSegments(t *testing.T) {
	load := Load{Vaddr: 0x1000, Filesz: 0x10, Memsz: 0x20, Flags: 5}
	sound := Object{Path: "/a", Low: 0x1000, High: 0x1020, Align: 4096, Loads: []Load{load}}
	tests := map[string]func(o *Object){
		"no segments":    func(o *Object) { o.Loads = nil },
		"alignment":      func(o *Object) { o.Align = 3 },
		"span":           func(o *Object) { o.High = 0x1000 },
		"file over size": func(o *Object) { o.Loads = []Load{{Vaddr: 0x1000, Filesz: 0x30, Memsz: 0x20}} },
		"overlap":        func(o *Object) { o.Loads = []Load{load, load} },
		"overflow":       func(o *Object) { o.Loads = []Load{{Vaddr: 1 << 63, Memsz: 1 << 63}} },
		"path":           func(o *Object) { o.Path = "a" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			o := sound
			change(&o)
			if _, err := decodeObjects(encodeObjects([]Object{o})); !errors.Is(err, ErrDamaged) {
				t.Errorf("error %v", err)
			}
		})
	}
	if got, err := decodeObjects(encodeObjects([]Object{sound})); err != nil || len(got) != 1 || got[0].Loads[0] != load {
		t.Errorf("a sound table: %+v, %v", got, err)
	}
}

func FuzzOpen(f *testing.F) {
	sound := smallImage(f, "import sys\n")
	f.Add(sound)
	f.Add(sound[:headerSize])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		im, err := decodeAll(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		for p := range im.Paths() {
			if _, err := im.Content(p); err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzTables reaches the tables' decoders behind the digests.
func FuzzTables(f *testing.F) {
	im, err := decodeAll(smallImage(f, "import sys\n"))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []Section{im.manifest.Index, im.manifest.ObjectTable} {
		f.Add(im.file[s.Offset : s.Offset+s.Size])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := decodeIndex(b, 1<<20); err == nil {
			for i := range x.len() {
				children(x, x.record(i).path)
			}
		} else if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if _, err := decodeObjects(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if _, err := decodeManifest(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

func TestCleanPathsAreThoseThatCleaningLeavesAsTheyAre(t *testing.T) {
	for _, p := range []string{
		"", "/", "//", "/a", "/a/", "/a//b", "/a/b", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b", "/.a", "/..a", "/a.", "/...",
		"a", "./a", "../a", "/a/b.c/d..e", "/" + strings.Repeat("a", maxPath-1), "/" + strings.Repeat("a", maxPath),
	} {
		want := len(p) <= maxPath && strings.HasPrefix(p, "/") && path.Clean(p) == p
		if got := cleanPath(p); got != want {
			t.Errorf("%.40q is clean: %v, want %v", p, got, want)
		}
	}
	if cleanPath("/a\x00") {
		t.Error("a path with NUL is clean")
	}
}
