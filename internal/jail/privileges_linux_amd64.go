package jail

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// maxCapability is more than any kernel has: they are 64-bit sets.
const maxCapability = 63

// dropCapabilities empties the bounding set where that is permitted, and the
// ambient, inheritable, permitted and effective sets always.
func dropCapabilities() (bounding bool, err error) {
	caps, err := capabilities()
	if err != nil {
		return false, err
	}
	if bounding = caps[0].Effective&(1<<unix.CAP_SETPCAP) != 0; bounding {
		for c := range uintptr(maxCapability + 1) {
			// The first that the kernel does not know ends the list.
			set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
			if err != nil {
				break
			}
			if set == 0 {
				continue // gone already; each costs a stop of all threads
			}
			if err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
				return false, fmt.Errorf("bounding set, %d: %w", c, err)
			}
		}
	}
	err = onAllThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // before Linux 4.3 there are none
		return bounding, fmt.Errorf("ambient set: %w", err)
	}
	return bounding, clearCapabilities()
}

func confirmCapabilities() error {
	caps, err := capabilities()
	if err != nil {
		return err
	}
	if caps != [2]unix.CapUserData{} {
		return fmt.Errorf("capabilities: %w", errUnconfirmed)
	}
	return nil
}

// restrictLandlock denies all that Landlock can deny, on all threads. It gives
// the ABI version reached.
func restrictLandlock() (abi int, err error) {
	abi, err = ll.LandlockGetABIVersion()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil // not built in, or not started
	}
	if err != nil {
		return 0, err
	}
	c := landlock.V11
	// Not signals: see the package's documentation.
	c.Scoped = ll.ScopeAbstractUnixSocket
	if err := c.BestEffort().Restrict(); err != nil {
		return 0, err
	}
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("files: %w", errUnconfirmed)
	}
	return min(abi, newestLandlock), nil
}

// newestLandlock is the ABI version of the configuration above.
const newestLandlock = 11
