//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// theRoot is the one root of this process where it cannot make others: that of
// the operator's recipe, or the scope that systemd makes for it.
var theRoot = sync.OnceValues(func() (string, error) {
	if expect.Unprivileged.Promised() {
		return cgroup.DefaultRoot, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	s, err := cgroup.StartScope(ctx, "supervise-"+itoa(os.Getpid()), os.Getpid())
	if err != nil {
		return "", err
	}
	r, err := cgroup.Settle(s.Path)
	if err != nil {
		return "", err
	}
	return s.Path, r.Close()
})

// memoryRoot gives theRoot in the test VM, or makes a root for control groups
// below the folder that MAF_SANDBOX_TEST_CGROUP names, or below the cgroup v2
// mount.
func memoryRoot(t *testing.T) string {
	t.Helper()
	if expect.Unprivileged.Promised() || expect.Systemd.Promised() {
		root, err := theRoot()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if n := groups(t, root); n != 0 {
				t.Errorf("%d groups are left", n)
			}
		})
		return root
	}
	for _, parent := range []string{os.Getenv("MAF_SANDBOX_TEST_CGROUP"), "/sys/fs/cgroup"} {
		var fs unix.Statfs_t
		if parent == "" || unix.Statfs(parent, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		// Harmless where it is on already, impossible where it does not exist.
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0)
		dir, err := os.MkdirTemp(parent, "maf-sandbox-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := unix.Rmdir(dir); err != nil {
				t.Errorf("something is left in %s: %v", dir, err)
			}
		})
		r, err := cgroup.Open(dir)
		if err != nil {
			expect.Cgroup.Skip(t, "needs a usable control group: %v", err)
		}
		defer func() { _ = r.Close() }()
		if err := r.Memory(); err != nil {
			expect.Cgroup.Skip(t, "needs the memory controller: %v", err)
		}
		return dir
	}
	expect.Cgroup.Skip(t, "needs a cgroup v2 folder that can be written to")
	return ""
}

func groups(t *testing.T, root string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "worker-*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestWorkerHasAControlGroupUntilItIsConfirmedGone(t *testing.T) {
	root := memoryRoot(t)
	s := begin(t, func(c *Config) {
		c.Start.Image, c.Limits = "is stubborn", Limits{Enforcement: Cgroup, Root: root, MemoryMax: 256 << 20}
	})
	w, f := acquire(t, s)
	found, err := filepath.Glob(filepath.Join(root, "worker-*", "cgroup.procs"))
	if err != nil || len(found) != 1 {
		t.Fatalf("groups %q, %v", found, err)
	}
	if b, err := os.ReadFile(found[0]); err != nil || string(b) != itoa(f.PID)+"\n" {
		t.Errorf("the group has %q, %v; want %d", b, err, f.PID)
	}
	release(t, w)
	if n := groups(t, root); n != 0 {
		t.Errorf("%d groups after the release", n)
	}
	w, f = acquire(t, s)
	watch(t, f.PID).signal(t, unix.SIGKILL)
	await(t, "the worker's end", w.Done())
	release(t, w)
	if n := groups(t, root); n != 0 {
		t.Errorf("%d groups after the worker's end", n)
	}
	if err := s.Close(bound(t)); err != nil {
		t.Fatal(err)
	}
}

func TestWorkerThatReachesItsMemoryLimitIsToldSo(t *testing.T) {
	root := memoryRoot(t)
	s := begin(t, func(c *Config) {
		c.Start.Image, c.Limits = "eats", Limits{Enforcement: Cgroup, Root: root, MemoryMax: 64 << 20}
	})
	sibling, _ := acquire(t, s)
	w, _ := acquire(t, s)
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker's end", w.Done())
	var g *GoneError
	if !errors.As(w.Cause(), &g) || !g.OutOfMemory || g.Signal != int(unix.SIGKILL) {
		t.Errorf("cause %v", w.Cause())
	}
	select {
	case <-sibling.Done():
		t.Errorf("another ended, too: %v", sibling.Cause())
	default:
	}
	if err := s.Close(bound(t)); err != nil {
		t.Fatal(err)
	}
}
