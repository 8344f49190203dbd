package supervise

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
)

// Enforcement is how the memory of workers is bounded.
type Enforcement string

const (
	// Cgroup is a control group for each worker, below a delegated root.
	Cgroup Enforcement = "cgroup"
	// Systemd is a control group for each worker, below one that systemd
	// delegates to the supervisor, and takes away when nothing of it is left.
	Systemd Enforcement = "systemd"
	// Rlimit is RLIMIT_DATA for the worker's process, which cannot fork.
	Rlimit Enforcement = "rlimit"
)

// Limits bound each worker.
type Limits struct {
	// Enforcement is Cgroup, Systemd or Rlimit; there is no default.
	Enforcement Enforcement
	// Root is the delegated control group, for Cgroup; its path has at most
	// maxRoot bytes.
	Root string
	// MemoryMax is the most memory of a worker in bytes, the guest's included.
	// It is positive.
	MemoryMax int64
}

const (
	// maxRoot bounds Limits.Root, in bytes: it has to fit into errors, several
	// times.
	maxRoot = 1024
	// maxTasks is how many threads a worker may have, where the kernel counts
	// them. A Go program needs some more than GOMAXPROCS (see maxProcessors).
	maxTasks = 64
	// scopeTimeout bounds how long systemd may take to make a scope.
	scopeTimeout = 10 * time.Second
)

func (l Limits) check() error {
	switch {
	case !slices.Contains([]Enforcement{Cgroup, Systemd, Rlimit}, l.Enforcement):
		return fmt.Errorf("%w: memory enforcement %.80q; %s, %s or %s", ErrConfig, l.Enforcement, Cgroup, Systemd, Rlimit)
	case len(l.Root) > maxRoot:
		return fmt.Errorf("%w: the path of the root of control groups has %d bytes; at most %d", ErrConfig, len(l.Root), maxRoot)
	case l.Enforcement == Cgroup && !filepath.IsAbs(l.Root):
		return fmt.Errorf("%w: the root of control groups %q is not absolute", ErrConfig, l.Root)
	case l.MemoryMax <= 0:
		return fmt.Errorf("%w: a memory limit of %d bytes", ErrConfig, l.MemoryMax)
	}
	return nil
}

// openEnforcer is newEnforcer; tests have others, too.
var openEnforcer = newEnforcer

// newEnforcer opens what the limits need.
func newEnforcer(ctx context.Context, l Limits) (enforcer, error) {
	if l.Enforcement == Rlimit {
		return rlimit{uint64(l.MemoryMax)}, nil
	}
	open := func() (*cgroup.Root, error) { return cgroup.Open(l.Root) }
	if l.Enforcement == Systemd {
		open = func() (*cgroup.Root, error) { return openScope(ctx) }
	}
	root, err := open()
	if err != nil {
		return nil, err
	}
	if err := root.Memory(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return newControlGroups(root, l.MemoryMax), nil
}

// openScope moves this process to a scope of its own. systemd removes the scope
// with all groups in it once no process is left there: nobody has to sweep.
func openScope(ctx context.Context) (*cgroup.Root, error) {
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	scope, err := cgroup.StartScope(ctx, rand.Text(), os.Getpid())
	if err != nil {
		return nil, err
	}
	root, err := cgroup.Settle(scope.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s of the %s manager: %w", cgroup.ErrSystemd, scope.Unit, scope.Manager, err)
	}
	return root, nil
}
