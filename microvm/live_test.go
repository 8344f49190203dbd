package microvm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// open makes a live backend that is closed after the test.
func open(t testing.TB, change func(*Config)) *Backend {
	t.Helper()
	c := live(t)
	if change != nil {
		change(&c)
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func get(t testing.TB, b *Backend, k sandbox.Key) *Sandbox {
	t.Helper()
	s, err := b.Get(context.Background(), k, spec())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// prints runs a program that must succeed and gives what it printed.
func prints(t testing.TB, s *Sandbox, code string) string {
	t.Helper()
	r, err := s.RunCode(t.Context(), code, patience(20*time.Second))
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%.60q: exit %d, stderr %q, %v", code, r.ExitCode, r.Stderr, err)
	}
	return string(r.Stdout)
}

func TestAWorkerThatIsKilledCostsItsSandboxOnly(t *testing.T) {
	b := open(t, nil)
	other := get(t, b, numbered(1))
	prints(t, other, "x = 1")
	others := workers(t)
	s := get(t, b, key())
	running := make(chan error, 1)
	go func() {
		_, err := s.RunCode(context.Background(), "while True: pass", time.Hour)
		running <- err
	}()
	for _, pid := range workers(t) {
		if pid != others[0] {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	err := <-running
	if !errors.Is(err, sandbox.ErrWorkerLost) || sandbox.Usable(err) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the run: %v", err)
	}
	if got := prints(t, other, "print(x)"); got != "1\n" {
		t.Errorf("the other sandbox: %q", got)
	}
	again := get(t, b, key())
	if again.ID() == s.ID() {
		t.Error("the id came again")
	}
	ask(t, again)
}

func TestAnIdleWorkerThatIsKilledIsReplaced(t *testing.T) {
	b := open(t, func(c *Config) { c.Pool = 2 })
	s := get(t, b, key())
	ask(t, s)
	eventually(t, "the pool is full", func() bool { return len(workers(t)) == 3 })
	killed := workers(t) // the sandbox's and the spare ones
	signalAll(killed, unix.SIGKILL)
	for _, pid := range killed { // until then one may be given out that is dying
		eventually(t, "a killed worker is gone", func() bool { return len(stat(pid)) == 0 })
	}
	eventually(t, "the sandbox is known to be lost", func() bool { return !s.alive() })
	again := get(t, b, key())
	ask(t, again)
	if again.ID() == s.ID() {
		t.Error("the id came again")
	}
}

func TestASupervisorThatIsKilledIsReplaced(t *testing.T) {
	b := open(t, func(c *Config) { c.Pool = 1 })
	s := get(t, b, key())
	running := make(chan error, 1)
	go func() {
		_, err := s.RunCode(context.Background(), "while True: pass", time.Hour)
		running <- err
	}()
	signalAll(supervisors(t), unix.SIGKILL)
	if err := <-running; !errors.Is(err, sandbox.ErrWorkerLost) {
		t.Errorf("the run: %v", err)
	}
	ask(t, get(t, b, key()))
	if p := b.DisposeScope(t.Context(), "tenant", "thread"); p.Disposed != 1 || p.Undisposed != nil {
		t.Errorf("purge: %+v", p)
	}
}

// footprint is what a process has of everything that can leak.
type footprint struct{ descriptors, helpers, goroutines int }

func footprintNow(t testing.TB) footprint {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return footprint{len(fds), len(supervisors(t)) + len(workers(t)), runtime.NumGoroutine()}
}

func TestCyclesWithKillsLeaveNothing(t *testing.T) {
	cycles := 500
	if testing.Short() {
		cycles = 50
	}
	b := open(t, func(c *Config) { c.Pool = 2 })
	// A spare worker is ready a moment before its sockets are here, and on a busy
	// machine that moment is long.
	const still = 2 * time.Second
	var last footprint
	since := time.Now()
	settled := func() bool {
		if now := footprintNow(t); now != last {
			last, since = now, time.Now()
		}
		return len(workers(t)) == 2 && time.Since(since) > still
	}
	ask(t, get(t, b, key()))
	if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is full", settled)
	before := footprintNow(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
	for i := range cycles {
		s := get(t, b, key())
		if i%10 == 9 {
			all := workers(t)
			if len(all) > 0 {
				_ = unix.Kill(all[random.IntN(len(all))], unix.SIGKILL)
			}
		}
		if r, err := s.RunCode(t.Context(), "print(6*7)", 0); err != nil && !errors.Is(err, sandbox.ErrWorkerLost) || err == nil && string(r.Stdout) != "42\n" {
			t.Fatalf("cycle %d: %q, %v", i, r.Stdout, err)
		}
		if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
	}
	eventually(t, "the pool is full again", settled)
	var after footprint
	deadline := time.Now().Add(patience(20 * time.Second))
	for after = footprintNow(t); after != before && time.Now().Before(deadline); after = footprintNow(t) {
		time.Sleep(10 * time.Millisecond)
	}
	if after != before {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestManyAcquireAtTheSameTime(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 12
	}
	b := open(t, func(c *Config) { c.Pool = 4; c.StartupTimeout = patience(60 * time.Second) })
	failed := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			s, err := b.Acquire(t.Context(), numbered(i), spec())
			if err == nil {
				var r sandbox.ExecResult
				r, err = s.RunCode(t.Context(), fmt.Sprint("print(", i, ")"), patience(30*time.Second))
				if err == nil && string(r.Stdout) != fmt.Sprintln(i) {
					err = fmt.Errorf("printed %q", r.Stdout)
				}
			}
			failed[i] = err
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	if p := b.DisposeScope(t.Context(), key().Scope, key().ThreadID); p.Disposed != n || p.Undisposed != nil {
		t.Errorf("purge: %+v", p)
	}
	eventually(t, "only spare workers are left", func() bool { return len(workers(t)) <= 4 })
}

func TestAProgramSeesNothingOfItsHost(t *testing.T) {
	t.Setenv("MICROVM_SECRET", "hush")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, nil)
	s := get(t, b, key())
	got := prints(t, s, `
import os, socket
print(sorted(os.environ))
print(os.listdir('/'), os.getcwd(), os.uname())
for path in ['/proc/self/environ', '/etc/passwd', '/etc/hostname', '/proc/cpuinfo']:
    try: print(path, open(path).read())
    except OSError as e: print(path, e)
`)
	for _, secret := range []string{"hush", "MICROVM_SECRET", host + "'", b.config.CacheDir} {
		if strings.Contains(got, secret) {
			t.Errorf("%q is visible in %s", secret, got)
		}
	}
	if _, err := os.Stat("/etc/shadow"); err == nil && prints(t, s, "import os; print(os.path.exists('/etc/shadow'))") != "False\n" {
		t.Error("a file of the host is visible")
	}
}

func TestRunsOfASandboxQueueAndTheirTimeIsCounted(t *testing.T) {
	b := open(t, nil)
	hold := make(chan struct{})
	s, err := b.Get(t.Context(), key(), tooled(t, hold))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, s)
	busy := make(chan error, 1)
	go func() {
		_, err := s.RunCode(context.Background(), "call_tool('held')", patience(time.Minute))
		busy <- err
	}()
	eventually(t, "a run that waits too long is told apart", func() bool {
		_, err := s.RunCode(t.Context(), "print(1)", 20*time.Millisecond)
		return errors.Is(err, sandbox.ErrQueuedTimeout)
	})
	close(hold)
	if err := <-busy; err != nil {
		t.Error(err)
	}
}

func TestAnExitOfTheInterpreterIsToldWithItsStatus(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	r, err := s.Run(t.Context(), Request{Code: "import os; print('x', flush=True); os._exit(7)"})
	if !errors.Is(err, sandbox.ErrGuestCrash) || sandbox.Usable(err) || !r.Exited || r.ExitCode != 7 || string(r.Stdout) != "x\n" {
		t.Errorf("%+v, %v", r, err)
	}
	ask(t, get(t, b, key()))
}

func TestAProgramHasTheArgumentsOfItsRunOnly(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	most := strings.Repeat("x", MaxArgv-len("\x00a\x00"))
	for _, c := range []struct {
		argv []string
		code string
		want string
	}{
		{[]string{"prog.py", "", "b\xff\n"}, "import sys; print(sys.argv)", `['prog.py', '', 'b\udcff\n']`},
		{[]string{"a", most}, "print(len(sys.argv[1]))", strconv.Itoa(len(most))},
		{nil, "print(sys.argv)", `['']`},
	} {
		r, err := s.Run(t.Context(), Request{Code: c.code, Argv: c.argv})
		if got := strings.TrimSuffix(string(r.Stdout), "\n"); err != nil || got != c.want {
			t.Errorf("%.40q: got %q, %v, want %q", c.argv, got, err, c.want)
		}
	}
	for _, argv := range [][]string{{"a", most + "x"}, make([]string, MaxArgv+1), {"a\x00b"}} {
		_, err := s.Run(t.Context(), Request{Argv: argv})
		var refusal *sandbox.RefusalError
		if !errors.As(err, &refusal) || refusal.Subject != "argv" || !sandbox.Usable(err) {
			t.Errorf("%.40q: %v", argv, err)
		}
	}
}

func TestTheLargestProgramGoesWithTheMostArguments(t *testing.T) {
	b := open(t, func(c *Config) { c.MaxCode = MaxMaxCode })
	code := "import sys; print(len(sys.argv[0])) #"
	r, err := get(t, b, key()).Run(t.Context(), Request{
		Code: code + strings.Repeat("x", MaxMaxCode-len(code)), Argv: []string{strings.Repeat("x", MaxArgv-1)},
	})
	if want := strconv.Itoa(MaxArgv-1) + "\n"; err != nil || string(r.Stdout) != want {
		t.Errorf("%q, %v", r.Stdout, err)
	}
}

func TestOutputArrivesWhileTheProgramRuns(t *testing.T) {
	b := open(t, nil)
	s := get(t, b, key())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := writerFunc(func(p []byte) {
		if strings.Contains(string(p), "begun") {
			cancel() // only a run under way can have said so
		}
	})
	r, err := s.Run(ctx, Request{Code: "print('begun', flush=True)\nwhile True: pass", Stdout: seen, Timeout: time.Hour})
	if !errors.Is(err, sandbox.ErrCanceled) || string(r.Stdout) != "begun\n" {
		t.Errorf("%q, %v", r.Stdout, err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// A traced guest has a process of its own, which ends a moment after its worker.
func TestADisposalIsConfirmedWhenTheGuestsProcessHasEndedToo(t *testing.T) {
	if testEngine() != EnginePtrace {
		t.Skipf("needs engine ptrace, chosen by %s", hosttest.Env)
	}
	b := open(t, nil)
	for _, how := range []string{"disposed", "killed"} {
		for range 10 {
			ask(t, get(t, b, key()))
			worker := workers(t)[0]
			guests := children(t, worker, "")
			if len(guests) != 1 {
				t.Fatalf("guests %v", guests)
			}
			guest, err := unix.PidfdOpen(guests[0], 0)
			if err != nil {
				t.Fatal(err)
			}
			if how == "killed" {
				if err := unix.Kill(worker, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
				t.Fatal(err)
			}
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(guest), Events: unix.POLLIN}}, 0); n != 1 || err != nil {
				t.Errorf("%s: the guest's process has not ended, %v", how, err)
			}
			_ = unix.Close(guest)
		}
	}
}

// dataSize is what RLIMIT_DATA counts of a process, in bytes.
func dataSize(t *testing.T, pid int) (size int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmData:")
	if _, err := fmt.Sscan(rest, &size); err != nil {
		t.Fatalf("VmData of %d: %v", pid, err)
	}
	return size << 10
}

func TestTheCeilingIsTheOneThatWasAskedFor(t *testing.T) {
	b := open(t, func(c *Config) { c.WorkerMemory = 1 << 30 })
	s := get(t, b, key())
	ask(t, s)
	got := s.Info()
	if got.Limits != enforcement() || got.Engine != string(testEngine()) || got.Isolation != b.Isolation().String() {
		t.Errorf("info %+v, the backend says isolation %s", got, b.Isolation())
	}
	all := workers(t)
	if len(all) != 1 {
		t.Fatalf("workers %v", all)
	}
	// A traced guest has a process of its own, whose part the worker does without.
	guests := int64(0)
	for _, guest := range children(t, all[0], "") {
		guests += dataSize(t, guest)
	}
	name, want := fmt.Sprintf("/proc/%d/limits", all[0]), fmt.Sprintf("Max data size             %d ", int64(1<<30)-guests)
	if traced := got.Engine == string(EnginePtrace); traced != (guests >= b.config.Memory) {
		t.Errorf("engine %s, and guests with %d bytes", got.Engine, guests)
	}
	if enforcement() != EnforceRlimit {
		own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", all[0]))
		if err != nil {
			t.Fatal(err)
		}
		_, group, _ := strings.Cut(strings.TrimSpace(string(own)), "::")
		name, want = "/sys/fs/cgroup"+group+"/memory.max", "1073741824"
	}
	limit, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(limit), want) {
		t.Errorf("%s does not have %q: %s, %v", name, want, limit, err)
	}
}
