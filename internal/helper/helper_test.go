//go:build linux

package helper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Register("lists", 2, func() error {
		for fd := range 64 {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				fmt.Printf("inherits %d\n", fd)
			} else if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && strings.HasPrefix(target, "socket:") {
				fmt.Printf("has %d\n", fd)
			}
		}
		for _, v := range os.Environ() {
			fmt.Println(v)
		}
		return nil
	})
	Register("finds", 1, func() error {
		entries, err := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(target, "/proc/") {
				fmt.Println(e.Name(), target)
			}
		}
		return err
	})
	Register("fails", 1, func() error { return errors.New("no luck") })
	Main()
	if os.Getenv("LANG") == "helper" {
		fmt.Println("no helper")
		os.Exit(9)
	}
	os.Exit(m.Run())
}

func socket(t *testing.T) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a
}

func TestHelperHasWhatItWasGivenAndNoMore(t *testing.T) {
	t.Setenv("LANG", "helper")
	t.Setenv("SECRET", "x")
	c := Command("lists", "", socket(t), socket(t), socket(t))
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if got, want := lines[:min(5, len(lines))], []string{"inherits 0", "inherits 1", "inherits 2", "has 3", "has 4"}; !slices.Equal(got, want) {
		t.Errorf("descriptors %q, want %q", got, want)
	}
	for _, l := range lines[min(5, len(lines)):] {
		if name, _, _ := strings.Cut(l, "="); !slices.Contains(environment, name) {
			t.Errorf("also %q", l)
		}
	}
	if !slices.Contains(lines, "LANG=helper") {
		t.Errorf("the language is missing: %q", lines)
	}
}

// opened is what a package of the host opens when it is initialised, here, in
// every process of this program.
var opened, _ = os.OpenFile(os.TempDir(), os.O_RDONLY, 0)

func TestHelperHasNothingThatInitFunctionsOpened(t *testing.T) {
	if opened == nil {
		t.Fatal("nothing was opened")
	}
	out, err := Command("finds", "", socket(t)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		_, target, _ := strings.Cut(strings.TrimSpace(line), " ")
		if target != os.DevNull && !strings.HasPrefix(target, "socket:") && !strings.HasPrefix(target, "pipe:") && !strings.HasPrefix(target, "anon_inode:") {
			t.Errorf("the helper has %s", line)
		}
	}
}

func TestHelperThatFailsSaysWhy(t *testing.T) {
	c := Command("fails", "", socket(t))
	var said strings.Builder
	c.Stderr = &said
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != 1 || said.String() != "maf-sandbox-fails: no luck\n" {
		t.Errorf("%v, %q", err, said.String())
	}
}

func TestProgramThatIsNoHelperIsLeftAlone(t *testing.T) {
	t.Setenv("LANG", "helper")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, c := range map[string]struct {
		role string
		file *os.File
	}{"unknown role": {"dances", socket(t)}, "no socket": {"lists", null}} {
		if out, _ := Command(c.role, "", c.file).Output(); string(out) != "no helper\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
	own := Command("lists", "", socket(t))
	own.Args[0] = "lists"
	if out, _ := own.Output(); string(out) != "no helper\n" {
		t.Errorf("its own name: %q", out)
	}
}
