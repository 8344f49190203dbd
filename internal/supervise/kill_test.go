//go:build linux

package supervise

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

func itoa(n int) string { return strconv.Itoa(n) }

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

// host is a process that has a supervisor.
type host struct {
	cmd        *exec.Cmd
	out        *bufio.Reader
	pid        int // the supervisor's
	supervisor watched
	workers    []watched
}

func startHost(t *testing.T, dir, image string) *host {
	t.Helper()
	h := &host{cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), hostVariable+"="+dir, imageVariable+"="+image)
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.cmd.Process.Kill(); _ = h.cmd.Wait() })
	h.out = bufio.NewReader(out)
	if h.pid, err = strconv.Atoi(h.says(t)); err != nil {
		t.Fatal(err)
	}
	h.supervisor = watch(t, h.pid)
	return h
}

func (h *host) says(t *testing.T) string {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// withWorkers is a host that has two workers, which ignore everything.
func withWorkers(t *testing.T, dir string) *host {
	t.Helper()
	h := startHost(t, dir, "is stubborn")
	for range 2 {
		h.workers = append(h.workers, watch(t, parse(t, h.says(t)).PID))
	}
	return h
}

func TestNothingIsLeftOfAHostKilledWhileItAcquires(t *testing.T) {
	h := startHost(t, t.TempDir(), "is mute")
	var pids []int
	eventually(t, "a worker that starts", func() bool { pids = children(t, h.pid); return len(pids) == 1 })
	w := watch(t, pids[0])
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the supervisor's end", h.supervisor.ended)
	if !w.ended() {
		t.Error("a worker has outlived its supervisor")
	}
}

func TestNothingIsLeftOfAKilledHost(t *testing.T) {
	h := withWorkers(t, t.TempDir())
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the supervisor's end", h.supervisor.ended)
	for _, w := range h.workers {
		if !w.ended() {
			t.Error("a worker has outlived its supervisor")
		}
	}
}

func TestStoppedHostIsNotTakenForDead(t *testing.T) {
	h := withWorkers(t, t.TempDir())
	p := watch(t, h.cmd.Process.Pid)
	p.signal(t, unix.SIGSTOP)
	// A round trip through the kernel that a dead host would have answered: the
	// process is stopped once it can be waited for as such.
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if h.supervisor.ended() || h.workers[0].ended() || h.workers[1].ended() {
		t.Error("something has ended")
	}
	p.signal(t, unix.SIGCONT)
	p.signal(t, unix.SIGKILL)
	eventually(t, "the supervisor's end", h.supervisor.ended)
}

func TestNamespaceStaysOwnedWhileWorkersAreLeft(t *testing.T) {
	dir := t.TempDir()
	h := withWorkers(t, dir)
	h.supervisor.signal(t, unix.SIGSTOP)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	if _, err := owner.Acquire(dir, "shared"); !errors.Is(err, owner.ErrBusy) {
		t.Errorf("error %v", err)
	}
	h.supervisor.signal(t, unix.SIGCONT)
	eventually(t, "a free namespace", func() bool {
		l, err := owner.Acquire(dir, "shared")
		if err == nil {
			_ = l.Release()
		}
		return err == nil
	})
	for _, w := range h.workers {
		if !w.ended() {
			t.Error("the namespace was free before a worker was gone")
		}
	}
}

func TestKilledSpareWorkerIsReplaced(t *testing.T) {
	s := begin(t, func(c *Config) { c.Spare = 1 })
	var pids []int
	one := func() bool { pids = children(t, s.cmd.Process.Pid); return len(pids) == 1 }
	eventually(t, "a spare worker", one)
	first := pids[0]
	watch(t, first).signal(t, unix.SIGKILL)
	eventually(t, "another", func() bool { return one() && pids[0] != first })
	if _, f := acquire(t, s); f.PID == first {
		t.Error("the killed one was given")
	}
}

func TestCyclesWithKillsLeaveNothing(t *testing.T) {
	const workers, rounds = 4, 25
	s := begin(t, func(c *Config) { c.Spare = 2 })
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	w, _ := acquire(t, s)
	release(t, w)
	before := descriptors()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range rounds {
				w, err := s.Acquire(bound(t))
				if err != nil {
					t.Error(err)
					return
				}
				switch i % 4 {
				case 0: // as it should be
				case 1: // by somebody else
					err = unix.Kill(parse(t, w.Ready.Isolation).PID, unix.SIGKILL)
				case 2: // at the same time as the release
					go func() { _, _ = w.Conn.Write([]byte{1}) }()
				case 3: // of its own accord
					_, err = w.Conn.Write([]byte{1})
				}
				if i%2 == 1 {
					<-w.Done()
				}
				if err := errors.Join(err, w.Release(bound(t))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	eventually(t, "two spare workers and no other process", func() bool { return len(children(t, s.cmd.Process.Pid)) == 2 })
	if now := descriptors(); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.workers) != 0 || len(s.calls) != 0 {
		t.Errorf("%d workers and %d calls are remembered", len(s.workers), len(s.calls))
	}
}
