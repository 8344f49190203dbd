//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ownFile checks a file of the store that is about to be trusted.
func ownFile(name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s: %w", name, damaged("not a regular file"))
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("%s: %w", name, damaged("belongs to user %d", st.Uid))
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s: %w", name, damaged("other users can write to it"))
	}
	return nil
}

// writeFile replaces a small file in one step.
func writeFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), tempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 25 * time.Millisecond

// lock takes the lock file, waiting for whoever holds it. waiting is called
// once if that takes time.
func lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for told := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			// Closing the only descriptor gives the lock back.
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
