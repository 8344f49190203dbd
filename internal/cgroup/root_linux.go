package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is a delegated group, below which this process makes groups. Its methods
// may be called from any goroutine.
type Root struct {
	path string
	dir  *os.File
	// memory is nil when groups can be given memory limits.
	memory *SetupError
	// pids says that the threads in groups can be limited.
	pids bool
}

// Open opens a root and looks whether it can be used. When it cannot, the error
// is a *SetupError. The controllers memory and pids are turned on for the groups
// where that is possible; see Root.Memory and Root.CountsTasks.
func Open(path string) (*Root, error) {
	r := &Root{path: path}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, r.problem("is not an absolute path", "the path of a control group, such as "+DefaultRoot, nil)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, r.problem("does not exist", "a control group that is delegated to this user", nil)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, r.problem("is not a folder, or is a symbolic link", "the folder of a control group itself", nil)
	case err != nil:
		return nil, r.problem("cannot be opened", "a control group that is delegated to this user", err)
	}
	r.dir = os.NewFile(uintptr(fd), path)
	if err := r.check(); err != nil {
		_ = r.dir.Close()
		return nil, err
	}
	r.memory = r.enable("memory")
	r.pids = r.enable("pids") == nil
	return r, nil
}

// problem makes an error that the operator's recipe mends.
func (r *Root) problem(found, need string, cause error) *SetupError {
	e := &SetupError{Root: r.path, Found: found, Need: need, Cause: cause}
	if filepath.IsAbs(r.path) {
		e.Mend = Recipe(filepath.Clean(r.path), userName())
	}
	return e
}

func (r *Root) check() error {
	fd := int(r.dir.Fd())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return r.problem("cannot be looked at", "a folder of the cgroup v2 file system", err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		e := r.problem(fmt.Sprintf("is on a file system of type %#x", fs.Type),
			fmt.Sprintf("a folder of the cgroup v2 file system (type %#x), mounted at /sys/fs/cgroup unless the machine was started with version 1", unix.CGROUP2_SUPER_MAGIC), nil)
		e.Mend = []string{"findmnt -t cgroup2"}
		return e
	}
	if kind, err := readFile(fd, "cgroup.type"); err == nil && strings.TrimSpace(kind) != "domain" {
		return r.problem(fmt.Sprintf("is of type %q", strings.TrimSpace(kind)), `a group of type "domain"`, nil)
	}
	// The hierarchy's own root has neither file, but its children have.
	_, noEvents := readFile(fd, "cgroup.events")
	if unix.Faccessat(fd, "cgroup.kill", unix.F_OK, 0) != nil && noEvents == nil {
		e := r.problem("has no cgroup.kill", "Linux 5.14 or later", nil)
		e.Mend = nil
		return e
	}
	for _, name := range []string{".", "cgroup.procs"} {
		if err := unix.Faccessat(fd, name, unix.W_OK, unix.AT_EACCESS); err != nil {
			return r.problem(fmt.Sprintf("%s cannot be written to by user %d", filepath.Join(r.path, name), os.Geteuid()),
				"the folder and its cgroup.procs delegated to this user", err)
		}
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if at, inside := r.holdsUs(); !inside {
		return r.problem(fmt.Sprintf("this process runs outside it, in %s", at),
			"a process that runs in a group below the root, because an unprivileged one cannot start others there from outside", nil)
	}
	return nil
}

// holdsUs says whether this process is in a group below the root. When that
// cannot be told, the kernel will tell when the first process is started.
func (r *Root) holdsUs() (at string, inside bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", true
	}
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			at = p
		}
	}
	// The mount point is the topmost folder of the same file system.
	top := filepath.Clean(r.path)
	var st, up unix.Stat_t
	if unix.Stat(top, &st) != nil {
		return "", true
	}
	for unix.Stat(filepath.Dir(top), &up) == nil && up.Dev == st.Dev && top != "/" {
		top = filepath.Dir(top)
	}
	relative := strings.TrimSuffix(strings.TrimPrefix(filepath.Clean(r.path), top), "/") + "/"
	return at, strings.HasPrefix(at+"/", relative)
}

// enable makes a controller available to groups.
func (r *Root) enable(controller string) *SetupError {
	need := fmt.Sprintf("the %s controller handed down to the groups (cgroup.subtree_control)", controller)
	fd := int(r.dir.Fd())
	offered, err := readFile(fd, "cgroup.controllers")
	if err != nil {
		return r.problem("its controllers cannot be read", need, err)
	}
	if list := strings.Fields(offered); !slices.Contains(list, controller) {
		return r.problem(fmt.Sprintf("offers the controllers %v", list),
			fmt.Sprintf("the %s controller; it has to be of version 2, and handed down from the hierarchy's root", controller), nil)
	}
	enabled, err := readFile(fd, "cgroup.subtree_control")
	if err != nil {
		return r.problem("its controllers cannot be read", need, err)
	}
	if slices.Contains(strings.Fields(enabled), controller) {
		return nil
	}
	switch err := writeFile(fd, "cgroup.subtree_control", "+"+controller); {
	case errors.Is(err, unix.EBUSY):
		return r.problem("holds processes itself, so that it cannot hand down controllers", need, err)
	case err != nil:
		return r.problem(fmt.Sprintf("does not hand down the %s controller", controller), need, err)
	}
	return nil
}

// Path is the root's folder.
func (r *Root) Path() string { return r.path }

// Memory says whether groups can be given memory limits: nil, or a *SetupError
// that says why not.
func (r *Root) Memory() error {
	if r.memory == nil {
		return nil
	}
	return r.memory
}

// CountsTasks says whether the number of threads in groups can be limited.
func (r *Root) CountsTasks() bool { return r.pids }

// Close closes the root. Its groups must have been removed or closed.
func (r *Root) Close() error { return r.dir.Close() }

// prefix starts the names of our groups' folders.
const prefix = "worker-"

// staleAfter is how old a group must be before it can be taken for left behind:
// one is locked within milliseconds of being made.
const staleAfter = time.Minute

// Sweep takes charge of the groups that nobody has charge of any more, because
// the process that made them was killed. Those without a process are removed;
// the others are the caller's, to kill and remove or to close.
func (r *Root) Sweep() (removed []string, orphans []*Group, err error) {
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), prefix)
		if !ours || !e.IsDir() || checkName(name) != nil {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		g, err := r.Attach(name)
		if err != nil {
			continue // somebody has charge of it, or it is gone
		}
		populated, err := g.Populated()
		if err != nil || populated || unix.Unlinkat(int(r.dir.Fd()), e.Name(), unix.AT_REMOVEDIR) != nil {
			orphans = append(orphans, g)
			continue
		}
		removed = append(removed, name)
		_ = g.Close()
	}
	return removed, orphans, nil
}

// Settle makes a root of a delegated group in which processes are: they move
// to a group of their own below, named "host". This is for groups that a
// service manager made for this process.
func Settle(path string) (*Root, error) {
	if err := os.Mkdir(filepath.Join(path, hostLeaf), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	leaf, err := os.OpenFile(filepath.Join(path, hostLeaf, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = leaf.Close() }()
	for _, pid := range strings.Fields(string(procs)) {
		if _, err := leaf.WriteString(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("move process %s: %w", pid, err)
		}
	}
	return Open(path)
}

// readFile reads a control file of the group whose folder is open.
func readFile(dir int, name string) (string, error) {
	f, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err
}

// writeFile writes a control file: the kernel takes one write as one command.
func writeFile(dir int, name, value string) error {
	f, err := openFile(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func openFile(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
