//go:build linux

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resident is how much memory a process has, in KiB.
func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(b, []byte("VmRSS:"))
	if _, err := fmt.Sscan(string(line), &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestCyclesWithKillsLeaveNothing is the storm of worker creation, with workers
// that are killed at any moment of their life, spare ones included.
// MAF_SANDBOX_SOAK is how long it goes on.
func TestCyclesWithKillsLeaveNothing(t *testing.T) {
	const warmUp, loops, spare = 50, 4, 2
	cycles := int32(500)
	if testing.Short() {
		cycles = 150
	}
	var until time.Time
	if v := os.Getenv("MAF_SANDBOX_SOAK"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		until = time.Now().Add(d)
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	root := plainGroup(t, false)
	s := begin(t, func(c *Config) {
		c.Spare, c.Start.Image = spare, "echoes"
		if root != "" {
			c.Limits.Enforcement, c.Limits.Root = Cgroup, plainRoot+root
		}
	})
	pid := s.cmd.Process.Pid
	settled := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pool.idle) == spare && len(s.workers) == spare && len(s.pool.asked) == 0
	}
	eventually(t, "spare workers", settled)

	var done, failed atomic.Int32
	round := func(goOn func() bool) {
		var group sync.WaitGroup
		for range loops {
			group.Go(func() {
				for goOn() {
					if !cycle(t, s) {
						failed.Add(1)
					}
					done.Add(1)
				}
			})
		}
		group.Wait()
		// A spare one that was killed, three times, is not replaced by itself.
		w, _ := acquire(t, s)
		release(t, w)
		eventually(t, "spare workers and no others", settled)
	}
	first := func() bool { return done.Load() < warmUp }
	round(first)
	host, supervisor := len(descriptors(t, os.Getpid())), len(descriptors(t, pid))
	goroutines, memory, ours := runtime.NumGoroutine(), resident(t, pid), resident(t, os.Getpid())
	round(func() bool { return done.Load() < cycles || time.Now().Before(until) })
	t.Logf("%d cycles, %d without a worker; supervisor %d KiB, %d before", done.Load(), failed.Load(), resident(t, pid), memory)

	eventually(t, "as few descriptors and goroutines as before", func() bool {
		return len(descriptors(t, os.Getpid())) <= host && len(descriptors(t, pid)) <= supervisor && runtime.NumGoroutine() <= goroutines
	})
	if pids := withHome(t, home); len(pids) != 1+spare {
		t.Errorf("the processes %v are there, not the supervisor and %d", pids, spare)
	}
	if root != "" && groups(t, root) != spare {
		t.Errorf("%d groups, not %d", groups(t, root), spare)
	}
	// The Go runtime does not give everything back at once; the race detector
	// remembers much more.
	const slack = 16 << 10
	if now := resident(t, pid); now > memory+slack && !raceEnabled {
		t.Errorf("the supervisor has %d KiB, %d before", now, memory)
	}
	if now := resident(t, os.Getpid()); now > ours+slack && !raceEnabled {
		t.Errorf("the host has %d KiB, %d before", now, ours)
	}
	if err := s.Close(bound(t)); err != nil {
		t.Error(err)
	}
	if pids := withHome(t, home); len(pids) != 0 {
		t.Errorf("the processes %v are there after the end", pids)
	}
	if root != "" && groups(t, root) != 0 {
		t.Errorf("%d groups after the end", groups(t, root))
	}
}

// cycle is the life of one worker. It says whether there was one: a worker that
// is killed while it starts is refused.
func cycle(t *testing.T, s *Supervisor) bool {
	kind := rand.IntN(6)
	if kind == 0 { // whatever there is, starting and spare ones too
		if pids := children(t, s.cmd.Process.Pid); len(pids) > 0 {
			_ = unix.Kill(pids[rand.IntN(len(pids))], unix.SIGKILL)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang) // not bound, which keeps it for the whole soak
	defer cancel()
	w, err := s.Acquire(ctx)
	if e := (*StartError)(nil); errors.As(err, &e) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	pid := parse(t, w.Ready.Isolation).PID
	switch kind {
	case 1: // by somebody else
		err = unix.Kill(pid, unix.SIGKILL)
		<-w.Done()
	case 2: // at the same time as the release
		if fd, e := unix.PidfdOpen(pid, 0); e == nil {
			go func() { _ = errors.Join(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0), unix.Close(fd)) }()
		}
	case 3: // stopped
		err = unix.Kill(pid, unix.SIGSTOP)
	case 4: // while it works
		go func() { _, _ = w.Conn.Write(make([]byte, 1<<20)) }()
	case 5:
		_ = echo(w) // another loop may have killed it
	}
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	if err := errors.Join(err, w.Release(ctx)); err != nil {
		t.Error(err)
	}
	return true
}
