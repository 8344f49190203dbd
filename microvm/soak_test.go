package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// soakEnv is how long TestNothingGrowsWhateverSandboxesDo goes on, such as 5m.
const soakEnv = "MAF_SANDBOX_SOAK"

// held is what the host and its supervisor have of everything that can leak.
type held struct {
	host, supervisor int // descriptors
	goroutines       int
	heap, resident   int // of the host and of the supervisor, in KiB
}

// heldNow looks once nothing is under way any more.
func heldNow(t *testing.T) (h held) {
	t.Helper()
	debug.FreeOSMemory() // what the collector keeps is no leak
	all := supervisors(t)
	if len(all) != 1 {
		t.Fatalf("supervisors %v", all)
	}
	h.host, h.supervisor = descriptorsOf(t, os.Getpid()), descriptorsOf(t, all[0])
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	h.heap, h.resident = int(memory.HeapAlloc>>10), residentOf(t, all[0]) //nolint:gosec // KiB fit
	h.goroutines = runtime.NumGoroutine()
	return h
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// residentOf is how much memory a process has, in KiB.
func residentOf(t *testing.T, pid int) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// soaked is one key's sandbox under all that can happen to it.
type soaked struct {
	b      *Backend
	key    sandbox.Key
	spec   sandbox.Spec
	random *rand.Rand
}

// step does one thing to the sandbox of the key, whose worker anybody may kill.
// The error is something that cannot be excused with that.
func (s *soaked) step(t *testing.T) (what string, err error) {
	ctx := context.Background()
	one, err := s.b.Get(ctx, s.key, s.spec)
	if err != nil && strings.Contains(err.Error(), "ended by signal 9") {
		return "acquire", nil
	}
	if err != nil {
		return "acquire", err
	}
	run := func(code, want string, class error) error {
		r, err := one.RunCode(ctx, code, patience(20*time.Second))
		if err == nil && (class != nil || string(r.Stdout) != want) || err != nil && !errors.Is(err, class) {
			return fmt.Errorf("printed %.40q, %w", r.Stdout, err)
		}
		return nil
	}
	what = "run"
	switch s.random.IntN(14) {
	case 0, 1, 2:
		err = run("print(6*7)", "42\n", nil)
	case 3, 4:
		what, err = "call", run("print(call_tool('echo', a=[1, 'x' * 100000])['a'][0])", "1\n", nil)
	case 5:
		what, err = "exception", run("import sys; sys.exit('no' * 1000)", "", nil)
	case 6, 7, 8:
		what, err = "reset", one.Reset(ctx)
	case 9: // cut short by a caller that gives up, wherever the program is then
		what = "cancel"
		ctx, cancel := context.WithTimeout(ctx, time.Duration(s.random.IntN(3000))*time.Microsecond)
		_, err = one.RunCode(ctx, "while True: call_tool('echo', a=1)", time.Hour)
		cancel()
		if errors.Is(err, sandbox.ErrTimeout) || errors.Is(err, sandbox.ErrQueuedTimeout) {
			err = nil
		}
	case 10:
		what, err = "output", run("while True: print('y' * 4096)", "", sandbox.ErrOutputLimit)
	case 11:
		what = "kill"
		if all := workers(t); len(all) > 0 {
			_ = unix.Kill(all[s.random.IntN(len(all))], unix.SIGKILL)
		}
	case 12:
		what, err = "dispose", s.b.Dispose(ctx, s.key, sandbox.DisposeOptions{})
	case 13:
		what = "exit"
		err = run("import os; os._exit(7)", "", sandbox.ErrGuestCrash)
	}
	if errors.Is(err, sandbox.ErrWorkerLost) {
		err = nil // the killer's doing
	}
	return what, err
}

// TestNothingGrowsWhateverSandboxesDo lives the lives of several sandboxes side by
// side: runs, calls of tools, resets, overruns, disposals, and workers that are
// killed. MAF_SANDBOX_SOAK is how long it goes on.
func TestNothingGrowsWhateverSandboxesDo(t *testing.T) {
	const loops, warmUp, spare = 3, 100, 1
	steps := int64(600)
	if testing.Short() {
		steps = 200
	}
	var until time.Time
	if v := os.Getenv(soakEnv); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		until = time.Now().Add(d)
	}
	tools, err := sandbox.NewHostTools(sandbox.Tool{
		Name: "echo", Call: func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	with := spec()
	with.Requires, with.HostTools = with.Requires.With(sandbox.CapHostTools), tools
	b := open(t, func(c *Config) { c.Pool, c.Grace = spare, patience(time.Second) })

	var done atomic.Int64
	var mu sync.Mutex
	counts := map[string]int{} // guarded by mu
	round := func(seed uint64, goOn func() bool) {
		var group sync.WaitGroup
		for i := range loops {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable on purpose
				one := &soaked{b, numbered(i), with, random}
				for goOn() {
					what, err := one.step(t)
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					mu.Lock()
					counts[what]++
					mu.Unlock()
					done.Add(1)
				}
			})
		}
		group.Wait()
		if p := b.DisposeScope(t.Context(), key().Scope, key().ThreadID); p.Err() != nil {
			t.Error(p.Err())
		}
		// A spare one that was killed is not replaced by itself.
		ask(t, get(t, b, key()))
		if err := b.Dispose(t.Context(), key(), sandbox.DisposeOptions{}); err != nil {
			t.Error(err)
		}
		// It is ready a moment before its sockets are here.
		var last footprint
		since := time.Now()
		eventually(t, "one spare worker and no other", func() bool {
			if now := footprintNow(t); now != last {
				last, since = now, time.Now()
			}
			return len(workers(t)) == spare && time.Since(since) > 300*time.Millisecond
		})
	}
	round(1, func() bool { return done.Load() < warmUp })
	before := heldNow(t)
	round(2, func() bool { return done.Load() < steps || time.Now().Before(until) })
	deadline := time.Now().Add(patience(20 * time.Second))
	more := func(after held) bool {
		return after.host > before.host || after.supervisor > before.supervisor || after.goroutines > before.goroutines
	}
	after := heldNow(t)
	for ; more(after) && time.Now().Before(deadline); after = heldNow(t) {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d steps, %v; before %+v, after %+v", done.Load(), counts, before, after)
	if more(after) {
		t.Error("more descriptors or goroutines than before")
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	// The supervisor's Go runtime does not give everything back, and the race detector
	// remembers more; a leak grows with the steps.
	const heapSlack, residentSlack = 4 << 10, 24 << 10
	if after.heap > before.heap+heapSlack || after.resident > before.resident+residentSlack {
		t.Errorf("memory before %+v, after %+v", before, after)
	}
	if asked, answers := b.asked.used, b.answers.used; asked != 0 || answers != 0 || b.calls.Left() != 0 {
		t.Errorf("%d bytes asked and %d answered are still counted, and %d calls of tools", asked, answers, b.calls.Left())
	}
}
