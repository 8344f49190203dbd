//go:build linux

package owner_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

func acquire(t *testing.T, dir, namespace string) *owner.Lock {
	t.Helper()
	l, err := owner.Acquire(dir, namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	return l
}

func refused(t *testing.T, dir, namespace string, class error, text string) {
	t.Helper()
	l, err := owner.Acquire(dir, namespace)
	if err == nil {
		_ = l.Release()
	}
	if !errors.Is(err, class) || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v, want %v with %q", err, class, text)
	}
}

func TestNamespaceHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir, "shared")
	if !l.Owns() || l.Namespace() != "shared" {
		t.Error("the owner does not know it")
	}
	acquire(t, dir, "another")
	_, err := owner.Acquire(dir, "shared")
	var busy *owner.BusyError
	if !errors.As(err, &busy) || busy.Namespace != "shared" || busy.Path != l.Path() {
		t.Fatalf("error %v", err)
	}
	if err := errors.Join(l.Release(), l.Release()); err != nil {
		t.Fatal(err)
	}
	if l.Owns() || l.File() != nil {
		t.Error("still the owner after release")
	}
	acquire(t, dir, "shared")
}

func TestRefusalTellsWhoOwns(t *testing.T) {
	dir := t.TempDir()
	o := start(t, "own", dir)
	if s := o.says(t); s != "ready" {
		t.Fatal(s)
	}
	_, err := owner.Acquire(dir, "shared")
	var busy *owner.BusyError
	if !errors.As(err, &busy) {
		t.Fatal(err)
	}
	if busy.PID == 0 {
		t.Skip("needs a /proc/locks that shows the locks of this file system")
	}
	if busy.PID != o.cmd.Process.Pid || busy.Command == "" || !strings.Contains(err.Error(), fmt.Sprint("process ", busy.PID)) {
		t.Errorf("%+v, %v; want process %d", busy, err, o.cmd.Process.Pid)
	}
}

func TestKilledOwnerLeavesTheNamespaceFree(t *testing.T) {
	dir := t.TempDir()
	o := start(t, "own", dir)
	if s := o.says(t); s != "ready" {
		t.Fatal(s)
	}
	refused(t, dir, "shared", owner.ErrBusy, "owns the namespace")
	o.kill()
	acquire(t, dir, "shared")
}

func TestSupervisorKeepsTheNamespaceAfterItsHost(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir, "shared")
	supervisor := start(t, "bystander", dir, l.File())
	if s := supervisor.says(t); s != "ready" {
		t.Fatal(s)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "shared", owner.ErrBusy, "owns the namespace")
	supervisor.kill()
	acquire(t, dir, "shared")
}

func TestChildWithoutTheFileOwnsNothing(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir, "shared")
	bystander := start(t, "bystander", dir)
	if s := bystander.says(t); s != "ready" {
		t.Fatal(s)
	}
	if s := start(t, "own", dir).says(t); s != "busy" {
		t.Errorf("a child could acquire what its parent owns: %s", s)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	acquire(t, dir, "shared") // although the child still runs
}

func TestOneOfManyRacersWins(t *testing.T) {
	for round := range 5 {
		dir := t.TempDir()
		var racers []*other
		for range 12 {
			racers = append(racers, start(t, "race", dir))
		}
		for _, r := range racers {
			if _, err := r.in.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		winners := 0
		for _, r := range racers {
			switch s := r.says(t); s {
			case "ready":
				winners++
			case "busy":
			default:
				t.Fatal(s)
			}
		}
		for _, r := range racers {
			r.kill()
		}
		if winners != 1 {
			t.Fatalf("round %d: %d winners", round, winners)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Fatalf("round %d: files left: %v, %v", round, left, err)
		}
	}
}

func TestLockFileIsEmptyAndForItsOwnerToReadOnly(t *testing.T) {
	dir := t.TempDir()
	defer syscall.Umask(syscall.Umask(0o777))
	l := acquire(t, dir, "shared")
	info, err := os.Stat(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o400 || info.Size() != 0 {
		t.Errorf("mode %v, %d bytes", info.Mode(), info.Size())
	}
	flags, err := unix.FcntlInt(l.File().Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v", flags, err)
	}
}

func TestFileThatIsNoLockIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := func(namespace string) string { return filepath.Join(dir, "maf-sandbox-"+namespace+".lock") }
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		make       func(path string) error
	}{
		{"symlink", "is a symbolic link", func(p string) error { return os.Symlink(victim, p) }},
		{"dangling", "is a symbolic link", func(p string) error { return os.Symlink("nowhere", p) }},
		{"hardlink", "has 2 names", func(p string) error { return os.Link(victim, p) }},
		{"folder", "is not a regular file", func(p string) error { return os.Mkdir(p, 0o755) }},
		{"fifo", "is not a regular file", func(p string) error { return unix.Mkfifo(p, 0o444) }},
		{"socket", "is not a regular file", func(p string) error {
			l, err := net.Listen("unix", p)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}},
		{"writable", "can be written to", func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o644), os.Chmod(p, 0o646)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.make(path(c.name)); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, c.name, owner.ErrUnsafe, c.text)
			if _, err := os.Lstat(path(c.name)); err != nil {
				t.Errorf("what was refused is gone: %v", err)
			}
		})
	}
}

func TestReplacedFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	l := acquire(t, dir, "shared")
	for name, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(p string) error { return errors.Join(os.Remove(p), os.WriteFile(p, nil, 0o444)) },
		"linked":   func(p string) error { return os.Link(p, p+".2") },
	} {
		t.Run(name, func(t *testing.T) {
			l := acquire(t, dir, name)
			if err := change(l.Path()); err != nil {
				t.Fatal(err)
			}
			if err := l.Recheck(); !errors.Is(err, owner.ErrUnsafe) {
				t.Fatalf("error %v, want ErrUnsafe", err)
			}
		})
	}
	if err := l.Recheck(); err != nil {
		t.Fatalf("an untouched lock: %v", err)
	}
}

func TestFolderThatOthersControlIsRefused(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, mode)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	refused(t, "relative", "x", owner.ErrUnsafe, "absolute")
	refused(t, folder("open", 0o777), "x", owner.ErrUnsafe, "without the sticky bit")
	acquire(t, folder("sticky", 0o777|os.ModeSticky), "x")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(dir, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	refused(t, file, "x", owner.ErrUnsafe, "not a folder")
	refused(t, filepath.Join(dir, "link"), "x", owner.ErrUnsafe, "symbolic link")
	refused(t, filepath.Join(dir, "absent"), "x", os.ErrNotExist, "absent")
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a folder of another user")
	}
	foreign := folder("foreign", 0o755)
	if err := os.Chown(foreign, 12345, -1); err != nil {
		t.Fatal(err)
	}
	refused(t, foreign, "x", owner.ErrUnsafe, "belongs to user 12345")
}

// stranger is a user who is nobody else on the machine.
const stranger = 61234

// reachable is a folder of that mode to which everybody has a way.
func reachable(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, mode), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for d := os.TempDir(); d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode()&1 == 0 {
			t.Skipf("needs a temporary folder to which other users have a way; %s has none", d)
		}
	}
	return dir
}

func TestAnotherUserCannotHoldTheLock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	// As in /run/lock, where everybody may make files.
	dir := reachable(t, 0o777|os.ModeSticky)
	l := acquire(t, dir, "shared")
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if said := startAs(t, stranger, "own", dir).says(t); !strings.Contains(said, "cannot be opened by this user") {
		t.Errorf("another user could open the file: %s", said)
	}
	acquire(t, dir, "shared")
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a file away")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "maf-sandbox-shared.lock")
	if err := errors.Join(os.WriteFile(file, nil, 0o400), os.Chown(file, stranger, -1)); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "shared", owner.ErrUnsafe, "belongs to user 61234")
}

func TestAFileThatRootMadeForAllIsShared(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make the file and to be another user")
	}
	dir := reachable(t, 0o755)
	file := filepath.Join(dir, "maf-sandbox-shared.lock")
	if err := errors.Join(os.WriteFile(file, nil, 0o444), os.Chmod(file, 0o444)); err != nil {
		t.Fatal(err)
	}
	first := startAs(t, stranger, "own", dir)
	if said := first.says(t); said != "ready" {
		t.Fatal(said)
	}
	refused(t, dir, "shared", owner.ErrBusy, "owns the namespace")
	first.kill()
	acquire(t, dir, "shared")
}

func TestNamesOfNamespaces(t *testing.T) {
	for name, ok := range map[string]bool{
		"default": true, "a": true, "A-b_c.9": true, strings.Repeat("x", owner.MaxNamespace): true,
		"": false, ".": false, "..": false, ".hidden": false, "-x": false, "_": false, "a/b": false, "../a": false,
		"a\x00b": false, "a b": false, "é": false, "a\n": false, strings.Repeat("x", owner.MaxNamespace+1): false,
	} {
		if err := owner.CheckNamespace(name); (err == nil) != ok || (err != nil && !errors.Is(err, owner.ErrNamespace)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	refused(t, t.TempDir(), "../x", owner.ErrNamespace, "..")
}

func TestPrivateNamespaceLeavesNothing(t *testing.T) {
	a, err := owner.AcquirePrivate()
	if err != nil {
		t.Fatal(err)
	}
	b, err := owner.AcquirePrivate()
	if err != nil {
		t.Fatal(err)
	}
	if a.Namespace() == b.Namespace() || owner.CheckNamespace(a.Namespace()) != nil || a.Path() != "" || !a.Owns() {
		t.Errorf("%q and %q, path %q", a.Namespace(), b.Namespace(), a.Path())
	}
	if err := errors.Join(a.Release(), b.Release()); err != nil {
		t.Fatal(err)
	}
}
