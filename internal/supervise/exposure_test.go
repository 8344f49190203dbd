//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// about is a file of /proc about a process.
func about(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func score(t *testing.T, pid int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(about(t, pid, "oom_score_adj")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNoHelperIsToldTheHostsSecrets(t *testing.T) {
	const secret = "a-secret-of-the-host"
	for _, name := range []string{"API_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "HTTPS_PROXY"} {
		t.Setenv(name, secret)
	}
	t.Setenv("LANG", "C")
	s := begin(t, nil)
	_, f := acquire(t, s)
	// GORACE is there in programs that look for races.
	known := []string{"PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG", "LC_ALL", "GORACE"}
	for name, h := range map[string]struct {
		pid  int
		also string
	}{"supervisor": {s.cmd.Process.Pid, runtimeVariable}, "worker": {f.PID, "GOMAXPROCS"}} {
		told := about(t, h.pid, "environ")
		if strings.Contains(told+about(t, h.pid, "cmdline"), secret) {
			t.Errorf("the %s is told: %q", name, told)
		}
		if !strings.Contains(told, "LANG=C\x00") {
			t.Errorf("the %s is not told the language: %q", name, told)
		}
		for v := range strings.SplitSeq(strings.TrimSuffix(told, "\x00"), "\x00") {
			if v, _, _ := strings.Cut(v, "="); v != h.also && !slices.Contains(known, v) {
				t.Errorf("the %s is told %s", name, v)
			}
		}
	}
}

func TestWorkersAreTheFirstToGoWhenTheMachineHasNoMemoryLeft(t *testing.T) {
	s := begin(t, func(c *Config) { c.Start.Image = "has a child" })
	w, f := acquire(t, s)
	host := score(t, os.Getpid())
	for name, c := range map[string]struct{ pid, want int }{
		"supervisor": {s.cmd.Process.Pid, host}, "worker": {f.PID, max(host, victimScore)}, "its child": {f.Child, max(host, victimScore)},
	} {
		if got := score(t, c.pid); got != c.want {
			t.Errorf("%s: oom_score_adj %d, want %d", name, got, c.want)
		}
	}
	if err := errors.Join(unix.Kill(f.Child, unix.SIGKILL), w.Release(bound(t))); err != nil {
		t.Error(err)
	}
}

func TestAScoreThatIsHigherAlreadyIsLeft(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), hostVariable+"=sleep")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	for _, n := range []struct{ is, want int }{{victimScore - 1, victimScore}, {victimScore + 300, victimScore + 300}} {
		name := fmt.Sprintf("/proc/%d/oom_score_adj", c.Process.Pid)
		if err := os.WriteFile(name, []byte(strconv.Itoa(n.is)), 0); err != nil {
			t.Skipf("needs an oom_score_adj that can be written to: %v", err)
		}
		offer(c.Process.Pid)
		if got := score(t, c.Process.Pid); got != n.want {
			t.Errorf("of %d became %d, want %d", n.is, got, n.want)
		}
	}
	offer(1 << 30) // one that has ended is no matter
}
