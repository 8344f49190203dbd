//go:build linux

package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// The test binary is its own worker: the variable names what to do.
const roleVariable = "MAF_SANDBOX_CGROUP_TEST"

// hang ends a test that would never end, in emulation on a busy machine too.
const hang = 2 * time.Minute

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "sleep":
		say()
	case "tree":
		// A child in a session of its own, which outlives its parent's group.
		c := exec.Command("/proc/self/exe")
		c.Env = []string{roleVariable + "=sleep"}
		c.Stdout = os.Stdout
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			os.Exit(3)
		}
		say()
	case "eat":
		say()
		b := make([]byte, 256<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println(len(b))
		os.Exit(0)
	case "threads":
		say()
		_ = os.Stderr.Close() // a long last word
		for range 128 {
			go func() { runtime.LockOSThread(); time.Sleep(time.Hour) }()
		}
	case "delegated":
		delegated()
	case "supervise":
		supervise()
	}
	for { // until killed
		time.Sleep(time.Hour)
	}
}

func say() { fmt.Printf("%d\n", os.Getpid()) }

// supervise makes a group, tells so, and is killed.
func supervise() {
	r, err := Open(os.Getenv("ROOT"))
	if err == nil {
		_, err = r.New(os.Getenv("NAME"), Limits{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	say()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// testFolder makes a group to be the root of one test: below the folder that
// MAF_SANDBOX_TEST_CGROUP names, or below a cgroup v2 mount. An unprivileged user
// has one root, which is its own.
func testFolder(t *testing.T) string {
	t.Helper()
	if expect.Unprivileged.Promised() {
		t.Cleanup(func() {
			if left, err := filepath.Glob(filepath.Join(DefaultRoot, prefix+"*")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
		return DefaultRoot
	}
	parents := []string{os.Getenv("MAF_SANDBOX_TEST_CGROUP"), "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
	for _, p := range parents {
		var fs unix.Statfs_t
		if p == "" || unix.Statfs(p, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC || unix.Access(p, unix.W_OK) != nil {
			continue
		}
		// Harmless where they are on already, impossible where they do not exist.
		for _, c := range []string{"+memory", "+pids"} {
			_ = os.WriteFile(filepath.Join(p, "cgroup.subtree_control"), []byte(c), 0)
		}
		dir, err := os.MkdirTemp(p, "maf-sandbox-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := unix.Rmdir(dir); err != nil {
				t.Errorf("something is left in %s: %v", dir, err)
			}
		})
		return dir
	}
	expect.Cgroup.Skip(t, "needs a cgroup v2 folder that can be written to")
	return ""
}

func testRoot(t *testing.T) *Root {
	t.Helper()
	r, err := Open(testFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// memoryRoot is a root that can limit memory.
func memoryRoot(t *testing.T) *Root {
	t.Helper()
	r := testRoot(t)
	if err := r.Memory(); err != nil {
		expect.Cgroup.Skip(t, "no memory controller: %v", err)
	}
	return r
}

func newGroup(t *testing.T, r *Root, l Limits) *Group {
	t.Helper()
	g, err := r.New("test", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := g.Kill(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EBADF) {
			t.Error(err)
		}
		if err := g.Remove(ctx); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EBADF) {
			t.Error(err)
		}
	})
	return g
}

// worker is the test binary in a role.
type worker struct {
	*exec.Cmd
	out *bufio.Reader
}

// start starts a worker, in a group unless that is nil, and waits until n
// processes of it are there.
func start(t *testing.T, role string, g *Group, n int) *worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cmd.Env, roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	if g != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd, bufio.NewReader(out)}
	t.Cleanup(func() { _ = w.Process.Kill(); _ = w.Wait() })
	for range n {
		if s, err := w.out.ReadString('\n'); err != nil {
			t.Fatalf("%q, %v", s, err)
		}
	}
	return w
}

// groupOf is the cgroup v2 path of a process.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut("\n"+string(b), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	return path
}
