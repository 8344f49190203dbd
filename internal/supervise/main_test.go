//go:build linux

package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// hostVariable makes the test binary a host that is to be killed; its value
	// is the folder of its lock.
	hostVariable = "MAF_SANDBOX_SUPERVISE_TEST"
	// imageVariable is what such a host's workers do.
	imageVariable = "MAF_SANDBOX_SUPERVISE_TEST_IMAGE"
	// fakeRole is a worker without a machine.
	fakeRole = "fake"
	// hang ends a test that would never end, in emulation on a busy machine too.
	hang = 2 * time.Minute
)

func TestMain(m *testing.M) {
	helper.Register(fakeRole, 1, fakeMain)
	helper.Main()
	if dir := os.Getenv(hostVariable); dir != "" {
		hostMain(dir)
	}
	os.Exit(m.Run())
}

// facts are what a fake worker tells of itself, in Ready.Isolation.
type facts struct {
	PID         int
	Descriptors []string
	Environment []string
	Data        uint64
}

// fakeMain does what Start.Image says.
func fakeMain() error {
	conn := os.NewFile(helper.First, "connection")
	var start wire.Start
	f, err := wire.NewReader(conn, wire.MaxPayload).Next()
	if err != nil {
		return err
	}
	if err := wire.Decode(f.Payload, &start); err != nil {
		return err
	}
	w := wire.NewWriter(conn)
	say := func(kind wire.Kind, v any) error {
		b, err := wire.Encode(v)
		if err != nil {
			return err
		}
		return w.Write(wire.Frame{Kind: kind, Payload: b})
	}
	switch start.Image {
	case "refuses":
		return say(wire.KindDone, wire.Done{Kind: "unavailable", Message: "no machine"})
	case "crashes":
		fmt.Fprintln(os.Stderr, "first\nboom")
		os.Exit(3)
	case "is mute":
		forever()
	case "babbles":
		_, err := conn.WriteString("HTTP/1.1 200 OK\r\n")
		return err
	}
	t := facts{PID: os.Getpid(), Environment: os.Environ()}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if n, bad := strconv.Atoi(e.Name()); err != nil || bad != nil || isOwn(n) {
			continue // the folder's, and the runtime's
		}
		t.Descriptors = append(t.Descriptors, e.Name()+" "+target)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &lim); err != nil {
		return err
	}
	t.Data = lim.Max
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := say(wire.KindReady, wire.Ready{Engine: "fake", Isolation: string(b)}); err != nil {
		return err
	}
	if start.Image == "is stubborn" {
		forever()
	}
	_, err = conn.Read(make([]byte, 1))
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	case start.Image == "eats":
		b := make([]byte, 512<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		runtime.KeepAlive(b)
	}
	fmt.Fprintln(os.Stderr, "told to end")
	os.Exit(7)
	return nil
}

// isOwn says that this process has made a descriptor itself.
func isOwn(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err != nil || fd != helper.First && flags&unix.FD_CLOEXEC != 0
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// config is one that works.
func config(lock *os.File) Config {
	return Config{
		Lock: lock, Role: fakeRole, StartTimeout: hang,
		Limits: Limits{Enforcement: Rlimit, MemoryMax: 4 << 30},
	}
}

// hostMain tells of its supervisor, acquires two workers, tells of them, and
// waits to be killed.
func hostMain(dir string) {
	err := func() error {
		l, err := owner.Acquire(dir, "shared")
		if err != nil {
			return err
		}
		c := config(l.File())
		c.Spare, c.Start.Image = 1, os.Getenv(imageVariable)
		s, err := Start(c)
		if err != nil {
			return err
		}
		fmt.Println(s.cmd.Process.Pid)
		for range 2 {
			w, err := s.Acquire(context.Background())
			if err != nil {
				return err
			}
			fmt.Println(w.Ready.Isolation)
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	forever()
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
			t.Error(err)
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
