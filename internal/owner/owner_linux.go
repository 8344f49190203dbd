package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// prefix starts the names of all lock files, tempPrefix of unfinished ones.
const (
	prefix     = "maf-sandbox-"
	suffix     = ".lock"
	tempPrefix = ".maf-sandbox-new-"
)

// lockMode lets its owner open the file for reading, which is all that locking
// needs, and nobody change it.
const lockMode = 0o400

// Lock is the ownership of a namespace.
type Lock struct {
	namespace, path string
	pid             int

	mu   sync.Mutex
	file *os.File // nil once released
}

// Acquire makes this process the owner of a namespace whose lock file is in
// dir. It does not wait: when somebody else is the owner, the error is a
// *BusyError.
func Acquire(dir, namespace string) (*Lock, error) {
	if err := CheckNamespace(namespace); err != nil {
		return nil, err
	}
	if err := checkFolder(dir); err != nil {
		return nil, fmt.Errorf("own namespace %q: %w", namespace, err)
	}
	l := &Lock{namespace: namespace, path: filepath.Join(dir, prefix+namespace+suffix), pid: os.Getpid()}
	var err error
	if l.file, err = openOrPublish(dir, l.path); err != nil {
		return nil, fmt.Errorf("own namespace %q: %w", namespace, err)
	}
	if err := l.take(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("own namespace %q: %w", namespace, err)
	}
	return l, nil
}

// take locks the open file and makes sure that it is the one of that name.
func (l *Lock) take() error {
	var st, now unix.Stat_t
	fd := int(l.file.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: l.path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return &UnsafeError{Path: l.path, Problem: "is not a regular file"}
	case st.Nlink != 1:
		return &UnsafeError{Path: l.path, Problem: fmt.Sprintf("has %d names; a lock file has exactly one", st.Nlink)}
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		// Who owns a file can open it, hold its lock, and in a folder with the
		// sticky bit replace it.
		return &UnsafeError{Path: l.path, Problem: fmt.Sprintf("belongs to user %d; a lock file belongs to root or user %d", st.Uid, os.Geteuid())}
	case st.Mode&0o222 != 0:
		return &UnsafeError{Path: l.path, Problem: fmt.Sprintf("can be written to (mode %03o); a lock file has mode %03o", st.Mode&0o777, lockMode)}
	}
	switch err := flock(fd); {
	case errors.Is(err, unix.EWOULDBLOCK):
		b := &BusyError{Namespace: l.namespace, Path: l.path}
		b.PID, b.Command = holder(st.Dev, st.Ino)
		return b
	case err != nil:
		return &os.PathError{Op: "flock", Path: l.path, Err: err}
	}
	err := unix.Lstat(l.path, &now)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "lstat", Path: l.path, Err: err}
	}
	if err != nil || now.Dev != st.Dev || now.Ino != st.Ino || now.Nlink != 1 {
		return &UnsafeError{Path: l.path, Problem: "was replaced while it was being locked"}
	}
	return nil
}

func flock(fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Namespace is what is owned.
func (l *Lock) Namespace() string { return l.namespace }

// Path is the lock file.
func (l *Lock) Path() string { return l.path }

// File gives the open lock file, to be passed on to a process that must keep
// the namespace owned (exec.Cmd.ExtraFiles). It must not be closed by the
// caller and is nil once released.
func (l *Lock) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// Owns says whether this process is the owner: it acquired the lock and has not
// released it. In a copy of the process made by fork it is false.
func (l *Lock) Owns() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file != nil && l.pid == os.Getpid()
}

// Release closes this process's descriptor. The namespace stays owned as long
// as another process has a copy. The file stays. It may be called again.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// openOrPublish opens the lock file, making it first if there is none.
func openOrPublish(dir, path string) (*os.File, error) {
	f, err := open(path)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if err := publish(dir, path); err != nil {
		return nil, err
	}
	return open(path)
}

// open opens without following a link and without waiting.
func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &UnsafeError{Path: path, Problem: "is a symbolic link"}
	case errors.Is(err, unix.EACCES):
		return nil, &UnsafeError{Path: path, Problem: "cannot be opened by this user: it is somebody else's"}
	case errors.Is(err, unix.ENXIO):
		return nil, &UnsafeError{Path: path, Problem: "is not a regular file"} // a socket
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// publish makes a lock file under a temporary name and gives it its name. That
// somebody else was faster is no error: theirs is as good.
func publish(dir, path string) error {
	sweep(dir)
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	temp := f.Name()
	err = errors.Join(f.Chmod(lockMode), f.Close())
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EEXIST) {
			return os.Remove(temp)
		}
		err = &os.LinkError{Op: "rename", Old: temp, New: path, Err: err}
	}
	return errors.Join(err, os.Remove(temp))
}
