//go:build linux

package supervise

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// descriptors are those that a process has open.
func descriptors(t *testing.T, pid int) (fds []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// starve leaves a process so many free descriptors, until it is fed again.
func starve(t *testing.T, pid, room int) (feed func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	set := func(r unix.Rlimit) {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &r, nil); err != nil {
			t.Fatal(err)
		}
	}
	taken := descriptors(t, pid)
	free := 0
	for ; room >= 0; free++ {
		if !slices.Contains(taken, free) {
			room--
		}
	}
	set(unix.Rlimit{Cur: uint64(free - 1), Max: old.Max})
	return func() { set(old) }
}

func TestNoDescriptorIsLeaked(t *testing.T) {
	s := begin(t, func(c *Config) { c.Spare = 1 })
	round := func(n int) {
		for range n {
			w, _ := acquire(t, s)
			release(t, w)
		}
	}
	settled := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pool.idle) == 1 && len(s.workers) == 1
	}
	round(3)
	eventually(t, "a spare worker", settled)
	host, supervisor := len(descriptors(t, os.Getpid())), len(descriptors(t, s.cmd.Process.Pid))
	round(50)
	eventually(t, "as few descriptors as before", func() bool {
		return settled() && len(descriptors(t, os.Getpid())) <= host && len(descriptors(t, s.cmd.Process.Pid)) <= supervisor
	})
}

func TestHostWithoutDescriptorsGetsAnErrorAndLosesNothing(t *testing.T) {
	s := begin(t, nil)
	before, f := acquire(t, s)
	p := watch(t, f.PID)
	for room := range 4 {
		feed := starve(t, os.Getpid(), room)
		w, err := s.Acquire(bound(t))
		feed()
		switch {
		case err == nil:
			release(t, w)
		case !errors.Is(err, unix.EMFILE):
			t.Fatalf("with %d: error %v", room, err)
		case room == 3: // two, and one to make a connection of the socket
			t.Errorf("with %d: error %v", room, err)
		}
	}
	if w, _ := acquire(t, s); w.ID == before.ID || p.ended() {
		t.Error("the worker from before is gone")
	}
	eventually(t, "the end of the workers that could not be had", func() bool { return len(children(t, s.cmd.Process.Pid)) == 2 })
}

func TestSupervisorThatCannotBeStartedForWantOfDescriptorsLeavesNone(t *testing.T) {
	l := takeLock(t)
	c := config(l.File())
	s, err := Start(c) // what the runtime opens once is open afterwards
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(bound(t)); err != nil {
		t.Fatal(err)
	}
	before := len(descriptors(t, os.Getpid()))
	const enough = 15
	for room := range enough + 1 {
		feed := starve(t, os.Getpid(), room)
		s, err := Start(c)
		if err == nil {
			err = s.Close(bound(t))
		}
		feed()
		if err != nil && (room == enough || !errors.Is(err, unix.EMFILE)) {
			t.Errorf("with %d: %v", room, err)
		}
		if now := len(descriptors(t, os.Getpid())); now > before {
			t.Fatalf("with %d: %d descriptors, %d before", room, now, before)
		}
	}
}

func TestSupervisorWithoutDescriptorsRefusesAndRecovers(t *testing.T) {
	s := begin(t, nil)
	w, f := acquire(t, s)
	kept, g := acquire(t, s)
	pid := s.cmd.Process.Pid
	before := len(descriptors(t, pid))
	refused := 0
	for room := range 12 {
		feed := starve(t, pid, room)
		got, err := s.Acquire(bound(t))
		feed()
		var e *StartError
		switch {
		case err == nil:
			release(t, got)
		case errors.As(err, &e):
			refused++
		default:
			t.Fatalf("with %d: error %v", room, err)
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
	p := watch(t, f.PID)
	feed := starve(t, pid, 0)
	release(t, w)
	feed()
	if other := watch(t, g.PID); !p.ended() || other.ended() {
		t.Error("the wrong one has ended")
	}
	eventually(t, "as few descriptors as before", func() bool { return len(descriptors(t, pid)) <= before })
	release(t, kept)
	if w, _ := acquire(t, s); w.Ready.Engine != "fake" {
		t.Error("none can be had afterwards")
	}
}
