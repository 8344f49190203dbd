package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Errors for errors.Is.
var (
	// ErrLimit says that a limit cannot be had.
	ErrLimit = errors.New("limit refused")
	// ErrTaken says that another process has charge of a group.
	ErrTaken = errors.New("group is in another's charge")
	// ErrName says that a name cannot be a group's.
	ErrName = errors.New("not a group's name")
)

// MaxName is the longest name of a group, in bytes.
const MaxName = 64

// Limits are what a group may use.
type Limits struct {
	// MemoryMax is memory in bytes, swap excluded (none may be used); it is
	// rounded down to whole pages. Zero: no limit, and no memory controller is
	// needed.
	MemoryMax int64
	// Tasks is how many threads, of all processes, there may be. Zero: any
	// number. It holds only where Root.CountsTasks.
	Tasks int
}

// Group is one control group. Its methods may be called from any goroutine.
//
// Whoever holds a Group has charge of it, by a lock on its folder that ends with
// the process: that is how Sweep knows which are left behind.
type Group struct {
	root *os.File
	name string

	// mu is held for reading while the number of dir's descriptor is in use: once
	// closed, it may be that of another group, to be killed by mistake.
	mu  sync.RWMutex
	dir *os.File
}

// within calls f with the descriptor of the group's folder, or returns
// os.ErrClosed. f does not wait for anything.
func (g *Group) within(f func(fd int) error) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	fd := int(g.dir.Fd())
	if fd < 0 {
		return fmt.Errorf("group %q: %w", g.name, os.ErrClosed)
	}
	return f(fd)
}

func (g *Group) write(name, value string) error {
	return g.within(func(fd int) error { return writeFile(fd, name, value) })
}

func (g *Group) read(name string) (s string, err error) {
	err = g.within(func(fd int) (err error) { s, err = readFile(fd, name); return err })
	return s, err
}

// New makes a group and sets its limits. On an error nothing is left.
func (r *Root) New(name string, l Limits) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	memory, err := l.pages()
	if err != nil {
		return nil, err
	}
	if memory > 0 && r.memory != nil {
		return nil, r.memory
	}
	if err := unix.Mkdirat(int(r.dir.Fd()), prefix+name, 0o700); err != nil {
		return nil, fmt.Errorf("make group: %w", &os.PathError{Op: "mkdir", Path: filepath.Join(r.path, prefix+name), Err: err})
	}
	g, err := r.Attach(name)
	if err == nil {
		if err = g.limit(r.values(memory, l.Tasks)); err == nil {
			return g, nil
		}
		_ = g.Close()
	}
	return nil, errors.Join(fmt.Errorf("set up group %q: %w", name, err), unix.Unlinkat(int(r.dir.Fd()), prefix+name, unix.AT_REMOVEDIR))
}

// Attach takes charge of a group that exists. ErrTaken: another process has it.
func (r *Root) Attach(name string) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	dir, err := openFile(int(r.dir.Fd()), prefix+name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrTaken, filepath.Join(r.path, prefix+name))
		}
		return nil, fmt.Errorf("lock group: %w", err)
	}
	return &Group{root: r.dir, name: name, dir: dir}, nil
}

func checkName(name string) error {
	ok := name != "" && len(name) <= MaxName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%w: %.80q; 1 to %d letters, digits, '-' and '_'", ErrName, name, MaxName)
	}
	return nil
}

// pages rounds the memory limit down.
func (l Limits) pages() (int64, error) {
	page := int64(os.Getpagesize())
	if l.Tasks < 0 {
		return 0, fmt.Errorf("%w: %d threads", ErrLimit, l.Tasks)
	}
	if l.MemoryMax < 0 || l.MemoryMax > 0 && l.MemoryMax < page {
		return 0, fmt.Errorf("%w: %d bytes of memory; at least one page of %d bytes", ErrLimit, l.MemoryMax, page)
	}
	return l.MemoryMax / page * page, nil
}

// value is what a control file is to hold.
type value struct{ name, value string }

// values are what the limits take.
func (r *Root) values(memory int64, tasks int) (v []value) {
	if tasks > 0 && r.pids {
		v = append(v, value{"pids.max", strconv.Itoa(tasks)})
	}
	if memory > 0 {
		v = append(v, value{"memory.swap.max", "0"}, value{"memory.oom.group", "1"}, value{"memory.max", strconv.FormatInt(memory, 10)})
	}
	return v
}

