package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Where users have their folders: a folder of the system that is there from the
// start of the machine until its end, whoever is logged in and whatever the
// environment says, so that all processes of a user find the same one. Root's is
// one that nobody else can make anything in.
const (
	systemFolder = "/run/lock"
	rootFolder   = "/run"
)

// Folder gives the folder for lock files of this user, which nobody else can
// look into: maf-sandbox-UID below /run/lock (root's is below /run), where this
// process can make one there; otherwise maf-sandbox below XDG_RUNTIME_DIR, or
// maf-sandbox-UID in the temporary folder. A namespace is its user's own.
//
// Whoever can open a lock file can hold its lock, which takes no more than the
// right to read. Therefore the folder belongs to the user and is closed to all
// others, or it is an *UnsafeError: nobody else gets a way round.
func Folder() (string, error) {
	system := systemFolder
	if os.Geteuid() == 0 {
		system = rootFolder
	}
	return folder(system, os.Getenv("XDG_RUNTIME_DIR"))
}

func folder(system, runtime string) (string, error) {
	own := fmt.Sprintf("maf-sandbox-%d", os.Geteuid())
	dir := filepath.Join(os.TempDir(), own)
	switch {
	case usable(system):
		dir = filepath.Join(system, own)
	case filepath.IsAbs(runtime):
		dir = filepath.Join(runtime, "maf-sandbox")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, checkPrivate(dir)
}

// usable says whether this process can make files in a folder that nobody else
// can take away.
func usable(dir string) bool {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil && checkFolder(dir) == nil
}

// checkPrivate refuses a folder that is not of this user alone. Its mode is never
// changed: what others may have put into it would stay.
func checkPrivate(dir string) error {
	st, err := look(dir)
	switch {
	case err != nil:
		return err
	case int(st.Uid) != os.Geteuid():
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("belongs to user %d; it has to belong to user %d alone: remove it as its owner or root", st.Uid, os.Geteuid())}
	case st.Mode&0o077 != 0:
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("is open to others (mode %04o); it has to be closed to them: remove it", st.Mode&0o7777)}
	}
	return nil
}

// checkFolder refuses a folder in which somebody other than root and this user
// could take the lock file away from under its name.
func checkFolder(dir string) error {
	st, err := look(dir)
	switch {
	case err != nil:
		return err
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("belongs to user %d; it has to belong to root or user %d", st.Uid, os.Geteuid())}
	case st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("can be written to by others (mode %04o) without the sticky bit", st.Mode&0o7777)}
	}
	return nil
}

// look finds out about a folder, and refuses what is none.
func look(dir string) (st unix.Stat_t, err error) {
	if !filepath.IsAbs(dir) {
		return st, &UnsafeError{Path: dir, Problem: "is not an absolute path"}
	}
	if err := unix.Lstat(dir, &st); err != nil {
		return st, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return st, nil
	case unix.S_IFLNK:
		return st, &UnsafeError{Path: dir, Problem: "is a symbolic link"}
	}
	return st, &UnsafeError{Path: dir, Problem: "is not a folder"}
}

// staleAfter is how old an unfinished file is taken for left behind: writing
// one takes less than a second.
const staleAfter = time.Hour

// sweep removes unfinished files that killed processes have left in a folder of
// locks. What cannot be removed stays.
func sweep(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = os.Remove(name)
		}
	}
}
