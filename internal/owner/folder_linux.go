package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// systemFolder is where distributions keep lock files: on most a folder that
// everybody may write to, with the sticky bit; on some for root alone.
const systemFolder = "/run/lock"

// Folder gives the folder for lock files of this user: /run/lock where this
// process can make files there, so that all users of the machine share the
// namespaces; otherwise a folder of the user alone below XDG_RUNTIME_DIR or the
// temporary folder, and namespaces are the user's own.
func Folder() (string, error) {
	return folder(systemFolder, os.Getenv("XDG_RUNTIME_DIR"))
}

func folder(system, runtime string) (string, error) {
	if unix.Faccessat(unix.AT_FDCWD, system, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil && checkFolder(system) == nil {
		return system, nil
	}
	dir := filepath.Join(runtime, "maf-sandbox")
	if !filepath.IsAbs(runtime) {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("maf-sandbox-%d", os.Geteuid()))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, checkFolder(dir)
}

// checkFolder refuses a folder in which somebody other than root and this user
// could take the lock file away from under its name.
func checkFolder(dir string) error {
	if !filepath.IsAbs(dir) {
		return &UnsafeError{Path: dir, Problem: "is not an absolute path"}
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch mode := st.Mode; {
	case mode&unix.S_IFMT == unix.S_IFLNK:
		return &UnsafeError{Path: dir, Problem: "is a symbolic link"}
	case mode&unix.S_IFMT != unix.S_IFDIR:
		return &UnsafeError{Path: dir, Problem: "is not a folder"}
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("belongs to user %d; it has to belong to root or user %d", st.Uid, os.Geteuid())}
	case mode&0o022 != 0 && mode&unix.S_ISVTX == 0:
		return &UnsafeError{Path: dir, Problem: fmt.Sprintf("can be written to by others (mode %04o) without the sticky bit", mode&0o7777)}
	}
	return nil
}

// staleAfter is how old an unfinished file is taken for left behind: writing
// one takes less than a second.
const staleAfter = time.Hour

// Sweep removes unfinished files that killed processes have left in a folder of
// locks. What cannot be removed stays.
func Sweep(dir string) {
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
