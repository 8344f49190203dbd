//go:build linux

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needsSystemd skips a test where systemd is not process 1, or may not be asked:
// the test VM says that it may.
func needsSystemd(t *testing.T) {
	t.Helper()
	if !strings.Contains(os.Getenv("MAF_SANDBOX_TEST_EXPECT"), "systemd") {
		t.Skip("needs systemd as process 1: runs in the test VM")
	}
}

// groupOf is the folder of a process's control group.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut("\n"+string(b), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	return filepath.Join("/sys/fs/cgroup", path)
}

func TestControlGroupsOfSystemdAreGoneWhateverEnds(t *testing.T) {
	needsSystemd(t)
	for name, end := range map[string]func(*testing.T, *host){
		"the host closes":          func(t *testing.T, h *host) { h.do(t, "begin to close") },
		"the host is killed":       func(t *testing.T, h *host) { h.kill(t) },
		"the supervisor is killed": func(t *testing.T, h *host) { h.supervisor.signal(t, unix.SIGKILL) },
		"both are killed":          ends[2].end,
	} {
		t.Run(name, func(t *testing.T) {
			h := startHost(t, hostConfig{Dir: t.TempDir(), Image: "is stubborn", Spare: 1, Systemd: true})
			f := parse(t, h.do(t, "acquire"))
			h.workers = append(h.workers, watch(t, f.PID))
			supervisor, worker := groupOf(t, h.pid), groupOf(t, f.PID)
			scope := filepath.Dir(worker)
			if !strings.HasSuffix(scope, ".scope") || filepath.Dir(supervisor) != scope || !strings.HasPrefix(filepath.Base(scope), "maf-sandbox-") {
				t.Fatalf("the supervisor is in %s, the worker in %s", supervisor, worker)
			}
			if at := groupOf(t, h.cmd.Process.Pid); strings.HasPrefix(at, scope) {
				t.Errorf("the host is in %s", at)
			}
			for file, want := range map[string]string{"memory.max": "4294967296\n", "memory.swap.max": "0\n", "pids.max": "64\n"} {
				if b, err := os.ReadFile(filepath.Join(worker, file)); string(b) != want {
					t.Errorf("%s is %q, %v", file, b, err)
				}
			}
			end(t, h)
			eventually(t, "the end of all", func() bool { return h.supervisor.ended() && allEnded(h.workers) })
			eventually(t, "no scope", func() bool { _, err := os.Stat(scope); return errors.Is(err, os.ErrNotExist) })
		})
	}
}

func TestMemoryLimitHoldsInAScopeOfSystemd(t *testing.T) {
	needsSystemd(t)
	s := begin(t, func(c *Config) {
		c.Start.Image, c.Limits = "eats", Limits{Enforcement: Systemd, MemoryMax: 64 << 20}
	})
	w, _ := acquire(t, s)
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker's end", w.Done())
	var g *GoneError
	if !errors.As(w.Cause(), &g) || !g.OutOfMemory {
		t.Errorf("cause %v", w.Cause())
	}
}

func TestSystemdThatIsNotThereIsToldSo(t *testing.T) {
	if unix.Access("/run/dbus/system_bus_socket", unix.W_OK) == nil {
		t.Skip("needs a machine without the system's message bus")
	}
	t.Setenv(runtimeVariable, t.TempDir())
	s := begin(t, func(c *Config) { c.Limits = Limits{Enforcement: Systemd, MemoryMax: 1 << 30} })
	for range 2 {
		var e *StartError
		if _, err := s.Acquire(bound(t)); !errors.As(err, &e) || e.Kind != "unavailable" ||
			!strings.Contains(e.Message, "no delegated group from systemd") || !strings.Contains(e.Message, os.Getenv(runtimeVariable)) {
			t.Errorf("error %v", err)
		}
	}
}
