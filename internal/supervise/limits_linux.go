package supervise

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
)

// Enforcement is how the memory of workers is bounded.
type Enforcement string

const (
	// Cgroup is a control group for each worker, below a delegated root.
	Cgroup Enforcement = "cgroup"
	// Rlimit is RLIMIT_DATA for the worker's process, which cannot fork.
	Rlimit Enforcement = "rlimit"
)

// Limits bound each worker.
type Limits struct {
	// Enforcement is Cgroup or Rlimit; there is no default.
	Enforcement Enforcement
	// Root is the delegated control group, for Cgroup.
	Root string
	// MemoryMax is the most memory of a worker in bytes, the guest's included.
	// It is positive.
	MemoryMax int64
}

func (l Limits) check() error {
	switch {
	case l.Enforcement != Cgroup && l.Enforcement != Rlimit:
		return fmt.Errorf("%w: memory enforcement %q", ErrConfig, l.Enforcement)
	case l.Enforcement == Cgroup && !filepath.IsAbs(l.Root):
		return fmt.Errorf("%w: the root of control groups %q is not absolute", ErrConfig, l.Root)
	case l.MemoryMax <= 0:
		return fmt.Errorf("%w: a memory limit of %d bytes", ErrConfig, l.MemoryMax)
	}
	return nil
}

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
	// outOfMemory says whether the kernel has killed for want of memory.
	outOfMemory() bool
	// remove waits until the cage is empty and removes it. After an error it can
	// be called again.
	remove(ctx context.Context) error
}

// newEnforcer opens what the limits need.
func newEnforcer(l Limits) (enforcer, error) {
	if l.Enforcement == Rlimit {
		return rlimit{uint64(l.MemoryMax)}, nil
	}
	root, err := cgroup.Open(l.Root)
	if err != nil {
		return nil, err
	}
	if err := root.Memory(); err != nil {
		_ = root.Close()
		return nil, err
	}
	sweep(root)
	return controlGroups{root, l.MemoryMax}, nil
}

// sweepTimeout bounds how long one group of a dead supervisor is waited for.
const sweepTimeout = 3 * time.Second

// sweep ends what a supervisor that was killed may have left. What cannot be
// removed now is left to the next.
func sweep(root *cgroup.Root) {
	_, orphans, err := root.Sweep()
	if err != nil {
		return
	}
	for _, name := range orphans {
		g, err := root.Attach(name)
		if err != nil {
			continue // in another's charge by now
		}
		ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
		if g.Kill() != nil || g.Remove(ctx) != nil {
			_ = g.Close()
		}
		cancel()
	}
}

type controlGroups struct {
	root *cgroup.Root
	max  int64
}

func (g controlGroups) prepare(name string) (cage, error) {
	group, err := g.root.New(name, cgroup.Limits{MemoryMax: g.max})
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

func (g *grouped) outOfMemory() bool {
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
func (r rlimit) outOfMemory() bool            { return false }
func (r rlimit) remove(context.Context) error { return nil }
