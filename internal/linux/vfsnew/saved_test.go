package vfs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filled makes a tree with one of everything in its layer.
func filled(t testing.TB) *FS {
	fs := newTree(t, roomy)
	root := fs.Root()
	ok(t, fs.Mkdir(root, "/work/d", 0o750))
	f := makeFile(t, fs, "/work/d/\xff name", strings.Repeat("content", 1000))
	ok(t, fs.Chmod(f, 0o4640))
	ok(t, fs.Utimes(f, Time{Sec: 1, Nsec: 2}, Time{Sec: 3, Nsec: 4}))
	ok(t, fs.Link(f, root, "/tmp/other"))
	ok(t, fs.Symlink("/usr/\xfe", root, "/work/d/l"))
	sparse := makeFile(t, fs, "/tmp/sparse", "start")
	_, e := fs.WriteAt(sparse, []byte("end"), 1<<30)
	ok(t, e)
	ok(t, fs.Truncate(sparse, 1<<35))
	ok(t, fs.Allocate(makeFile(t, fs, "/tmp/zeros", ""), 5, 2*chunkSize))
	ok(t, fs.Chmod(&fs.work, 0o700))
	return fs
}

func export(t testing.TB, fs *FS) []Saved {
	t.Helper()
	saved, err := fs.Export()
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func TestASavedLayerComesBackTheSame(t *testing.T) {
	fs := filled(t)
	saved := export(t, fs)
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var read []Saved
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	back, err := Import(testBase(), roomy, tick(), read)
	if err != nil {
		t.Fatal(err)
	}
	checkAccounts(t, back, nil)
	if d := cmp.Diff(saved, export(t, back)); d != "" {
		t.Error(d)
	}
	if back.bytes != fs.bytes || back.inodes != fs.inodes {
		t.Errorf("%d bytes, %d inodes; were %d, %d", back.bytes, back.inodes, fs.bytes, fs.inodes)
	}
	f := mustResolve(t, back, "/tmp/other")
	if f != mustResolve(t, back, "/work/d/\xff name") || f.Stat().Nlink != 2 || f.Stat().MtimeNsec != 4 {
		t.Errorf("%+v", f.Stat())
	}
	if l := mustResolve(t, back, "/work/d/l").ReadLink(); l != "/usr/\xfe" {
		t.Errorf("link to %q", l)
	}
}

func TestASavedLayerSharesNoBytesWithTheTree(t *testing.T) {
	fs := filled(t)
	saved := export(t, fs)
	_, e := fs.WriteAt(mustResolve(t, fs, "/tmp/other"), []byte("X"), 0)
	ok(t, e)
	back, err := Import(testBase(), roomy, tick(), saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range saved {
		for _, x := range s.Data {
			clear(x.Bytes)
		}
	}
	if got := readAll(t, mustResolve(t, back, "/tmp/other")); got != strings.Repeat("content", 1000) {
		t.Errorf("%.20q", got)
	}
}

func TestAnEmptyListIsAnEmptyLayer(t *testing.T) {
	fs, err := Import(testBase(), roomy, tick(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(export(t, fs)); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestALayerWithOpenUnnamedFilesIsNotSaved(t *testing.T) {
	fs := newTree(t, roomy)
	ino := makeFile(t, fs, "/tmp/f", "x")
	fs.Ref(ino)
	ok(t, fs.Unlink(fs.Root(), "/tmp/f"))
	if _, err := fs.Export(); !errors.Is(err, ErrUnnamed) {
		t.Error(err)
	}
	fs.Unref(ino)
	export(t, fs)
}

func TestImportRefusesWhatExportCannotGive(t *testing.T) {
	top := func(more ...Saved) []Saved {
		return append([]Saved{{Parent: -1, Name: []byte("tmp"), Kind: Dir}, {Parent: -1, Name: []byte("work"), Kind: Dir}}, more...)
	}
	file := func(change func(*Saved)) []Saved {
		s := Saved{Name: []byte("f"), Size: 3, Data: []Extent{{0, []byte("abc")}}}
		change(&s)
		return top(Saved{Name: []byte("d"), Kind: Dir}, s)
	}
	if _, err := Import(testBase(), roomy, tick(), file(func(*Saved) {})); err != nil {
		t.Fatal(err)
	}
	deep := top()
	for i := range maxDepth {
		deep = append(deep, Saved{Parent: max(i+1, 1), Name: []byte("d"), Kind: Dir})
	}
	for name, saved := range map[string][]Saved{
		"one top":           top()[:1],
		"wrong top":         {top()[1], top()[0]},
		"top is a file":     {top()[0], {Parent: -1, Name: []byte("work")}},
		"too many":          top(make([]Saved, roomy.Inodes+1)...),
		"too deep":          deep,
		"second top":        top(top()[0]),
		"no name":           file(func(s *Saved) { s.Name = nil }),
		"dot":               file(func(s *Saved) { s.Name = []byte("..") }),
		"slash":             file(func(s *Saved) { s.Name = []byte("a/b") }),
		"zero byte":         file(func(s *Saved) { s.Name = []byte("a\x00") }),
		"long name":         file(func(s *Saved) { s.Name = []byte(strings.Repeat("n", 256)) }),
		"name taken":        file(func(s *Saved) { s.Name = []byte("d") }),
		"parent is itself":  file(func(s *Saved) { s.Parent = 3 }),
		"parent below":      file(func(s *Saved) { s.Parent = -2 }),
		"parent is a file":  append(file(func(*Saved) {}), Saved{Parent: 3, Name: []byte("x")}),
		"device":            file(func(s *Saved) { s.Kind = Device; s.Size, s.Data = 0, nil }),
		"folder with bytes": file(func(s *Saved) { s.Kind = Dir }),
		"file with target":  file(func(s *Saved) { s.Target = []byte("x") }),
		"link to nowhere":   file(func(s *Saved) { s.Kind = Symlink; s.Size, s.Data = 0, nil }),
		"long target":       file(func(s *Saved) { s.Kind, s.Size, s.Data, s.Target = Symlink, 0, nil, make([]byte, 4096) }),
		"mode":              file(func(s *Saved) { s.Mode = 0o10644 }),
		"time":              file(func(s *Saved) { s.Modify[1] = 1e9 }),
		"negative size":     file(func(s *Saved) { s.Size = -1 }),
		"huge size":         file(func(s *Saved) { s.Size = maxFileSize + 1 }),
		"past the end":      file(func(s *Saved) { s.Data[0].Offset = 1 }),
		"negative offset":   file(func(s *Saved) { s.Data[0].Offset = -1 }),
		"huge offset":       file(func(s *Saved) { s.Data[0].Offset = 1<<63 - 1 }),
		"does not fit":      file(func(s *Saved) { s.Size = 1 << 21; s.Data[0].Bytes = make([]byte, 1<<21) }),
		"hard link ahead":   file(func(s *Saved) { s.Link = 9 }),
		"hard link to dir":  file(func(s *Saved) { s.Link, s.Kind = 2, Dir }),
		"negative link":     file(func(s *Saved) { s.Link = -1 }),
	} {
		if _, err := Import(testBase(), roomy, tick(), saved); !errors.Is(err, ErrSaved) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzImport imports foreign lists: none panics, what is accepted keeps the
// limits and comes back the same when saved again.
func FuzzImport(f *testing.F) {
	text, err := json.Marshal(export(f, filled(f)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`[]`))
	f.Add([]byte(`[{"Parent":-1,"Name":"dG1w","Kind":1},{"Parent":-1,"Name":"d29yaw==","Kind":1},{"Name":"YQ=="},{"Name":"Yg==","Link":2}]`))
	base := testBase()
	f.Fuzz(func(t *testing.T, text []byte) {
		var saved []Saved
		if json.Unmarshal(text, &saved) != nil {
			return
		}
		fs, err := Import(base, roomy, tick(), saved)
		if err != nil {
			return
		}
		checkAccounts(t, fs, nil)
		first := export(t, fs)
		again, err := Import(base, roomy, tick(), first)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, export(t, again)); d != "" {
			t.Fatal(d)
		}
	})
}
