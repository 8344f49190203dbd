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

// stat are the fields of /proc/PID/stat from the state on: state, parent, group,
// session. There are none of a process that has ended.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	// pid (name) state ...; the name may hold anything.
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// stateOf is a process's state, empty if it has ended.
func stateOf(pid int) string {
	if fields := stat(pid); len(fields) > 0 && fields[0] != "Z" {
		return fields[0]
	}
	return ""
}

// processes are all that are alive.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil && stateOf(pid) != "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children are the living processes whose parent is pid and whose name it is.
func children(t testing.TB, pid int, name string) (pids []int) {
	t.Helper()
	for _, child := range processes(t) {
		fields := stat(child)
		line, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/cmdline")
		if err != nil || len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if called, _, _ := strings.Cut(string(line), "\x00"); called == name {
			pids = append(pids, child)
		}
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

// inTestVM says that this is the test VM, whose processor is emulated.
var inTestVM = os.Getenv("MAF_SANDBOX_TEST_VM") != ""

// patience is a bound that only has to end a hang, or that a program must be
// able to keep: longer in the test VM.
func patience(d time.Duration) time.Duration {
	if inTestVM {
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
