//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

func TestRootThatIsNoneIsRefusedWithTheReason(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, found, need string }{
		{"relative", "not an absolute path", "/sys/fs/cgroup"},
		{dir + "\x00", "not an absolute path", ""},
		{filepath.Join(dir, "absent"), "does not exist", "delegated"},
		{filepath.Join(dir, "link"), "symbolic link", "folder"},
		{filepath.Join(dir, "file"), "not a folder", "folder"},
		{dir, "file system of type 0x", "0x63677270"},
	} {
		_, err := Open(c.path)
		var setup *SetupError
		if !errors.As(err, &setup) || !errors.Is(err, ErrSetup) {
			t.Fatalf("%q: %v", c.path, err)
		}
		if !strings.Contains(setup.Found, c.found) || !strings.Contains(setup.Need, c.need) || !strings.Contains(err.Error(), c.found) {
			t.Errorf("%q: %v", c.path, err)
		}
		if filepath.IsAbs(c.path) && !strings.Contains(c.path, "\x00") && len(setup.Mend) == 0 {
			t.Errorf("%q: nothing mends it", c.path)
		}
	}
}

func TestLimitWithoutTheControllerIsRefused(t *testing.T) {
	r := testRoot(t)
	if r.Memory() == nil {
		t.Skip("needs a hierarchy without the memory controller")
	}
	_, err := r.New("x", Limits{MemoryMax: 64 << 20})
	var setup *SetupError
	if !errors.As(err, &setup) || !strings.Contains(err.Error(), "memory controller") {
		t.Errorf("error %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.Path(), "worker-*")); err != nil || left != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestImpossibleLimitsAreRefused(t *testing.T) {
	r := testRoot(t)
	for _, n := range []int64{-1, 1, int64(os.Getpagesize()) - 1} {
		if _, err := r.New("x", Limits{MemoryMax: n}); !errors.Is(err, ErrLimit) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestOperatorsRecipe(t *testing.T) {
	want := []string{
		"sudo mkdir -p /sys/fs/cgroup/maf-sandbox/host",
		"echo +memory +pids | sudo tee /sys/fs/cgroup/cgroup.subtree_control",
		"echo +memory +pids | sudo tee /sys/fs/cgroup/maf-sandbox/cgroup.subtree_control",
		"sudo chown ann /sys/fs/cgroup/maf-sandbox /sys/fs/cgroup/maf-sandbox/cgroup.procs",
		"echo $$ | sudo tee /sys/fs/cgroup/maf-sandbox/host/cgroup.procs",
	}
	if got := Recipe(DefaultRoot, "ann"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Recipe("/sys/fs/cgroup/it's", "ann; reboot"); !strings.Contains(got[3], `'ann; reboot' '/sys/fs/cgroup/it'\''s'`) {
		t.Errorf("%q", got[3])
	}
}

func TestSettleMovesProcessesOutOfTheWay(t *testing.T) {
	if expect.Unprivileged.Promised() {
		t.Skip("needs a root that holds processes; the recipe's holds none")
	}
	dir := testFolder(t)
	w := start(t, "sleep", nil, 1)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	r, err := Settle(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.Process.Kill()
		_ = w.Wait()
		if err := errors.Join(os.Remove(filepath.Join(dir, "host")), r.Close()); err != nil {
			t.Error(err)
		}
	})
	if at := groupOf(t, w.Process.Pid); !strings.HasSuffix(at, filepath.Base(dir)+"/host") {
		t.Errorf("the process is in %s", at)
	}
}
