package jail

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOthers closes every descriptor but those of keep and of the runtime. It
// gives the runtime's and the highest one kept.
func closeOthers(keep []int) (runtimes []int, highest int, err error) {
	if runtimes, err = runtimeDescriptors(); err != nil {
		return nil, 0, err
	}
	all := slices.Concat(keep, runtimes)
	slices.Sort(all)
	all = slices.Compact(all)
	next := 0
	for _, fd := range all {
		if fd > next {
			if err := unix.CloseRange(uint(next), uint(fd-1), 0); err != nil {
				return nil, 0, err
			}
		}
		next = fd + 1
	}
	return runtimes, max(next-1, 0), unix.CloseRange(uint(next), math.MaxUint32, 0)
}

// Descriptors are all that this process has open, but for the one that it takes to
// find out.
func Descriptors() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, fmt.Errorf("/proc/self/fd has %q", e.Name())
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// runtimeDescriptors finds the descriptors of the runtime's network poller,
// which it gives no other way to. Those that were inherited do not count: a
// descriptor that has survived an exec is not marked close-on-exec, while the
// runtime's are. A poller that this program made itself is taken for the
// runtime's; it is of no use but to wait.
func runtimeDescriptors() ([]int, error) {
	all, err := Descriptors()
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, fd := range all {
		target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return nil, err
		}
		if target != "anon_inode:[eventpoll]" && target != "anon_inode:[eventfd]" {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			return nil, err
		}
		if flags&unix.FD_CLOEXEC != 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}
