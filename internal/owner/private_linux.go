package owner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AcquirePrivate owns a namespace that nobody else can ask for: a random name
// and a lock file without any name, so that nothing is left behind however the
// process ends. It is for programs that make sandboxes for one command; other
// processes cannot purge them, and the supervisor removes them when the lock's
// first holder dies.
//
// The exception to "never removed" is sound because the name is random: nobody
// opens a file of that name a second time.
func AcquirePrivate() (*Lock, error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	name := "private-" + hex.EncodeToString(id[:])
	// In memory, close-on-exec: no folder has to be writable.
	fd, err := unix.MemfdCreate("maf-sandbox-"+name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("maf-sandbox-"+name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("own a private namespace: %w", err)
	}
	l := &Lock{namespace: name, file: os.NewFile(uintptr(fd), name), pid: os.Getpid()}
	if err := flock(fd); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("own a private namespace: %w", err)
	}
	return l, nil
}
