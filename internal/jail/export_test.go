//go:build linux && amd64

package jail

import "golang.org/x/sys/unix"

// EnterSecondWall does all but load the filter.
func EnterSecondWall() error {
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	if _, err := dropCapabilities(); err != nil {
		return err
	}
	_, err := restrictLandlock()
	return err
}
