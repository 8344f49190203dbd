package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// process is one of those that this process has started, directly or not.
type process struct{ pid, parent int }

// descendants gives the processes below this one, children before theirs.
func descendants() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		// The name, in parentheses, may hold anything (man 5 proc_pid_stat).
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(f[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []process
	for next := []int{os.Getpid()}; len(next) > 0; next = next[1:] {
		for _, pid := range children[next[0]] {
			all = append(all, process{pid, next[0]})
			next = append(next, pid)
		}
	}
	return all, nil
}

const (
	// quiet is how long the processes below this one must have done next to
	// nothing to be taken for ready, and quietShare how much that is.
	quiet      = 20 * time.Millisecond
	quietShare = time.Millisecond
	// patience bounds the wait for that.
	patience = 5 * time.Second
)

// settle waits until nothing is being started any more: spare workers do not
// tell that they are ready.
func settle(ctx context.Context) error {
	limit := time.Now().Add(patience)
	for before := time.Duration(-1); time.Now().Before(limit); {
		now, err := busy()
		if err != nil {
			return err
		}
		if before >= 0 && now-before < quietShare {
			return nil
		}
		before = now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quiet):
		}
	}
	return nil // on a machine that is never quiet the numbers show it
}

// busy is the processor time of all processes below this one.
func busy() (time.Duration, error) {
	all, err := descendants()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, p := range all {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
		if err != nil {
			continue // ended meanwhile
		}
		for _, t := range tasks {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", p.pid, t.Name()))
			if err != nil {
				continue
			}
			ns, _, _ := strings.Cut(string(b), " ")
			if n, err := strconv.ParseInt(ns, 10, 64); err == nil {
				sum += time.Duration(n)
			}
		}
	}
	return sum, nil
}

// proportional gives the proportional set size of a process in MiB: pages that
// it shares count in part. Workers can be read by root only.
func proportional(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("%w: only root can read the memory of jailed processes", ErrSkipped)
	}
	if err != nil {
		return 0, err
	}
	return kibibytes(b, "Pss:")
}

// available gives the memory that the machine has left, in MiB.
func available() (float64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return kibibytes(b, "MemAvailable:")
}

// kibibytes reads a line such as "Pss:    12 kB" and gives it in MiB.
func kibibytes(text []byte, label string) (float64, error) {
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == label {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("the kernel does not tell %s", label)
}
