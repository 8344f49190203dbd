package jail

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Errors of Enter, for errors.Is. Each is wrapped with what was attempted.
var (
	// ErrSpec says that the Spec cannot be followed; nothing was changed.
	ErrSpec = errors.New("jail: unusable specification")
	// ErrJail says that the process could not be jailed. It is half jailed and
	// has to exit.
	ErrJail = errors.New("jail: not jailed")
)

const (
	// MaxKeep bounds Spec.Keep.
	MaxKeep = 256
	// MaxIoctls bounds Spec.Ioctls: a filter has at most 4096 instructions and
	// each number is tried in turn.
	MaxIoctls = 64
	// MaxTrace bounds Spec.Trace for the same reason.
	MaxTrace = 8
)

// Spec says what the process keeps.
type Spec struct {
	// Keep are the descriptors that stay open, besides those that the Go runtime
	// made for itself. All others are closed. Standard input, output and error
	// are not kept unless listed.
	Keep []int
	// Ioctls are the request numbers that ioctl accepts afterwards, those used
	// most first. They hold for every descriptor kept.
	Ioctls []uint32
	// Trace are the children that the process goes on tracing.
	Trace []Tracee
	// DataLimit is RLIMIT_DATA in bytes: private writable memory including
	// guest memory and what the Go runtime has mapped already. Zero leaves it
	// as it is. When more is in use already, nothing more can be had.
	DataLimit uint64
}

// Tracee is a child that is traced already: the process can let it run on
// without making its system calls, look at its registers and set them, wait for
// it, stop it and kill it. Its memory is reached by descriptors that are kept.
type Tracee struct {
	PID int
	// FD is its pidfd, which is to be kept, too.
	FD int
}

// Report says what was reached.
type Report struct {
	// Landlock is the ABI version that is in force, at most the newest that this
	// program knows; 0: none.
	Landlock int
	// Bounding says that the capability bounding set was emptied, too. Only a
	// process with CAP_SETPCAP can do that; for others no_new_privs has to do.
	Bounding bool
	// Runtime are the descriptors that were kept for the Go runtime (its
	// network poller).
	Runtime []int
	// Instructions is the length of the filter.
	Instructions int
}

// String is one line for people.
func (r Report) String() string {
	landlock := "no Landlock in this kernel"
	if r.Landlock > 0 {
		landlock = fmt.Sprintf("Landlock ABI %d", r.Landlock)
	}
	return fmt.Sprintf("seccomp (%d instructions), %s", r.Instructions, landlock)
}

// Enter jails the process. It returns with a nil error only when the filter is
// in force on every thread.
//
// Preconditions: called once; no other goroutine opens or closes descriptors.
func Enter(spec Spec) (Report, error) {
	if err := spec.check(); err != nil {
		return Report{}, err
	}
	r, err := enter(spec)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrJail, err)
	}
	return r, nil
}

func (s Spec) check() error {
	if len(s.Keep) > MaxKeep {
		return fmt.Errorf("%w: %d descriptors to keep; at most %d", ErrSpec, len(s.Keep), MaxKeep)
	}
	if len(s.Ioctls) > MaxIoctls {
		return fmt.Errorf("%w: %d ioctl numbers; at most %d", ErrSpec, len(s.Ioctls), MaxIoctls)
	}
	if len(s.Trace) > MaxTrace {
		return fmt.Errorf("%w: %d children to trace; at most %d", ErrSpec, len(s.Trace), MaxTrace)
	}
	for _, t := range s.Trace {
		if t.PID <= 0 || t.PID > math.MaxInt32 || !slices.Contains(s.Keep, t.FD) {
			return fmt.Errorf("%w: child %d with descriptor %d", ErrSpec, t.PID, t.FD)
		}
	}
	for _, fd := range s.Keep {
		if fd < 0 {
			return fmt.Errorf("%w: descriptor %d", ErrSpec, fd)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return fmt.Errorf("%w: descriptor %d: %w", ErrSpec, fd, err)
		}
	}
	return nil
}

