package worker

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// dataLimit is what RLIMIT_DATA has to be for this process and its guests'
// processes to stay within what it was for this one alone; 0: as it is. Each
// inherited the limit in full, but what a guest's process has when it is there
// is all that it will ever have: it makes no system calls.
func dataLimit(children []platform.Child) (uint64, error) {
	var own unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_DATA, nil, &own); err != nil {
		return 0, fmt.Errorf("limit of data size: %w", err)
	}
	if len(children) == 0 || own.Max == unix.RLIM_INFINITY {
		return 0, nil
	}
	left := own.Max
	for _, c := range children {
		has, err := dataSize(c.PID)
		if err != nil {
			return 0, err
		}
		left -= min(has, left)
	}
	return max(left, 1), nil // 1: nothing more
}

// dataSize is what the kernel counts of a process for RLIMIT_DATA, in bytes, and
// its stack (man 5 proc_pid_statm).
func dataSize(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("data size of the guest's process: %w", err)
	}
	const data = 5
	f := strings.Fields(string(b))
	if len(f) <= data {
		return 0, fmt.Errorf("data size of the guest's process: /proc says %.80q", b)
	}
	pages, err := strconv.ParseUint(f[data], 10, 48)
	if err != nil {
		return 0, fmt.Errorf("data size of the guest's process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
