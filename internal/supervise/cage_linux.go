package supervise

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
)

// enforcer makes cages.
type enforcer interface {
	// prepare makes the cage of one worker, which has a name of its own.
	prepare(name string) (cage, error)
}

// cage bounds one worker.
type cage interface {
	// attributes are added to those that the process is started with.
	attributes(*syscall.SysProcAttr)
	// started is called with the process before it is told to work.
	started(pid int) error
	// kill kills what is in the cage besides the process itself.
	kill() error
	// outOfMemory says whether the process has ended for want of memory.
	outOfMemory(how GoneError) bool
	// remove waits until the cage is empty and removes it. After an error it can
	// be called again.
	remove(ctx context.Context) error
}

// controlGroups makes cages that are control groups below a root.
type controlGroups struct {
	root   *cgroup.Root
	limits cgroup.Limits
}

func newControlGroups(root *cgroup.Root, memory int64) controlGroups {
	go sweep(root)
	return controlGroups{root, cgroup.Limits{MemoryMax: memory, Tasks: maxTasks}}
}

const (
	// sweepTimeout bounds how long one group of a dead supervisor is waited for.
	sweepTimeout = 3 * time.Second
	// secondSweep is when what a supervisor left that was killed shortly before
	// this one began is old enough for cgroup.Root.Sweep.
	secondSweep = 2 * time.Minute
)

// sweep ends what supervisors that were killed may have left, now and once more
// later. What cannot be removed then is left to the next.
func sweep(root *cgroup.Root) {
	sweepOnce(root)
	time.Sleep(secondSweep)
	sweepOnce(root)
}

func sweepOnce(root *cgroup.Root) {
	_, orphans, err := root.Sweep()
	if err != nil {
		return
	}
	for _, g := range orphans {
		ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
		if g.Kill() != nil || g.Remove(ctx) != nil {
			_ = g.Close()
		}
		cancel()
	}
}

func (g controlGroups) prepare(name string) (cage, error) {
	group, err := g.root.New(name, g.limits)
	if err != nil {
		return nil, err
	}
	return &grouped{Group: group}, nil
}

// grouped is a cage that is a control group.
type grouped struct{ *cgroup.Group }

func (g *grouped) attributes(a *syscall.SysProcAttr) { a.UseCgroupFD, a.CgroupFD = true, g.FD() }
func (g *grouped) started(int) error                 { return nil }
func (g *grouped) kill() error                       { return g.Kill() }
func (g *grouped) remove(ctx context.Context) error  { return g.Remove(ctx) }

func (g *grouped) outOfMemory(GoneError) bool {
	e, err := g.Events()
	return err == nil && e.Killed()
}

// rlimit is a cage for a process that cannot fork, and so is alone.
type rlimit struct{ max uint64 }

func (r rlimit) prepare(string) (cage, error)    { return r, nil }
func (r rlimit) attributes(*syscall.SysProcAttr) {}

// started sets the limit from outside: it holds before the worker has a guest,
// and nothing in the worker's jail can raise it.
func (r rlimit) started(pid int) error {
	lim := unix.Rlimit{Cur: r.max, Max: r.max}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &lim, nil); err != nil {
		return fmt.Errorf("limit of data size: %w", err)
	}
	var got unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &got); err != nil {
		return fmt.Errorf("limit of data size: %w", err)
	}
	if got != lim {
		return fmt.Errorf("limit of data size: %d reads back as %d", r.max, got.Max)
	}
	return nil
}

func (r rlimit) kill() error                  { return nil }
func (r rlimit) remove(context.Context) error { return nil }

// goFatal is the exit code of the Go runtime's fatal errors.
const goFatal = 2

// outOfMemory knows the last words of the Go runtime when the kernel gives it
// no more memory: throw in runtime/malloc.go, mheap.go, mem_linux.go, os_linux.go
// and others, or, where the runtime itself does not look whether it was given
// memory (spanQueue in mgcmark_greenteagc.go of Go 1.26), a fault on its own
// stack, which is told in other words than one of a program. A worker that only
// pretends deceives about nobody but itself.
func (r rlimit) outOfMemory(how GoneError) bool {
	if how.ExitCode != goFatal {
		return false
	}
	for line := range strings.Lines(how.Diagnostics) {
		if strings.HasPrefix(line, "SIGSEGV: segmentation violation") {
			return true
		}
		words, fatal := strings.CutPrefix(line, "fatal error: ")
		if fatal && (strings.Contains(words, "out of memory") || strings.Contains(words, "cannot allocate memory")) {
			return true
		}
		if strings.HasPrefix(line, "runtime: failed to create new OS thread") && strings.Contains(line, "errno=12") {
			return true
		}
	}
	return false
}