// enter goes from what needs most rights to what needs least.
func enter(spec Spec) (r Report, err error) {
	filter, err := bpf.Assemble(assemble(unix.Getpid(), spec))
	if err != nil {
		return r, fmt.Errorf("assemble the filter: %w", err)
	}
	r.Instructions = len(filter)

	settleRuntime()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	threads, err := threadLimit()
	if err != nil {
		return r, err
	}
	highest := 0
	if r.Runtime, highest, err = closeOthers(spec.Keep); err != nil {
		return r, fmt.Errorf("close descriptors: %w", err)
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return r, fmt.Errorf("no new privileges: %w", err)
	}
	if r.Bounding, err = dropCapabilities(); err != nil {
		return r, fmt.Errorf("drop capabilities: %w", err)
	}
	if r.Landlock, err = restrictLandlock(); err != nil {
		return r, fmt.Errorf("landlock: %w", err)
	}
	if err := limit(spec.DataLimit, threads, highest); err != nil {
		return r, err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return r, fmt.Errorf("not dumpable: %w", err)
	}
	if err := confirm(); err != nil {
		return r, err
	}
	if err := load(filter); err != nil {
		return r, fmt.Errorf("load the filter: %w", err)
	}
	return r, confirmFilter()
}

// settleRuntime makes the Go runtime do now what it would otherwise do when it
// is no longer allowed to.
func settleRuntime() {
	// The first timer makes the network poller, which opens descriptors.
	time.AfterFunc(time.Hour, func() {}).Stop()
	// From Go 1.25 on, the runtime reads the cgroup's CPU limit again and again
	// from descriptors of its own, until the program has set the number itself.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
}

// reserve is the part of RLIMIT_NPROC that no jailed process can reach: an
// eighth.
const reserve = 8

// threadLimit is what RLIMIT_NPROC is lowered to. Without one the kernel's own
// default is the measure, half of all threads that there can be (set_max_threads
// in kernel/fork.c).
func threadLimit() (uint64, error) {
	var own unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &own); err != nil {
		return 0, fmt.Errorf("limit of processes: %w", err)
	}
	n := own.Cur // which is what holds for the host, too
	if n == unix.RLIM_INFINITY {
		b, err := os.ReadFile("/proc/sys/kernel/threads-max")
		if err != nil {
			return n, nil //nolint:nilerr // a /proc without it: there is no measure
		}
		if n, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err != nil {
			return 0, fmt.Errorf("limit of processes: %w", err)
		}
		n /= 2
	}
	return n - n/reserve, nil
}

// limit sets the resource limits. highest is the highest descriptor in use.
func limit(data, threads uint64, highest int) error {
	limits := []struct {
		name     string
		resource int
		max      uint64
	}{
		{"core size", unix.RLIMIT_CORE, 0},
		// There is no way left to make a descriptor; this is the second wall.
		{"open files", unix.RLIMIT_NOFILE, uint64(highest) + 1},
		// Files and memory files that are held cannot grow either.
		{"file size", unix.RLIMIT_FSIZE, 0},
		{"data size", unix.RLIMIT_DATA, data},
		{"processes", unix.RLIMIT_NPROC, threads},
	}
	for _, l := range limits {
		if l.resource == unix.RLIMIT_DATA && data == 0 {
			continue
		}
		// The runtime's limit functions are not used: they would remember the
		// value and put it back in children.
		var old unix.Rlimit
		if err := unix.Prlimit(0, l.resource, nil, &old); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		lim := unix.Rlimit{Cur: min(l.max, old.Max), Max: min(l.max, old.Max)}
		if err := unix.Prlimit(0, l.resource, &lim, nil); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
	}
	return nil
}

// confirm reads back what the calling thread can read.
func confirm() error {
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
		return fmt.Errorf("no new privileges: reads back as %d, %w", v, orUnconfirmed(err))
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || v != 0 {
		return fmt.Errorf("not dumpable: reads back as %d, %w", v, orUnconfirmed(err))
	}
	var lim unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &lim); err != nil || lim.Max != 0 {
		return fmt.Errorf("limit of core size: reads back as %d, %w", lim.Max, orUnconfirmed(err))
	}
	return confirmCapabilities()
}

var errUnconfirmed = errors.New("the kernel did not confirm it")

func orUnconfirmed(err error) error {
	if err == nil {
		return errUnconfirmed
	}
	return err
}

// confirmFilter makes a call that the filter answers in a way of its own.
func confirmFilter() error {
	if _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != unix.ENOSYS {
		return fmt.Errorf("the filter is not in force: %w", orUnconfirmed(e))
	}
	return nil
}
