//go:build linux && amd64

package jail_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
)

// runAttempt is the hostile worker: it prints "ready", tries, and prints what
// came of it unless it was killed. An attempt may prepare something before.
func runAttempt(role, name string) {
	a, ok := findAttempt(name)
	if !ok {
		os.Exit(96)
	}
	if a.prepare != nil {
		a.prepare()
	}
	switch role {
	case "jailed":
		enterOrDie(jail.Spec{Keep: []int{1, 2, keptSocket}, Ioctls: []uint32{0xae80}})
	case "second-wall":
		if err := jail.EnterSecondWall(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(98)
		}
	}
	say("ready\n")
	if err := a.try(); err != nil {
		say("refused: " + err.Error() + "\n")
	} else {
		say("done\n")
	}
	os.Exit(0)
}

func say(s string) {
	if _, err := syscall.Write(1, []byte(s)); err != nil {
		os.Exit(95)
	}
}

func findAttempt(name string) (attempt, bool) {
	for _, a := range attempts {
		if a.name == name {
			return a, true
		}
	}
	return attempt{}, false
}

func result(t *testing.T, role string) (text string, status syscall.WaitStatus) {
	t.Helper()
	cmd, out := child(t, role)
	status = ending(t, cmd)
	text, ok := strings.CutPrefix(out.String(), "ready\n")
	if !ok {
		t.Fatalf("the child did not get ready: %q, %v", out, cmd.ProcessState)
	}
	return text, status
}

func TestJailedProcessIsKilledForWhatItMayNotDo(t *testing.T) {
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			text, status := result(t, "jailed:"+a.name)
			killed := status.Signaled() && status.Signal() == syscall.SIGSYS
			switch {
			case a.errno == 0 && !killed:
				t.Fatalf("ended with %#x and said %q; want death by SIGSYS", uint32(status), text)
			case a.errno != 0 && text != "refused: "+a.errno.Error()+"\n":
				t.Fatalf("ended with %#x and said %q; want %v", uint32(status), text, a.errno)
			}
		})
	}
}

// What fails in a jail proves nothing if it fails everywhere.
func TestFreeProcessCanDoIt(t *testing.T) {
	for _, a := range attempts {
		if !a.control || (a.root && os.Geteuid() != 0) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			if text, status := result(t, "free:"+a.name); text != "done\n" {
				t.Skipf("this machine does not allow it in any case: %q, status %#x", text, uint32(status))
			}
		})
	}
}

func TestSecondWallHoldsWithoutTheFilter(t *testing.T) {
	if abi := landlockABI(); abi < 5 {
		t.Skipf("needs Landlock ABI 5 or later; this kernel has %d", abi)
	}
	for _, a := range attempts {
		if !a.landlock || (a.root && os.Geteuid() != 0) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			text, status := result(t, "second-wall:"+a.name)
			want := a.second
			if want == 0 {
				want = unix.EACCES
			}
			if text != "refused: "+want.Error()+"\n" {
				t.Fatalf("ended with %#x and said %q; want %v", uint32(status), text, want)
			}
		})
	}
}

func landlockABI() int {
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(r)
}

func TestEnterRefusesWhatItCannotFollow(t *testing.T) {
	for name, spec := range map[string]jail.Spec{
		"a descriptor that is not open": {Keep: []int{1 << 20}},
		"a negative descriptor":         {Keep: []int{-1}},
		"too many descriptors":          {Keep: make([]int, jail.MaxKeep+1)},
		"too many ioctls":               {Ioctls: make([]uint32, jail.MaxIoctls+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := jail.Enter(spec); !errors.Is(err, jail.ErrSpec) {
				t.Fatalf("error %v, want ErrSpec", err)
			}
		})
	}
}
