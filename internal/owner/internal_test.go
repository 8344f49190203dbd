//go:build linux

package owner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Recheck looks at the name again, as Acquire does after locking.
func (l *Lock) Recheck() error { return l.take() }

func TestHolderIsFoundInLocks(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 00:19:7 0 EOF
2: FLOCK  ADVISORY  READ 12 00:19:7 0 EOF
3: FLOCK  ADVISORY  WRITE 13 08:01:7 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 00:19:7 0 EOF
4: FLOCK  ADVISORY  WRITE 15 00:19:7 0 EOF
garbage
5: FLOCK  ADVISORY  WRITE x 00:19:8 0 EOF
`
	for _, c := range []struct {
		dev, ino uint64
		want     int
	}{{0x19, 7, 15}, {0x801, 7, 13}, {0x19, 8, 0}, {0x19, 9, 0}} {
		if got := findHolder(strings.NewReader(locks), c.dev, c.ino); got != c.want {
			t.Errorf("%x:%d: %d, want %d", c.dev, c.ino, got, c.want)
		}
	}
}

func FuzzFindHolder(f *testing.F) {
	f.Add("4: FLOCK  ADVISORY  WRITE 15 00:19:7 0 EOF\n")
	f.Add("4: -> FLOCK  ADVISORY  WRITE 15 00:19:7 0 EOF")
	f.Add("1: FLOCK ADVISORY WRITE 99999999999999999999 00:19:7 0 EOF")
	f.Fuzz(func(_ *testing.T, s string) { findHolder(strings.NewReader(s), 0x19, 7) })
}

func TestCommandCannotReachTheTerminal(t *testing.T) {
	if got := printable("a\x1b[2Jé"); got != "a?[2J?" {
		t.Errorf("%q", got)
	}
}

func TestFolderIsTheSystemsOrTheUsers(t *testing.T) {
	dir := t.TempDir()
	runtime := filepath.Join(dir, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := folder(dir, runtime)
	if err != nil || got != dir {
		t.Errorf("usable system folder: %q, %v", got, err)
	}
	got, err = folder(filepath.Join(dir, "absent"), runtime)
	if err != nil || got != filepath.Join(runtime, "maf-sandbox") {
		t.Errorf("no system folder: %q, %v", got, err)
	}
	if err := errors.Join(os.Chmod(got, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err = folder(filepath.Join(dir, "absent"), runtime); !errors.Is(err, ErrUnsafe) {
		t.Errorf("open folder of the user: %v", err)
	}
	t.Setenv("TMPDIR", dir)
	got, err = folder(filepath.Join(dir, "absent"), "")
	if err != nil || filepath.Dir(got) != dir {
		t.Errorf("no runtime folder: %q, %v", got, err)
	}
}

func TestSweepRemovesWhatIsOldAndUnfinished(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{tempPrefix + "old", tempPrefix + "new", "maf-sandbox-x.lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o400); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "new") {
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	Sweep(dir)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
