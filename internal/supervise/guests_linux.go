package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// single is the cage of one worker under rlimit. A worker that is ready starts
// no process any more, but may have started one before: its traced guest, which
// the kernel kills together with the worker and which then still has to end.
type single struct {
	rlimit
	// guests are pidfds.
	guests []*os.File
}

// ready finds the processes that the worker has started.
func (c *single) ready(pid int) error {
	pids, err := startedBy(pid)
	if err != nil {
		return fmt.Errorf("processes of a worker: %w", err)
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("processes of a worker: pidfd: %w", err)
		}
		c.guests = append(c.guests, os.NewFile(uintptr(fd), "pidfd of a guest"))
	}
	return nil
}

// remove waits until they have ended.
func (c *single) remove(ctx context.Context) error {
	for len(c.guests) > 0 {
		if err := awaitEnd(ctx, int(c.guests[0].Fd())); err != nil {
			return err
		}
		_ = c.guests[0].Close()
		c.guests = c.guests[1:]
	}
	return nil
}

// awaitEnd waits until a process has ended or the context.
func awaitEnd(ctx context.Context, pidfd int) error {
	for {
		limit := removeTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = max(0, time.Until(end))
		}
		// Up to a millisecond more, so as not to ask in a circle at the end.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(limit.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for a guest's process: %w", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("a guest's process has not ended: %w", ctx.Err())
		}
	}
}

// startedBy are the processes whose parent is pid.
func startedBy(pid int) (pids []int, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		return searchStartedBy(pid) // a kernel without CONFIG_PROC_CHILDREN
	}
	for _, name := range tasks {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return nil, err
		}
		for f := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("%s has %.40q", name, f)
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}

// searchStartedBy finds them among all processes.
func searchStartedBy(pid int) (pids []int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state parent ...; the name may hold anything.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 2 || f[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, child)
		}
	}
	return pids, nil
}
