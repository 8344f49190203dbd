package owner

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLocks bounds how much of /proc/locks is read, in bytes.
const maxLocks = 1 << 20

// holder finds who took the lock of a file, for messages only: /proc/locks
// shows the locks of the processes in this PID namespace.
func holder(dev, ino uint64) (pid int, command string) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0, ""
	}
	defer func() { _ = f.Close() }()
	if pid = findHolder(io.LimitReader(f, maxLocks), dev, ino); pid <= 0 {
		return 0, ""
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return pid, ""
	}
	return pid, printable(strings.TrimSuffix(string(b), "\n"))
}

// printable keeps what another process calls itself from doing anything to a
// terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// findHolder looks for a flock line of a file (man 5 proc_locks):
//
//	1: FLOCK  ADVISORY  WRITE 708 00:19:1234 0 EOF
//
// The device numbers are hexadecimal, the inode is decimal. Lines of waiters
// have "->" after the number.
func findHolder(r io.Reader, dev, ino uint64) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 8 || f[1] != "FLOCK" || f[3] != "WRITE" || f[5] != want {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			return 0
		}
		return pid
	}
	return 0
}
