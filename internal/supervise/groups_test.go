//go:build linux

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plainGroup makes a group to be a root: below the folder that
// MAF_SANDBOX_TEST_CGROUP names, or below a cgroup v2 mount. If there is none
// the test is skipped when it needs one; else it is given nothing.
func plainGroup(t *testing.T, needed bool) string {
	t.Helper()
	for _, parent := range []string{os.Getenv("MAF_SANDBOX_TEST_CGROUP"), "/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if parent == "" || unix.Statfs(parent, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		// Harmless where they are on already, impossible where they do not exist.
		for _, c := range []string{"+memory", "+pids"} {
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte(c), 0)
		}
		dir, err := os.MkdirTemp(parent, "maf-sandbox-test-")
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
	if needed {
		t.Skip("needs a cgroup v2 folder that can be written to")
	}
	return ""
}

func TestChildThatLeavesItsSessionEndsWithItsWorker(t *testing.T) {
	// A worker in its jail cannot have one at all.
	for _, end := range []string{"released", "killed"} {
		t.Run(end, func(t *testing.T) {
			root := plainGroup(t, true)
			s := begin(t, func(c *Config) {
				c.Start.Image, c.Limits.Enforcement, c.Limits.Root = "has a child", Cgroup, plainRoot+root
			})
			w, f := acquire(t, s)
			worker, child := watch(t, f.PID), watch(t, f.Child)
			if end == "killed" {
				worker.signal(t, unix.SIGKILL)
				await(t, "the worker's end", w.Done())
				// Nobody has asked yet: what is left is ended all the same.
				eventually(t, "the child's end", child.ended)
			}
			release(t, w)
			if !worker.ended() || !child.ended() || groups(t, root) != 0 {
				t.Errorf("ended: %v, %v; %d groups", worker.ended(), child.ended(), groups(t, root))
			}
			if err := s.Close(bound(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGroupsOfAKilledSupervisorAreSweptByTheNext(t *testing.T) {
	dir, root := t.TempDir(), plainGroup(t, true)
	h := startHost(t, hostConfig{Dir: dir, Image: "has a child", Root: plainRoot + root})
	f := parse(t, h.do(t, "acquire"))
	worker, child := watch(t, f.PID), watch(t, f.Child)
	h.supervisor.signal(t, unix.SIGKILL)
	h.do(t, "await the supervisor's end")
	h.kill(t)
	if !worker.ended() || child.ended() {
		t.Fatalf("ended: %v, %v", worker.ended(), child.ended())
	}
	left, err := filepath.Glob(filepath.Join(root, "worker-*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("groups %q, %v", left, err)
	}
	// A young group may be about to be used.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	next := startHost(t, hostConfig{Dir: dir, Image: "echoes", Root: plainRoot + root})
	next.acquire(t, 1)
	eventually(t, "the end of what was left", func() bool { return child.ended() && groups(t, root) == 1 })
	next.do(t, "echo")
	next.kill(t)
	eventually(t, "the supervisor's end", next.supervisor.ended)
}

func TestThreadsOfAWorkerAreBounded(t *testing.T) {
	root := memoryRoot(t)
	s := begin(t, func(c *Config) {
		c.Start.Image, c.Limits = "has many threads", Limits{Enforcement: Cgroup, Root: root, MemoryMax: 256 << 20}
	})
	sibling, _ := acquire(t, s)
	w, _ := acquire(t, s)
	found, err := filepath.Glob(filepath.Join(root, "worker-*", "pids.max"))
	if err != nil || len(found) != 2 {
		t.Skipf("needs the pids controller: %q, %v", found, err)
	}
	if b, err := os.ReadFile(found[0]); err != nil || string(b) != itoa(maxTasks)+"\n" {
		t.Errorf("pids.max is %q, %v", b, err)
	}
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker's end", w.Done())
	var g *GoneError
	if !errors.As(w.Cause(), &g) || g.OutOfMemory || !strings.Contains(g.Diagnostics, "failed to create new OS thread") {
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

func TestEnforcementThatIsPutRightMeanwhileIsUsed(t *testing.T) {
	root := filepath.Join(plainGroup(t, true), "root")
	s := begin(t, func(c *Config) { c.Limits.Enforcement, c.Limits.Root = Cgroup, plainRoot+root })
	var e *StartError
	if _, err := s.Acquire(bound(t)); !errors.As(err, &e) || e.Kind != "unavailable" || len(e.Mend) == 0 || !strings.Contains(e.Mend[0], root) {
		t.Fatalf("error %v; %+v", err, e)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	w, _ := acquire(t, s)
	release(t, w)
	if err := errors.Join(s.Close(bound(t)), os.Remove(root)); err != nil {
		t.Error(err)
	}
}
