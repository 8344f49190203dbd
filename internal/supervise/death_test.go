//go:build linux

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

// owned says whether somebody has the lock in a folder.
func owned(t *testing.T, dir string) bool {
	t.Helper()
	l, err := owner.Acquire(dir, "shared")
	if err == nil {
		_ = l.Release()
	} else if !errors.Is(err, owner.ErrBusy) {
		t.Fatal(err)
	}
	return err != nil
}

func itoa(n int) string { return strconv.Itoa(n) }

// allEnded says whether all of some processes have ended.
func allEnded(all []watched) bool {
	for _, w := range all {
		if !w.ended() {
			return false
		}
	}
	return true
}

// moments are what a host may be doing when something happens.
var moments = []struct {
	name   string
	config hostConfig
	// held: the cages are obstinate.
	held bool
	// arrive brings the host there.
	arrive func(*testing.T, *host)
}{
	{"it acquires for the first time", hostConfig{Image: "is mute", Spare: 1}, false, func(t *testing.T, h *host) {
		h.do(t, "begin to acquire")
		eventually(t, "a worker that starts", func() bool { return len(children(t, h.pid)) == 1 })
	}},
	{"it acquires, uses and releases", hostConfig{Image: "echoes", Spare: 2}, false, func(t *testing.T, h *host) {
		h.do(t, "cycle")
	}},
	{"workers run", hostConfig{Image: "is stubborn", Spare: 1}, false, func(t *testing.T, h *host) {
		h.acquire(t, 2)
	}},
	{"a worker is released", hostConfig{Image: "is stubborn"}, true, func(t *testing.T, h *host) {
		h.acquire(t, 2)
		h.do(t, "begin to release")
		eventually(t, "the worker's end", h.workers[0].ended)
	}},
	{"it closes", hostConfig{Image: "is stubborn"}, true, func(t *testing.T, h *host) {
		h.acquire(t, 2)
		h.do(t, "begin to close")
		eventually(t, "the workers' end", func() bool { return allEnded(h.workers) })
	}},
}

// ends are what may happen to host and supervisor.
var ends = []struct {
	name string
	// both: the supervisor is killed as well.
	both bool
	end  func(*testing.T, *host)
}{
	{"is killed", false, func(t *testing.T, h *host) { h.kill(t) }},
	{"exits", false, func(t *testing.T, h *host) {
		if _, err := h.in.WriteString("exit\n"); err != nil {
			t.Fatal(err)
		}
		_ = h.cmd.Wait()
	}},
	{"is killed with its supervisor", true, func(t *testing.T, h *host) {
		h.process.signal(t, unix.SIGKILL)
		h.supervisor.signal(t, unix.SIGKILL)
		_ = h.cmd.Wait()
	}},
	{"loses its supervisor", true, func(t *testing.T, h *host) { h.supervisor.signal(t, unix.SIGKILL) }},
}

