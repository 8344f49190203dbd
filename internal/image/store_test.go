//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

// fakeStore is a store whose captures write invented images: their text is
// what the file origin holds.
func fakeStore(t *testing.T) (s *Store, origin string, captures *atomic.Int32) {
	t.Helper()
	dir := t.TempDir()
	s, err := OpenStore(filepath.Join(dir, "cache", "images"))
	if err != nil {
		t.Fatal(err)
	}
	origin, captures = filepath.Join(dir, "python"), new(atomic.Int32)
	writeText(t, origin, "one")
	s.capture = func(_ context.Context, f io.WriteSeeker, _ Options) (*Captured, error) {
		captures.Add(1)
		text, err := os.ReadFile(origin)
		if err != nil {
			return nil, ErrNoPython
		}
		b := smallImage(t, string(text))
		if _, err := f.Write(b); err != nil {
			return nil, err
		}
		im, err := decodeAll(b)
		if err != nil {
			return nil, err
		}
		return &Captured{ID: im.ID(), Manifest: im.Manifest(), Origin: []string{origin}}, nil
	}
	return s, origin, captures
}

func writeText(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, s *Store, name string) Info {
	t.Helper()
	info, err := s.Build(t.Context(), Options{}, name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestStoreKeepsOneCopyUnderManyNames(t *testing.T) {
	s, origin, _ := fakeStore(t)
	a := build(t, s, "a")
	b := build(t, s, "b-2.x_y")
	writeText(t, origin, "another")
	c := build(t, s, "c")
	if a.ID != b.ID || a.ID == c.ID || strings.Join(b.Names, " ") != "a b-2.x_y" {
		t.Errorf("a %+v, b %+v, c %+v", a, b, c)
	}
	infos, err := s.List()
	if err != nil || len(infos) != 2 {
		t.Fatalf("%d images, %v", len(infos), err)
	}
	for _, info := range infos {
		st, err := os.Stat(info.Path)
		if err != nil || st.Mode().Perm() != 0o400 || st.Size() != info.Size || info.Manifest == nil {
			t.Errorf("%+v: %v, %v", info, st.Mode(), err)
		}
	}
	// A name moves to what is built last.
	if moved := build(t, s, "a"); moved.ID != c.ID || len(moved.Names) != 2 {
		t.Errorf("moved %+v", moved)
	}
}

func TestImagesAreFoundByNameIDAndFile(t *testing.T) {
	s, _, _ := fakeStore(t)
	info := build(t, s, "mine")
	link := filepath.Join(t.TempDir(), "link"+suffix)
	if err := os.Symlink(info.Path, link); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(info.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"mine", info.ID, info.ID[:minIDPrefix]} {
		if p, err := s.Resolve(what); err != nil || p != info.Path {
			t.Errorf("%s: %s, %v", what, p, err)
		}
	}
	for _, what := range []string{info.Path, link} {
		if p, err := s.Resolve(what); err != nil || p != real {
			t.Errorf("%s: %s, %v", what, p, err)
		}
	}
	if got, err := s.Show(link); err != nil || got.ID != info.ID || len(got.Names) != 1 {
		t.Errorf("show %+v, %v", got, err)
	}
	for _, what := range []string{"", "other", info.ID[:minIDPrefix-1], "ffffffff", "../mine", "./missing.img", ".mine.json", "Mine"} {
		if p, err := s.Resolve(what); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %s, %v", what, p, err)
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	s, _, captures := fakeStore(t)
	for _, name := range []string{"", ".", "..", ".x", "-x", "a/b", "A", "a b", "ä", strings.Repeat("a", 65), "a\n"} {
		if _, err := s.Build(t.Context(), Options{}, name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if captures.Load() != 0 {
		t.Error("something was captured")
	}
}

func TestRemovingTheLastNameRemovesTheImage(t *testing.T) {
	s, _, _ := fakeStore(t)
	info := build(t, s, "a")
	build(t, s, "b")
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(info.Path); err != nil {
		t.Errorf("image that still has a name: %v", err)
	}
	if err := s.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if infos, err := s.List(); err != nil || len(infos) != 0 {
		t.Errorf("left %+v, %v", infos, err)
	}
	if err := s.Remove("b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	build(t, s, "c")
	build(t, s, "d")
	if err := s.Remove(info.ID[:8]); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, s, "lock", "refs")
	if left, err := os.ReadDir(filepath.Join(s.dir, refFolder)); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// checkFiles checks what is in the store's folder.
func checkFiles(t *testing.T, s *Store, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the store holds %q, want %q", got, want)
	}
}

func TestFailedCaptureLeavesNothing(t *testing.T) {
	s, origin, _ := fakeStore(t)
	if err := os.Remove(origin); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(s.dir, tempPrefix+"killed"), "left by a capture that was killed")
	if _, err := s.Build(t.Context(), Options{}, "a"); !errors.Is(err, ErrNoPython) {
		t.Errorf("error %v", err)
	}
	checkFiles(t, s, "lock", "refs")
}

func TestDamagedImageIsListedAndMended(t *testing.T) {
	s, _, _ := fakeStore(t)
	info := build(t, s, "a")
	if err := os.Chmod(info.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	writeText(t, info.Path, "rubbish")
	infos, err := s.List()
	if err != nil || len(infos) != 1 || infos[0].Manifest != nil || infos[0].Problem == "" || infos[0].Names[0] != "a" {
		t.Errorf("list %+v, %v", infos, err)
	}
	if mended := build(t, s, "a"); mended.ID != info.ID || mended.Manifest == nil {
		t.Errorf("mended %+v", mended)
	}
	if err := os.Chmod(info.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("an image that others can write to: %v", err)
	}
}

func TestDefaultIsCapturedOnceAndAgainAfterAChange(t *testing.T) {
	s, origin, captures := fakeStore(t)
	use := func() (string, bool) {
		t.Helper()
		p, built, err := s.Default(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p, built
	}
	current := func(want string) {
		t.Helper()
		if p, err := s.Current(); p != want || (want == "") != errors.Is(err, ErrNotFound) {
			t.Errorf("without a capture: %q, %v; want %q", p, err, want)
		}
	}
	current("")
	first, built := use()
	current(first)
	if again, rebuilt := use(); !built || rebuilt || again != first || captures.Load() != 1 {
		t.Errorf("built %v, again %v, %d captures", built, rebuilt, captures.Load())
	}
	writeText(t, origin, "upgraded")
	current("")
	second, built := use()
	if !built || second == first {
		t.Errorf("after an upgrade: built %v, %s", built, second)
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if p, built := use(); !built || p != second {
		t.Errorf("after the image was removed: built %v, %s", built, p)
	}
	// The Python is gone: the image does not need it.
	if err := os.Remove(origin); err != nil {
		t.Fatal(err)
	}
	if p, built := use(); built || p != second {
		t.Errorf("after the Python was removed: built %v, %s", built, p)
	}
	if err := s.Remove(DefaultName); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Default(t.Context(), nil); !errors.Is(err, ErrNoPython) {
		t.Errorf("with neither: %v", err)
	}
}

func TestConcurrentFirstRunsCaptureOnce(t *testing.T) {
	s, _, captures := fakeStore(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	paths := make([]string, 8)
	for i := range errs {
		wg.Go(func() {
			other, err := OpenStore(s.dir)
			if err != nil {
				errs[i] = err
				return
			}
			other.capture = s.capture
			paths[i], _, errs[i] = other.Default(t.Context(), nil)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil || captures.Load() != 1 {
		t.Errorf("%d captures, %v", captures.Load(), err)
	}
	for _, p := range paths {
		if p != paths[0] {
			t.Errorf("paths %q", paths)
		}
	}
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	s, _, _ := fakeStore(t)
	unlock, err := s.lock(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Build(ctx, Options{Log: func(string) { cancel() }}, "a")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestUnsafeFoldersAreRefusedAndLeftAlone(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string) error{
		"link": func(t *testing.T, dir string) error { return os.Symlink(t.TempDir(), dir) },
		"file": func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"open to the group": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750))
		},
		"open to others": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o701))
		},
		"someone else's": func(t *testing.T, dir string) error {
			if os.Geteuid() != 0 {
				t.Skip("needs root, to give a folder away")
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 0))
		},
		"open folder inside": func(_ *testing.T, dir string) error {
			refs := filepath.Join(dir, refFolder)
			return errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(refs, 0o700), os.Chmod(refs, 0o777))
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "it's mine")
			if err := prepare(t, dir); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, err = OpenStore(dir)
			var unsafe *private.UnsafeError
			if !errors.Is(err, ErrUnsafeFolder) || !errors.As(err, &unsafe) {
				t.Fatalf("error %v", err)
			}
			if !strings.Contains(unsafe.Mend, `it'\''s mine`) || !strings.Contains(err.Error(), unsafe.Mend) {
				t.Errorf("error %v", err)
			}
			if after, err := os.Lstat(dir); err != nil || after.Mode() != before.Mode() {
				t.Errorf("mode %v became %v, %v", before.Mode(), after.Mode(), err)
			}
		})
	}
}

func TestNewStoreIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if _, err := OpenStore(dir); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

func BenchmarkDefault(b *testing.B) {
	s, err := OpenStore(filepath.Join(b.TempDir(), "images"))
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.Default(b.Context(), nil); err != nil {
		b.Skip(fmt.Sprint(err))
	}
	for b.Loop() {
		p, _, err := s.Default(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		im, err := Open(p)
		if err != nil {
			b.Fatal(err)
		}
		if err := im.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
