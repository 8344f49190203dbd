//go:build unix

package private_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

func publish(t *testing.T, name, text string) {
	t.Helper()
	f, err := private.Create(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := private.Publish(f, name); err != nil {
		t.Fatal(err)
	}
}

func TestAPublishedFileReplacesTheOldOneAndOpens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if err := private.Folder(dir); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		publish(t, name, text)
		f, err := private.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
		if info, err := f.Stat(); err != nil || info.Mode() != 0o400 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		_ = f.Close()
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestSweepTakesOnlyWhatAKilledWriterLeft(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "kept")
	publish(t, name, "x")
	old, err := private.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	young, err := private.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = old.Close(), young.Close()
	long := time.Now().Add(-48 * time.Hour)
	if err := errors.Join(os.Chtimes(old.Name(), long, long), os.Chtimes(name, long, long)); err != nil {
		t.Fatal(err)
	}
	private.Sweep(dir)
	for file, there := range map[string]bool{name: true, young.Name(): true, old.Name(): false} {
		if _, err := os.Lstat(file); (err == nil) != there {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

func TestFilesThatOthersCouldHaveWrittenAreRefused(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"group can write":  func(p string) error { return os.Chmod(p, 0o460) },
		"others can write": func(p string) error { return os.Chmod(p, 0o602) },
		"link": func(p string) error {
			return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p))
		},
		"folder": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"someone else's": func(p string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(p, 0o602) // giving files away needs root
			}
			return os.Chown(p, 12345, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			publish(t, file, "x")
			if err := prepare(file); err != nil {
				t.Fatal(err)
			}
			f, err := private.Open(file)
			if err == nil {
				_ = f.Close()
				t.Fatal("opened")
			}
			if name != "link" && !errors.Is(err, private.ErrUnsafe) {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := private.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