func TestNothingIsLeftOfAHost(t *testing.T) {
	for _, m := range moments {
		for _, e := range ends {
			t.Run("that "+e.name+" while "+m.name, func(t *testing.T) {
				c := m.config
				c.Dir = t.TempDir()
				busy := filepath.Join(c.Dir, "busy")
				if m.held {
					c.Root = obstinateRoot + c.Dir
					if err := os.WriteFile(busy, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				h := startHost(t, c)
				m.arrive(t, h)
				e.end(t, h)
				if m.held {
					eventually(t, "the workers' end", func() bool { return allEnded(h.workers) })
					if !e.both && (h.supervisor.ended() || !owned(t, c.Dir)) {
						t.Error("the supervisor has ended before all was confirmed gone")
					}
					if err := os.Remove(busy); err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "the supervisor's end", h.supervisor.ended)
				if e.name == "loses its supervisor" {
					if m.name != "it acquires, uses and releases" { // there it says that it cannot any more
						h.do(t, "await the supervisor's end")
					}
					eventually(t, "no process but the host", func() bool { return len(withHome(t, h.home)) == 1 })
					return
				}
				if !e.both && !allEnded(h.workers) {
					t.Error("a worker has outlived its supervisor")
				}
				// The supervisor cannot confirm what it did not live to see; the kernel
				// takes a moment.
				eventually(t, "no process", func() bool { return len(withHome(t, h.home)) == 0 })
				eventually(t, "a free namespace", func() bool { return !owned(t, c.Dir) })
				if left, _ := filepath.Glob(filepath.Join(c.Dir, "worker-*")); len(left) > 0 && !e.both {
					t.Errorf("cages are left: %q", left)
				}
			})
		}
	}
}

func TestStoppedHostIsNotTakenForDead(t *testing.T) {
	// Longer than any wait of a supervisor for its host would be, if it had one.
	stopped := 2 * time.Second
	if testing.Short() {
		stopped = 200 * time.Millisecond
	}
	h := startHost(t, hostConfig{Dir: t.TempDir(), Image: "echoes", Spare: 1})
	h.acquire(t, 2)
	h.process.signal(t, unix.SIGSTOP)
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stopped) // what is waited for is that nothing happens
	if h.supervisor.ended() || h.workers[0].ended() || h.workers[1].ended() {
		t.Error("something has ended")
	}
	h.process.signal(t, unix.SIGCONT)
	h.do(t, "echo")
	h.acquire(t, 2)
	h.do(t, "release")
	if !h.workers[0].ended() || h.workers[1].ended() || h.supervisor.ended() {
		t.Error("the wrong one has ended")
	}
	h.process.signal(t, unix.SIGSTOP)
	h.process.signal(t, unix.SIGKILL)
	eventually(t, "the supervisor's end", h.supervisor.ended)
	if !allEnded(h.workers) {
		t.Error("a worker has outlived its supervisor")
	}
}

func TestNamespaceStaysOwnedWhileWorkersAreLeft(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, hostConfig{Dir: dir, Image: "is stubborn", Spare: 1})
	h.acquire(t, 2)
	h.supervisor.signal(t, unix.SIGSTOP)
	h.kill(t)
	if !owned(t, dir) {
		t.Error("the namespace is free")
	}
	h.supervisor.signal(t, unix.SIGCONT)
	eventually(t, "a free namespace", func() bool { return !owned(t, dir) })
	if !allEnded(h.workers) {
		t.Error("the namespace was free before a worker was gone")
	}
}

func TestKilledSupervisorTakesItsWorkersAlong(t *testing.T) {
	s := begin(t, func(c *Config) { c.Spare, c.Start.Image = 1, "is stubborn" })
	w, f := acquire(t, s)
	p := watch(t, f.PID)
	watch(t, s.cmd.Process.Pid).signal(t, unix.SIGKILL)
	await(t, "the supervisor's end", s.Done())
	if !p.ended() {
		t.Error("the worker has not ended")
	}
	await(t, "the worker's end", w.Done())
	if err := w.Cause(); !errors.Is(err, ErrSupervisor) {
		t.Errorf("cause %v", err)
	}
	release(t, w)
	if _, err := s.Acquire(bound(t)); !errors.Is(err, ErrSupervisor) || !errors.Is(s.Err(), ErrSupervisor) {
		t.Errorf("acquire: %v; %v", err, s.Err())
	}
}

func TestSupervisorThatIsAskedToEndDoes(t *testing.T) {
	s := begin(t, func(c *Config) { c.Start.Image = "is stubborn" })
	w, f := acquire(t, s)
	p := watch(t, f.PID)
	watch(t, s.cmd.Process.Pid).signal(t, unix.SIGTERM)
	await(t, "the supervisor's end", s.Done())
	await(t, "the worker's end", w.Done())
	if !p.ended() {
		t.Error("the worker has not ended")
	}
}
