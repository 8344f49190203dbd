//go:build unix

package selfupdate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder keeps other updates out of a folder until release is called, or
// the process ends. The lock is on the folder itself, so that nothing is left
// in it. Where folders cannot be locked, as on some network file systems, an
// update goes on without.
func lockFolder(dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, ErrBusy
	}
	return func() { _ = f.Close() }, nil
}
