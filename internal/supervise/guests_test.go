//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// asleep starts a process that ends when it is told to.
func asleep(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func TestProcessesThatAProcessHasStartedAreFound(t *testing.T) {
	child, _ := asleep(t)
	for name, find := range map[string]func(int) ([]int, error){"by the kernel's list": startedBy, "among all": searchStartedBy} {
		if pids, err := find(os.Getpid()); err != nil || !slices.Contains(pids, child) {
			t.Errorf("%s: %v without %d, %v", name, pids, child, err)
		}
		if pids, err := find(child); err != nil || len(pids) != 0 {
			t.Errorf("%s: %v started by one that starts none, %v", name, pids, err)
		}
	}
}

func TestACageIsRemovedWhenItsGuestsHaveEnded(t *testing.T) {
	_, end := asleep(t)
	c := &single{}
	if err := c.ready(os.Getpid()); err != nil || len(c.guests) == 0 {
		t.Fatalf("guests %v, %v", c.guests, err)
	}
	over, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	if err := c.remove(over); !errors.Is(err, context.DeadlineExceeded) || len(c.guests) == 0 {
		t.Errorf("a guest lives: %v, %v", c.guests, err)
	}
	end()
	if err := c.remove(context.Background()); err != nil || len(c.guests) != 0 {
		t.Errorf("they have ended: %v, %v", c.guests, err)
	}
}
