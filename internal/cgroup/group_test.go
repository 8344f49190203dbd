//go:build linux

package cgroup

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestGroupHoldsWhatIsStartedInIt(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	w := start(t, "sleep", g, 1)
	if at := groupOf(t, w.Process.Pid); !strings.HasSuffix(at, filepath.Base(r.Path())+"/worker-test") {
		t.Errorf("the worker is in %s", at)
	}
	moved := start(t, "sleep", nil, 1)
	if err := g.Add(moved.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if at := groupOf(t, moved.Process.Pid); !strings.HasSuffix(at, "/worker-test") {
		t.Errorf("the moved worker is in %s", at)
	}
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("populated %v, %v", populated, err)
	}
	if err := g.Add(0); err == nil {
		t.Error("process 0 was added: that is the caller")
	}
	info, err := os.Stat(filepath.Join(r.Path(), "worker-test"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder %v, %v", info.Mode(), err)
	}
}

func TestKillEndsTheWholeTree(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	w := start(t, "tree", g, 2)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitEmpty(ctx); err != nil {
		t.Fatal(err)
	}
	if populated, err := g.Populated(); err != nil || populated {
		t.Errorf("populated %v, %v", populated, err)
	}
	if err := g.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.Path(), "worker-test")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
	_ = w.Wait()
	if status := w.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("the worker ended with %#x", uint32(status))
	}
}

