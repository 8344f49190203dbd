package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxFile bounds how much of a control file is read, in bytes. The longest,
// memory.stat, has under 4 KiB.
const maxFile = 64 << 10

// ErrFormat says that the kernel's answer is not what its documentation says.
var ErrFormat = errors.New("control file in an unknown format")

// parseKeyed reads a "flat keyed" file: lines of a key, a space and a number.
// New kernels add keys (7.2: sock_throttled), so the order means nothing and
// unknown ones are kept.
func parseKeyed(s string) (map[string]uint64, error) {
	if len(s) > maxFile {
		return nil, fmt.Errorf("%w: %d bytes", ErrFormat, len(s))
	}
	m := make(map[string]uint64)
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if !ok || key == "" || err != nil {
			return nil, fmt.Errorf("%w: line %.80q", ErrFormat, line)
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("%w: key %.80q twice", ErrFormat, key)
		}
		m[key] = n
	}
	return m, nil
}

// parsePopulated reads cgroup.events.
func parsePopulated(s string) (bool, error) {
	m, err := parseKeyed(s)
	if err != nil {
		return false, err
	}
	n, ok := m["populated"]
	if !ok || n > 1 {
		return false, fmt.Errorf("%w: no populated flag in %.80q", ErrFormat, s)
	}
	return n == 1, nil
}

// MemoryEvents counts what happened to a group's memory, descendants included.
type MemoryEvents struct {
	// Max is how often the group was about to pass its limit.
	Max uint64
	// OOM is how often nothing could be reclaimed then.
	OOM uint64
	// OOMKill is how many processes were killed for it. How many of a group are
	// counted differs from run to run; a single one means that all are gone.
	OOMKill uint64
	// OOMGroupKill is how often the whole group was killed (Linux 5.17).
	OOMGroupKill uint64
}

// Killed says that the kernel enforced the limit by killing.
func (e MemoryEvents) Killed() bool { return e.OOMKill > 0 || e.OOMGroupKill > 0 }

func parseMemoryEvents(s string) (MemoryEvents, error) {
	m, err := parseKeyed(s)
	if err != nil {
		return MemoryEvents{}, err
	}
	for _, key := range []string{"max", "oom", "oom_kill"} {
		if _, ok := m[key]; !ok {
			return MemoryEvents{}, fmt.Errorf("%w: no key %q", ErrFormat, key)
		}
	}
	return MemoryEvents{Max: m["max"], OOM: m["oom"], OOMKill: m["oom_kill"], OOMGroupKill: m["oom_group_kill"]}, nil
}

// parseBytes reads a file that holds a number of bytes; "max" is given as the
// greatest number.
func parseBytes(s string) (uint64, error) {
	s = strings.TrimSuffix(s, "\n")
	if s == "max" {
		return 1<<64 - 1, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.80q", ErrFormat, s)
	}
	return n, nil
}
