//go:build unix

package rundir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblock keeps an open from waiting when a regular file was replaced by a
// named pipe.
const nonblock = unix.O_NONBLOCK

// Default is the folder when none is configured; every implementation of the
// protocol must find the same.
func Default() string {
	if dir := os.Getenv(EnvDir); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, folderName)
	}
	return filepath.Join(tempDir(), folderName+"-"+strconv.Itoa(os.Getuid()))
}

// tempDir is the first of the places that Python's tempfile looks at, and in
// its order, which can be used.
func tempDir() string {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "."
	}
	for _, dir := range []string{os.Getenv("TMPDIR"), os.Getenv("TEMP"), os.Getenv("TMP"), "/tmp", "/var/tmp", "/usr/tmp"} {
		if dir == "" {
			continue
		}
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
			continue
		}
		if filepath.IsAbs(dir) {
			return dir
		}
		return filepath.Join(cwd, dir)
	}
	return cwd
}

// foreign says why the folder is not this user's alone. The real user counts,
// as for the peers in Python.
func foreign(info fs.FileInfo) string {
	st, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !known || int(st.Uid) != os.Getuid():
		return "directory is not owned by this user"
	case info.Mode().Perm()&0o077 != 0:
		return "directory is not private"
	}
	return ""
}

// makePrivate makes a folder for this user alone.
func makePrivate(path string) error { return os.Mkdir(path, 0o700) }

// listProblem finds nothing: owner and mode are the whole truth here.
func listProblem(*os.File) (string, error) { return "", nil }

// locksOutliveRename says that a file's lock tells whether its host lives.
const locksOutliveRename = true

// lock takes the file's lock or fails at once. It lasts until the file is
// closed or the process ends.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// isFree says whether no process has the file's lock. It asks for a shared one,
// so that consoles that look at the same time do not take each other for hosts;
// an error that is none of the lock's says nothing, and then the file is not
// free.
func isFree(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}
