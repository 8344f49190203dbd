package microvm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// children are the living processes whose parent is pid and whose name it is.
func children(t testing.TB, pid int, name string) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // has ended
		}
		// pid (name) state parent ...; the name may hold anything.
		stat := string(b)
		rest := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || len(rest) < 2 || rest[1] != strconv.Itoa(pid) || rest[0] == "Z" {
			continue
		}
		if called, _, _ := strings.Cut(string(line), "\x00"); called != name {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

// supervisors are the supervisors of this process, workers their workers.
func supervisors(t testing.TB) []int { return children(t, os.Getpid(), "maf-sandbox-supervisor") }

func workers(t testing.TB) (pids []int) {
	t.Helper()
	for _, s := range supervisors(t) {
		pids = append(pids, children(t, s, "maf-sandbox-worker")...)
	}
	return pids
}

func signalAll(pids []int, s unix.Signal) {
	for _, pid := range pids {
		_ = unix.Kill(pid, s) // one that has ended needs none
	}
}

// patience is a bound that only has to end a hang, or that a program must be
// able to keep: longer in the test VM, whose processor is emulated.
func patience(d time.Duration) time.Duration {
	if os.Getenv("MAF_SANDBOX_TEST_VM") != "" {
		return 12 * d
	}
	return d
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience(20 * time.Second))
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
