//go:build unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tempPrefix starts the names of files that are being written.
const tempPrefix = ".new-"

// Folder makes a folder for this user alone, or refuses one that is not. It
// never changes the mode of a folder that is there: what others may have put
// into it would stay.
func Folder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	bad := func(problem, mend string) error {
		return &UnsafeError{Path: dir, Problem: problem, Mend: mend + " " + quote(dir)}
	}
	switch mode := st.Mode; {
	case mode&unix.S_IFMT == unix.S_IFLNK:
		return bad("is a symbolic link", "rm")
	case mode&unix.S_IFMT != unix.S_IFDIR:
		return bad("is not a folder", "rm")
	case int(st.Uid) != os.Geteuid():
		return bad(fmt.Sprintf("belongs to user %d", st.Uid), "sudo rm -r")
	case mode&0o077 != 0:
		return bad(fmt.Sprintf("is open to other users (mode %03o)", mode&0o777), "rm -r")
	}
	return nil
}

// quote spells a path so that a shell takes it as one word.
func quote(p string) string {
	return "'" + strings.ReplaceAll(p, "'", `'\''`) + "'"
}

// Open opens a file for reading and refuses one that another user owns or can
// write to. The check is made on the open descriptor.
func Open(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	problem := ""
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		problem = "is not a regular file"
	case int(st.Uid) != os.Geteuid():
		problem = fmt.Sprintf("belongs to user %d", st.Uid)
	case st.Mode&0o022 != 0:
		problem = "can be written to by other users"
	}
	if problem != "" {
		_ = f.Close()
		return nil, &UnsafeError{Path: name, Problem: problem, Mend: "rm " + quote(name)}
	}
	return f, nil
}

// staleAfter is how old an unfinished file must be for Sweep to take it as
// left behind: nothing here takes longer than seconds to write.
const staleAfter = time.Hour

// Sweep removes what writers that were killed have left in a folder. It is a
// convenience: what cannot be removed stays.
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

// Create starts a file that Publish will put in place under its name.
func Create(dir string) (*os.File, error) {
	return os.CreateTemp(dir, tempPrefix+"*")
}

// Publish closes a file made by Create and gives it its name in one step, with
// mode 0400.
func Publish(f *os.File, name string) error {
	err := errors.Join(f.Chmod(0o400), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