// limit writes the limits and reads them back: the kernel may round, and a
// file that takes a value need not keep it.
func (g *Group) limit(values []value) error {
	if err := g.within(func(fd int) error { return unix.Faccessat(fd, "cgroup.kill", unix.W_OK, unix.AT_EACCESS) }); err != nil {
		return fmt.Errorf("cgroup.kill: %w", err)
	}
	for _, f := range values {
		err := g.write(f.name, f.value)
		if f.name == "memory.swap.max" && errors.Is(err, os.ErrNotExist) && !kernelSwaps() {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrLimit, f.name, err)
		}
		got, err := g.read(f.name)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrLimit, f.name, err)
		}
		if got = strings.TrimSuffix(got, "\n"); got != f.value {
			return fmt.Errorf("%w: %s is %.80q, not %s as written", ErrLimit, f.name, got, f.value)
		}
	}
	return nil
}

// kernelSwaps says whether the kernel was built with swap.
func kernelSwaps() bool {
	_, err := os.Stat("/proc/swaps")
	return !errors.Is(err, os.ErrNotExist)
}

// Name is the group's name.
func (g *Group) Name() string { return g.name }

// FD is the descriptor to start processes in the group with
// (syscall.SysProcAttr: UseCgroupFD, CgroupFD). It is valid until Close or a
// successful Remove, which the caller keeps from happening meanwhile.
func (g *Group) FD() int { return int(g.dir.Fd()) }

// Add moves a process into the group.
func (g *Group) Add(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("add process %d: %w", pid, unix.EINVAL) // 0 is the caller
	}
	if err := g.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("add process %d: %w", pid, err)
	}
	return nil
}

// Kill sends SIGKILL to every process of the group and its descendants. None
// can escape by forking. It does not wait.
func (g *Group) Kill() error {
	if err := g.write("cgroup.kill", "1"); err != nil && !gone(err) {
		return fmt.Errorf("kill group: %w", err)
	}
	return nil
}

// gone says that the group was removed.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, os.ErrNotExist)
}

// Populated says whether a process is in the group or a descendant; a process
// that has ended but was not waited for does not count.
func (g *Group) Populated() (bool, error) {
	s, err := g.read("cgroup.events")
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return parsePopulated(s)
}

// WaitEmpty waits until the kernel says that no process is left, or until the
// context ends. It sleeps in the kernel.
func (g *Group) WaitEmpty(ctx context.Context) error {
	var events *os.File
	err := g.within(func(fd int) (err error) { events, err = openFile(fd, "cgroup.events", unix.O_RDONLY); return err })
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("wait for group: %w", err)
	}
	wake := os.NewFile(uintptr(bell), "eventfd")
	defer func() { _ = wake.Close() }()
	ringing := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ringing)
		_, _ = wake.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-ringing // before the descriptor is closed
		}
	}()
	buf := make([]byte, 4096)
	for {
		// Reading is also what arms the next notification.
		n, err := events.ReadAt(buf, 0)
		if gone(err) {
			return nil
		}
		if n == 0 {
			return fmt.Errorf("read cgroup.events: %w", err)
		}
		populated, err := parsePopulated(string(buf[:n]))
		if err != nil || !populated {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("group %q still has processes: %w", g.name, err)
		}
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}, {Fd: int32(bell), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for group: %w", err)
		}
	}
}

// removeRetry is how long to wait before removing an empty group is tried
// again: the kernel can take a moment to let go of its last process.
const removeRetry = 5 * time.Millisecond

// Remove removes the group once it is empty, and closes it. Until the context
// ends it is tried again and again; after an error, the group is still there
// and Remove can be called again.
func (g *Group) Remove(ctx context.Context) error {
	for {
		if err := g.WaitEmpty(ctx); err != nil {
			return err
		}
		err := unix.Unlinkat(int(g.root.Fd()), prefix+g.name, unix.AT_REMOVEDIR)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return g.Close()
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove group %q: %w", g.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove group %q: %w: %w", g.name, err, ctx.Err())
		case <-time.After(removeRetry):
		}
	}
}

// Close gives up the charge of the group, which stays.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Closing alone is not enough: a process that is being started at this moment
	// has a copy of the descriptor until it executes its program.
	_ = unix.Flock(int(g.dir.Fd()), unix.LOCK_UN)
	return g.dir.Close()
}

// Events tells what happened to the group's memory. It needs the controller.
func (g *Group) Events() (MemoryEvents, error) {
	s, err := g.read("memory.events")
	if err != nil {
		return MemoryEvents{}, err
	}
	return parseMemoryEvents(s)
}

// Current is how much memory the group uses now, in bytes.
func (g *Group) Current() (uint64, error) { return g.bytes("memory.current") }

// Peak is the most memory that the group has used, in bytes (Linux 5.19). It
// can be a page more than the limit.
func (g *Group) Peak() (uint64, error) { return g.bytes("memory.peak") }

func (g *Group) bytes(name string) (uint64, error) {
	s, err := g.read(name)
	if err != nil {
		return 0, err
	}
	return parseBytes(s)
}
