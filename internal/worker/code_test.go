//go:build linux && amd64

package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// sharedCode gives the inode of the file that a process has mapped for code in
// large pages, and how it is mapped; empty for none.
func sharedCode(t *testing.T, pid int) (inode, rights string) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("only root can look into a jailed process")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) > 5 && f[5] == "/memfd:code" {
			return f[4], f[1]
		}
	}
	return "", ""
}

func TestWorkersOfASupervisorShareCodeAndCannotReachIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s := supervisor(ctx, t, host.KVM)
	first := acquire(ctx, t, s) // it may have made the template, and has no code to share then
	one, other := acquire(ctx, t, s), acquire(ctx, t, s)
	a, rights := sharedCode(t, one.PID)
	if a == "" {
		t.Skip("the code of this Python fills no large page, or this kernel has none to give")
	}
	if b, _ := sharedCode(t, other.PID); a != b || rights != "rw-p" {
		t.Errorf("files %s, %s, mapped %s", a, b, rights)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", one.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", one.PID, fd.Name())); err != nil || strings.HasPrefix(to, "/memfd:code") {
			t.Errorf("descriptor %s is %s, %v", fd.Name(), to, err)
		}
	}
	c := newClient(t, one)
	c.run(1, "print(6 * 7)")
	if f := c.next(wire.KindStdout, 1, nil); string(f.Payload) != "42\n" {
		t.Errorf("stdout %q", f.Payload)
	}
	c.done(1)
	for _, w := range []interface{ Release(context.Context) error }{first, one, other} {
		if err := w.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}