func TestWaitEmptyEndsWithTheContext(t *testing.T) {
	g := newGroup(t, testRoot(t), Limits{})
	start(t, "sleep", g, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.WaitEmpty(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("returned while a process was there: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if err := g.Remove(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("removed while a process was there: %v", err)
	}
}

func TestWaitEmptyReturnsWhenTheLastProcessEnds(t *testing.T) {
	g := newGroup(t, testRoot(t), Limits{})
	w := start(t, "sleep", g, 1)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	done := make(chan error)
	go func() { done <- g.WaitEmpty(ctx) }()
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It is not waited for: a dead process does not populate a group.
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRemovedGroupCountsAsEmpty(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	if err := unix.Rmdir(filepath.Join(r.Path(), "worker-test")); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := errors.Join(g.Kill(), g.WaitEmpty(ctx), g.Remove(ctx)); err != nil {
		t.Error(err)
	}
}

func TestGroupHasOneInCharge(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	if _, err := r.Attach("test"); !errors.Is(err, ErrTaken) {
		t.Errorf("error %v, want ErrTaken", err)
	}
	if _, err := r.New("test", Limits{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want ErrExist", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := r.Attach("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestNamesOfGroups(t *testing.T) {
	r := testRoot(t)
	for _, name := range []string{"", "..", "a/b", "a.b", "a b", "a\x00", "é", strings.Repeat("x", MaxName+1)} {
		if _, err := r.New(name, Limits{}); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := r.Attach(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// age makes a group look as if it were there for long.
func age(t *testing.T, r *Root, name string) {
	t.Helper()
	old := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(filepath.Join(r.Path(), prefix+name), old, old); err != nil {
		t.Fatal(err)
	}
}

func TestSweepRemovesWhatKilledSupervisorsLeft(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	age(t, r, "test")
	supervisor := func(name string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{roleVariable + "=supervise", "ROOT=" + r.Path(), "NAME=" + name}
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	kill(supervisor("empty"))
	kill(supervisor("young"))
	kill(supervisor("orphaned"))
	alive := supervisor("alive")
	for _, name := range []string{"empty", "orphaned", "alive"} {
		age(t, r, name)
	}
	orphan := start(t, "sleep", nil, 1)
	o, err := r.Attach("orphaned")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Add(orphan.Process.Pid), o.Close()); err != nil {
		t.Fatal(err)
	}

	removed, orphans, err := r.Sweep()
	if err != nil || len(removed) != 1 || removed[0] != "empty" || len(orphans) != 1 || orphans[0].Name() != "orphaned" {
		t.Fatalf("removed %v, orphans %v, %v", removed, orphans, err)
	}
	if _, err := r.Attach("orphaned"); !errors.Is(err, ErrTaken) {
		t.Errorf("an orphan is not in our charge: %v", err)
	}
	if err := orphans[0].Close(); err != nil {
		t.Error(err)
	}
	if populated, err := g.Populated(); err != nil || populated {
		t.Errorf("our own group: %v, %v", populated, err)
	}
	kill(alive)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for _, name := range []string{"young", "orphaned", "alive"} {
		left, err := r.Attach(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(left.Kill(), left.Remove(ctx)); err != nil {
			t.Error(err)
		}
	}
}

func TestLimitsAreInForceAndReadBack(t *testing.T) {
	r := memoryRoot(t)
	g := newGroup(t, r, Limits{MemoryMax: 64<<20 + 123})
	for name, want := range map[string]string{"memory.max": "67108864\n", "memory.swap.max": "0\n", "memory.oom.group": "1\n"} {
		if got, err := readFile(g.FD(), name); got != want && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if n, err := g.Current(); err != nil || n > 64<<20 {
		t.Errorf("current %d, %v", n, err)
	}
}

func TestProcessThatEatsTooMuchIsKilledWithItsGroup(t *testing.T) {
	r := memoryRoot(t)
	g := newGroup(t, r, Limits{MemoryMax: 64 << 20})
	start(t, "sleep", g, 1) // a bystander
	sibling, err := r.New("sibling", Limits{MemoryMax: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	unharmed := start(t, "sleep", sibling, 1)
	w := start(t, "eat", g, 1)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := g.WaitEmpty(ctx); err != nil {
		t.Fatal(err)
	}
	_ = w.Wait()
	if status := w.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the worker ended with %#x", uint32(status))
	}
	e, err := g.Events()
	if err != nil || e.OOMKill < 1 || !e.Killed() {
		t.Errorf("events %+v, %v", e, err)
	}
	if n, err := g.Peak(); err == nil && n > 64<<20+2*4096 {
		t.Errorf("peak %d", n)
	}
	if err := unharmed.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the sibling: %v", err)
	}
	if err := errors.Join(sibling.Kill(), sibling.Remove(ctx)); err != nil {
		t.Error(err)
	}
}

func TestChargeIsGivenUpEvenIfAStartingProcessHasACopy(t *testing.T) {
	r := testRoot(t)
	g := newGroup(t, r, Limits{})
	copied, err := unix.Dup(g.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(copied) }()
	if _, err := r.Attach(g.Name()); !errors.Is(err, ErrTaken) {
		t.Errorf("taken twice: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := r.Attach(g.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := again.Remove(ctx); err != nil {
		t.Error(err)
	}
}

func TestThreadsBeyondTheLimitCannotBeMade(t *testing.T) {
	r := testRoot(t)
	if !r.CountsTasks() {
		t.Skip("needs the pids controller")
	}
	g := newGroup(t, r, Limits{Tasks: 64})
	if got, err := readFile(g.FD(), "pids.max"); got != "64\n" {
		t.Errorf("pids.max: %q, %v", got, err)
	}
	w := start(t, "threads", g, 1)
	if err := w.Wait(); err == nil || w.ProcessState.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
}

func TestImpossibleNumberOfThreadsIsRefused(t *testing.T) {
	if _, err := testRoot(t).New("x", Limits{Tasks: -1}); !errors.Is(err, ErrLimit) {
		t.Errorf("error %v", err)
	}
}

func TestGroupThatIsRemovedMeanwhileCanBeKilledAllTheSame(t *testing.T) {
	r := testRoot(t)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for range 50 {
		g, err := r.New("x", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		killed := make(chan error)
		go func() {
			for {
				if err := g.Kill(); err != nil {
					killed <- err
					return
				}
			}
		}()
		if err := g.Remove(ctx); err != nil {
			t.Error(err)
		}
		if err := <-killed; !errors.Is(err, os.ErrClosed) {
			t.Errorf("error %v", err)
		}
	}
}
