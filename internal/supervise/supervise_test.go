//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

func TestWorkerIsAcquiredAndConfirmedGone(t *testing.T) {
	s := begin(t, nil)
	w, f := acquire(t, s)
	p := watch(t, f.PID)
	if w.Ready.Engine != "fake" || w.ID == 0 {
		t.Errorf("ready: %+v", w)
	}
	release(t, w)
	if !p.ended() {
		t.Error("the process is there after its release")
	}
	await(t, "the worker's end", w.Done())
	if err := w.Cause(); !errors.Is(err, ErrReleased) {
		t.Errorf("cause %v", err)
	}
	release(t, w) // again
	supervisor := watch(t, s.cmd.Process.Pid)
	if err := s.Close(bound(t)); err != nil || !supervisor.ended() {
		t.Errorf("close: %v, ended %v", err, supervisor.ended())
	}
	if _, err := s.Acquire(bound(t)); !errors.Is(err, ErrSupervisor) {
		t.Errorf("acquire after the end: %v", err)
	}
	if err := errors.Join(s.Close(bound(t)), w.Release(bound(t))); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestSpareWorkersAreReplaced(t *testing.T) {
	s := begin(t, func(c *Config) { c.Spare = 2 })
	pid := s.cmd.Process.Pid
	full := func(n int) func() bool { return func() bool { return len(children(t, pid)) == n } }
	eventually(t, "two spare workers", full(2))
	w, f := acquire(t, s)
	eventually(t, "a new spare one", full(3))
	if other, g := acquire(t, s); g.PID == f.PID || other.ID == w.ID {
		t.Error("a worker was given twice")
	}
	release(t, w)
	eventually(t, "the spare ones after a release", full(3))
}

func TestWorkersAreAcquiredAtTheSameTime(t *testing.T) {
	s := begin(t, func(c *Config) { c.Spare = 1 })
	var mu sync.Mutex
	seen := map[int]bool{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			w, err := s.Acquire(bound(t))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			seen[parse(t, w.Ready.Isolation).PID] = true
			mu.Unlock()
			if err := w.Release(bound(t)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(seen) != 8 {
		t.Errorf("%d workers for 8 calls", len(seen))
	}
}

func TestEndOfAWorkerIsToldWithItsReason(t *testing.T) {
	s := begin(t, nil)
	w, f := acquire(t, s)
	sibling, _ := acquire(t, s)
	watch(t, f.PID).signal(t, unix.SIGKILL)
	await(t, "the worker's end", w.Done())
	var g *GoneError
	if !errors.As(w.Cause(), &g) || g.Signal != int(unix.SIGKILL) || g.ExitCode != -1 || g.OutOfMemory {
		t.Errorf("cause %v", w.Cause())
	}
	release(t, w)

	w, _ = acquire(t, s)
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker's end", w.Done())
	if !errors.As(w.Cause(), &g) || g.ExitCode != 7 || g.Signal != 0 || !strings.Contains(g.Error(), "told to end") {
		t.Errorf("cause %v", w.Cause())
	}
	select {
	case <-sibling.Done():
		t.Errorf("another ended, too: %v", sibling.Cause())
	default:
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	s := begin(t, func(c *Config) { c.Start.Image = "is mute" })
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() { _, err := s.Acquire(ctx); failed <- err }()
	eventually(t, "a worker that starts", func() bool { return len(children(t, s.cmd.Process.Pid)) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	// The one that starts must not keep the supervisor from ending.
	if err := s.Close(bound(t)); err != nil {
		t.Error(err)
	}
}

func TestWaitForConfirmationIsBounded(t *testing.T) {
	s := begin(t, nil)
	w, _ := acquire(t, s)
	p := watch(t, s.cmd.Process.Pid)
	p.signal(t, unix.SIGSTOP)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Release(ctx); !errors.Is(err, ErrUnconfirmed) || !errors.Is(err, context.Canceled) {
		t.Errorf("release: %v", err)
	}
	if err := s.Close(ctx); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("close: %v", err)
	}
	p.signal(t, unix.SIGCONT)
	release(t, w)
	if err := s.Close(bound(t)); err != nil {
		t.Error(err)
	}
}

func TestCallsOnAStoppedSupervisorEndWithTheirContext(t *testing.T) {
	s := begin(t, nil)
	p := watch(t, s.cmd.Process.Pid)
	p.signal(t, unix.SIGSTOP)
	// More than the socket takes in.
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	const calls = 2000
	for range calls {
		group.Go(func() {
			if _, err := s.Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	eventually(t, "all calls to wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pool.waiting) == calls
	})
	cancel()
	group.Wait()
	p.signal(t, unix.SIGCONT)
	w, _ := acquire(t, s)
	release(t, w)
	eventually(t, "the end of what nobody waits for", func() bool { return len(children(t, s.cmd.Process.Pid)) == 0 })
}

func TestWorkerInheritsNothingButItsConnection(t *testing.T) {
	t.Setenv("MAF_SANDBOX_SECRET", "x")
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("LANG", "C")
	// A descriptor that the host lets its children have by mistake.
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	s := begin(t, func(c *Config) { c.Spare = 3 })
	for range 3 {
		_, f := acquire(t, s)
		if len(f.Descriptors) != 5 || f.Descriptors[0] != "0 /dev/null" || f.Descriptors[1] != "1 /dev/null" ||
			!strings.HasPrefix(f.Descriptors[2], "2 pipe:") || !strings.HasPrefix(f.Descriptors[3], "3 socket:") ||
			!strings.HasPrefix(f.Descriptors[4], "4 socket:") {
			t.Errorf("descriptors %q", f.Descriptors)
		}
		for _, v := range f.Environment {
			// GORACE is there in programs that look for races.
			if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG", "LC_ALL", "GOMAXPROCS", "GORACE"}, name) {
				t.Errorf("the environment has %q", v)
			}
		}
		if !slices.Contains(f.Environment, "LANG=C") {
			t.Errorf("environment %q", f.Environment)
		}
		if f.Data != 4<<30 {
			t.Errorf("a data limit of %d", f.Data)
		}
	}
}

func TestConfigThatCannotBeUsedIsRefused(t *testing.T) {
	lock := takeLock(t).File()
	for name, change := range map[string]func(*Config){
		"no lock":           func(c *Config) { c.Lock = nil },
		"no role":           func(c *Config) { c.Role = "" },
		"relative program":  func(c *Config) { c.Path = "x" },
		"too many spares":   func(c *Config) { c.Spare = MaxSpare + 1 },
		"no enforcement":    func(c *Config) { c.Limits.Enforcement = "" },
		"no limit":          func(c *Config) { c.Limits.MemoryMax = 0 },
		"no root":           func(c *Config) { c.Limits.Enforcement = Cgroup },
		"negative time-out": func(c *Config) { c.StartTimeout = -1 },
		"too long a root": func(c *Config) {
			c.Limits.Enforcement, c.Limits.Root = Cgroup, "/"+strings.Repeat("x", maxRoot)
		},
	} {
		c := config(lock)
		change(&c)
		if _, err := Start(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := config(lock)
	c.Path = filepath.Join(t.TempDir(), "none")
	if _, err := Start(c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}
	// What only the supervisor finds out is in the error of a call.
	c = config(lock)
	c.Limits = Limits{Enforcement: Cgroup, Root: t.TempDir(), MemoryMax: 1 << 30}
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var e *StartError
		if _, err := s.Acquire(bound(t)); !errors.As(err, &e) || e.Kind != "unavailable" || !strings.Contains(err.Error(), c.Limits.Root) || len(e.Mend) == 0 {
			t.Errorf("a root that is none: %v; %+v", err, e)
		}
	}
	if err := s.Close(bound(t)); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestLockIsHeldUntilTheSupervisorHasEnded(t *testing.T) {
	dir := t.TempDir()
	l, err := owner.Acquire(dir, "shared")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(config(l.File()))
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, s)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Acquire(dir, "shared"); !errors.Is(err, owner.ErrBusy) {
		t.Errorf("error %v", err)
	}
	if err := s.Close(bound(t)); err != nil {
		t.Fatal(err)
	}
	l, err = owner.Acquire(dir, "shared")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release()
}
