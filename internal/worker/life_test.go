//go:build linux && amd64

package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// hostVariable makes the test binary a host of one worker; its value is the
// wire.Start of it.
const hostVariable = "MAF_SANDBOX_WORKER_TEST"

// hang ends a test that would never end.
const hang = time.Minute

// hostMain acquires a worker, has it compute for ever, says so, and waits to be
// killed.
func hostMain(start string) {
	err := func() error {
		c := supervise.Config{Role: Role, Limits: supervise.Limits{Enforcement: supervise.Rlimit, MemoryMax: 4 << 30}}
		if err := json.Unmarshal([]byte(start), &c.Start); err != nil {
			return err
		}
		l, err := owner.Acquire(filepath.Dir(c.Start.Templates), "worker")
		if err != nil {
			return err
		}
		c.Lock = l.File()
		s, err := supervise.Start(c)
		if err != nil {
			return err
		}
		w, err := s.Acquire(context.Background())
		if err != nil {
			return err
		}
		b, err := wire.Encode(wire.Run{Code: []byte("print('on', flush=True)\nwhile True: pass"), Timeout: time.Hour, MaxOutput: 1 << 20, Live: true})
		if err == nil {
			err = wire.NewWriter(w.Conn).Write(wire.Frame{Kind: wire.KindRun, Call: 1, Payload: b})
		}
		if err == nil {
			_, err = wire.NewReader(w.Conn, wire.MaxPayload).Next()
		}
		return err
	}()
	fmt.Println(err)
	select {}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Skip("needs a kernel that lists children (CONFIG_PROC_CHILDREN)")
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(task) // a thread may have ended
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

// hold opens a pidfd, so that a number is not taken for another process.
func hold(t *testing.T, pid int) (fd int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		_ = unix.Close(fd)
	})
	return fd
}

func signal(t *testing.T, fd int, s unix.Signal) {
	t.Helper()
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// TestJailedWorkerDiesWithItsSupervisor leaves nobody but the kernel to kill it:
// a change of privileges, such as a jail makes, can make the kernel forget that
// it should (man 2 prctl, PR_SET_PDEATHSIG).
func TestJailedWorkerDiesWithItsSupervisor(t *testing.T) {
	p, err := kvmvm.New()
	if err != nil {
		t.Skipf("needs a usable /dev/kvm: %v", err)
	}
	_ = p.Close()
	dir := t.TempDir()
	start, err := json.Marshal(wire.Start{Image: testImage(t, dir), Templates: filepath.Join(dir, "templates"), Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), hostVariable+"="+string(start))
	host.Stderr = os.Stderr
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Process.Kill(); _ = host.Wait() })
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "<nil>\n" {
		t.Fatalf("the host says %q, %v", said, err)
	}
	supervisors := children(t, host.Process.Pid)
	if len(supervisors) != 1 {
		t.Fatalf("supervisors %v", supervisors)
	}
	workers := children(t, supervisors[0])
	if len(workers) != 1 {
		t.Fatalf("workers %v", workers)
	}
	supervisor, worker := hold(t, supervisors[0]), hold(t, workers[0])
	// The worker cannot notice the end of its connection, the supervisor not the
	// end of its host, and the host not that of the supervisor.
	signal(t, worker, unix.SIGSTOP)
	signal(t, supervisor, unix.SIGSTOP)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(worker), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
		t.Fatalf("the worker has ended already: %d, %v", n, err)
	}
	signal(t, supervisor, unix.SIGKILL)
	fds := []unix.PollFd{{Fd: int32(worker), Events: unix.POLLIN}}
	for end := time.Now().Add(hang); ; {
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if n == 1 {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("the worker lives on: %v", err)
		}
	}
}
