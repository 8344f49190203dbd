//go:build linux

package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// keep writes a small template to a folder of its own and gives its memory file.
func keep(t *testing.T) (dir, file string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "templates")
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	r := sound()
	if err := unix.Ftruncate(fd, int64(r.Ranges[1].Hi)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, bytes.Repeat([]byte("code"), 1024), 4<<20); err != nil {
		t.Fatal(err)
	}
	b, err := platform.NewBacking(fd, r.Ranges)
	if err != nil {
		t.Fatal(err)
	}
	kept := &Template{Layout: r.Layout, State: r.State, Context: r.Context, Backing: b}
	if err := errors.Join(kept.Write(dir, "k"), kept.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "k"+memorySuffix)
}

// use opens the template, as a process that nobody has told anything.
func use(dir string) error {
	r, err := Read(dir, "k", "")
	if err != nil {
		return err
	}
	return r.Close()
}

// damage changes a byte of a file, in place. It takes back the time of the last
// change of the content, which anybody can set.
func damage(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("X"), 4<<20)
	if err := errors.Join(err, f.Close(), os.Chmod(file, 0o400), os.Chtimes(file, time.Time{}, info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryThatWasVerifiedIsVerifiedAgainOnceItHasChanged(t *testing.T) {
	dir, file := keep(t)
	if err := use(dir); err != nil {
		t.Fatal(err)
	}
	if marked(dir, "k") != "" {
		t.Error("a file that has just been written is marked: it may change unnoticed")
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	is, _, err := stamp(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := mark(dir, "k", is); err != nil {
		t.Fatal(err)
	}
	if got := marked(dir, "k"); got != is {
		t.Errorf("marked %q, want %q", got, is)
	}
	if err := use(dir); err != nil {
		t.Error(err)
	}
	damage(t, file)
	if err := use(dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged memory: %v", err)
	}
}

func TestMarksOfOthersAreNotBelieved(t *testing.T) {
	dir, file := keep(t)
	now, err := started()
	if err != nil {
		t.Fatal(err)
	}
	damage(t, file)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	is, _, err := stamp(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "k"+markSuffix)
	for what, tt := range map[string]struct {
		text string
		mode os.FileMode
		used bool
	}{
		"an earlier start of the machine": {is + " 00000000-0000-0000-0000-000000000000\n", 0o400, false},
		"another file":                    {"1" + is + " " + now + "\n", 0o400, false},
		"cut off":                         {is + " " + now, 0o400, false},
		"empty":                           {"", 0o400, false},
		"too long":                        {is + string(make([]byte, maxMark)) + " " + now + "\n", 0o400, false},
		"anybody may write it":            {is + " " + now + "\n", 0o666, false},
		"the right one":                   {is + " " + now + "\n", 0o400, true},
	} {
		if err := errors.Join(os.WriteFile(name, []byte(tt.text), 0o600), os.Chmod(name, tt.mode)); err != nil {
			t.Fatal(err)
		}
		if err := use(dir); errors.Is(err, ErrDamaged) == tt.used || tt.used && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
