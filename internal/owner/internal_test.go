//go:build linux

package owner

import (
	"errors"
	"fmt"
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

func TestFolderIsTheUsersAlone(t *testing.T) {
	dir := t.TempDir()
	runtime, system, absent := filepath.Join(dir, "run"), filepath.Join(dir, "system"), filepath.Join(dir, "absent")
	if err := errors.Join(os.Mkdir(runtime, 0o700), os.Mkdir(system, 0o700), os.Chmod(system, 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	own := fmt.Sprintf("maf-sandbox-%d", os.Geteuid())
	for name, c := range map[string]struct{ system, runtime, want string }{
		"below the system's":                       {system, runtime, filepath.Join(system, own)},
		"below the system's without another":       {system, "", filepath.Join(system, own)},
		"no system's":                              {absent, runtime, filepath.Join(runtime, "maf-sandbox")},
		"a runtime folder that is no absolute one": {absent, "run", filepath.Join(dir, own)},
		"neither": {absent, "", filepath.Join(dir, own)},
	} {
		for range 2 { // made, and found
			got, err := folder(c.system, c.runtime)
			if err != nil || got != c.want {
				t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
			}
			if info, err := os.Stat(got); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
}

func TestAFolderThatIsNotTheUsersAloneIsRefusedAndNotChanged(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		root bool // it takes root to prepare
		make func(p string) error
	}{
		"open to a group":  {"is open to others (mode 0750)", false, func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o750)) }},
		"open to all":      {"is open to others", false, func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o711)) }},
		"a link":           {"is a symbolic link", false, func(p string) error { return errors.Join(os.Mkdir(p+"2", 0o700), os.Symlink(p+"2", p)) }},
		"a link to none":   {"is a symbolic link", false, func(p string) error { return os.Symlink(p+"2", p) }},
		"a file":           {"is not a folder", false, func(p string) error { return os.WriteFile(p, nil, 0o600) }},
		"somebody else's":  {"belongs to user 12345", true, func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 12345, -1)) }},
		"open and foreign": {"belongs to user 12345", true, func(p string) error { return errors.Join(os.Mkdir(p, 0o777), os.Chown(p, 12345, -1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("needs root to make a folder of another user")
			}
			system := t.TempDir()
			p := filepath.Join(system, fmt.Sprintf("maf-sandbox-%d", os.Geteuid()))
			if err := errors.Join(os.Chmod(system, 0o777|os.ModeSticky), c.make(p)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(p)
			if err != nil {
				t.Fatal(err)
			}
			// No way round it either: the runtime folder would be another namespace.
			if _, err := folder(system, t.TempDir()); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v", err)
			}
			if after, err := os.Lstat(p); err != nil || after.Mode() != before.Mode() || !os.SameFile(before, after) {
				t.Errorf("it was changed: %v, %v", after, err)
			}
		})
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
	l, err := Acquire(dir, "new") // whoever makes a file sweeps
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release() }()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
}
