//go:build linux

package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
)

// hang ends a test that would never end, in emulation on a busy machine too.
const hang = 2 * time.Minute

func TestMain(m *testing.M) {
	helper.Register(fakeRole, 1, fakeMain)
	openEnforcer = openTestEnforcer
	helper.Main()
	if c := os.Getenv(hostVariable); c != "" {
		hostMain(c)
	}
	os.Exit(m.Run())
}

// config is one that works.
func config(lock *os.File) Config {
	return Config{
		Lock: lock, Role: fakeRole, StartTimeout: hang,
		Limits: Limits{Enforcement: Rlimit, MemoryMax: 4 << 30},
	}
}

func takeLock(t *testing.T) *owner.Lock {
	t.Helper()
	l, err := owner.Acquire(t.TempDir(), "shared")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	return l
}

// bound is a context that ends a test that would never end.
func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

// begin starts a supervisor, which is closed with the test.
func begin(t *testing.T, change func(*Config)) *Supervisor {
	t.Helper()
	c := config(takeLock(t).File())
	if change != nil {
		change(&c)
	}
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The race detector, for one, speaks by the exit code.
		if err := s.Close(bound(t)); err != nil && !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("%v\n%s", err, s.said.String())
		}
	})
	return s
}

func acquire(t *testing.T, s *Supervisor) (*Worker, facts) {
	t.Helper()
	w, err := s.Acquire(bound(t))
	if err != nil {
		t.Fatal(err)
	}
	return w, parse(t, w.Ready.Isolation)
}

func parse(t *testing.T, s string) (f facts) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func release(t *testing.T, w *Worker) {
	t.Helper()
	if err := w.Release(bound(t)); err != nil {
		t.Fatal(err)
	}
}

// await waits for the end of something.
func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hang):
		t.Fatalf("%s: not in %v", what, hang)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %v", what, hang)
		}
	}
}

// watched is a process that is known by its pidfd.
type watched struct{ fd int }

func watch(t *testing.T, pid int) watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return watched{fd}
}

func (w watched) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (w watched) signal(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := unix.PidfdSendSignal(w.fd, s, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Skip("needs a kernel that lists children (CONFIG_PROC_CHILDREN)")
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
