//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWorkerThatCannotStartSaysWhy(t *testing.T) {
	for _, c := range []struct{ does, kind, text string }{
		{"refuses", "unavailable", "no machine"},
		{"crashes", "internal", "before it was ready: the worker ended with exit code 3: boom"},
		{"needs more memory", "memory", "memory limit"},
		{"babbles", "internal", "wire protocol violated"},
		{"sends another frame", "internal", "instead of ready"},
		{"sends too much", "internal", "65537 bytes"},
		{"claims too much", "internal", "4294967295 bytes"},
		{"is ready in no language", "internal", "cbor"},
		{"breaks off", "internal", "connection was closed"},
		{"closes its socket", "internal", "connection was closed"},
		{"is mute", "internal", "not within 150ms"},
		{"is late", "internal", "not within 150ms"},
	} {
		t.Run(c.does, func(t *testing.T) {
			s := begin(t, func(k *Config) {
				k.Start.Image, k.Spare = c.does, 1
				if strings.HasSuffix(c.text, "ms") {
					k.StartTimeout, k.Start.Grace = 150*time.Millisecond, 200*time.Millisecond
				}
			})
			for range 2 {
				_, err := s.Acquire(bound(t))
				var e *StartError
				if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(err.Error(), c.text) {
					t.Fatalf("error %v", err)
				}
			}
			eventually(t, "the end of what could not start", func() bool { return len(children(t, s.cmd.Process.Pid)) == 0 })
			if err := s.Close(bound(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSpareWorkersThatFailAreNotStartedForEver(t *testing.T) {
	dir := t.TempDir()
	s := begin(t, func(c *Config) {
		c.Start.Image, c.Spare = "crashes", 2
		c.Limits.Enforcement, c.Limits.Root = Cgroup, obstinateRoot+dir
	})
	// With the cages kept, each start leaves a file.
	if err := os.WriteFile(filepath.Join(dir, "busy"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	idle := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pool.asked) == 0 && s.pool.failures >= maxFailures
	}
	eventually(t, "nothing more to be asked for", idle)
	if _, err := s.Acquire(bound(t)); err == nil {
		t.Fatal("it was acquired")
	}
	eventually(t, "nothing more to be asked for", idle)
	if err := os.Remove(filepath.Join(dir, "busy")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing left", func() bool {
		left, _ := filepath.Glob(filepath.Join(dir, "worker-*"))
		return len(left) == 0 && len(children(t, s.cmd.Process.Pid)) == 0
	})
}

// workersOf are the children that execute a worker's program: Go's os package
// has one of its own, too, for a moment (checkPidfd).
func workersOf(t *testing.T, pid int) []int {
	t.Helper()
	return slices.DeleteFunc(children(t, pid), func(pid int) bool {
		b, err := os.ReadFile("/proc/" + itoa(pid) + "/cmdline")
		return err != nil || string(b) != "maf-sandbox-"+fakeRole+"\x00"
	})
}

func TestWorkerKilledAtAnyMoment(t *testing.T) {
	for _, m := range []string{"starting", "acquired", "running", "spare", "stopped"} {
		t.Run(m, func(t *testing.T) {
			s := begin(t, func(c *Config) {
				c.Start.Image = map[string]string{"starting": "is mute", "running": "echoes"}[m]
				if m == "spare" {
					c.Spare = 1
				}
			})
			if m == "starting" || m == "spare" {
				failed := make(chan error, 1)
				if m == "starting" {
					go func() { _, err := s.Acquire(bound(t)); failed <- err }()
				}
				var pids []int
				one := func() bool { pids = workersOf(t, s.cmd.Process.Pid); return len(pids) == 1 }
				eventually(t, "a worker", one)
				first := pids[0]
				watch(t, first).signal(t, unix.SIGKILL)
				if m == "starting" {
					var e *StartError
					if err := <-failed; !errors.As(err, &e) || e.Kind != KindKilled || !strings.Contains(err.Error(), "signal 9") {
						t.Errorf("error %v", err)
					}
					return
				}
				eventually(t, "another", func() bool { return one() && pids[0] != first })
				if _, f := acquire(t, s); f.PID == first {
					t.Error("the killed one was given")
				}
				return
			}
			w, f := acquire(t, s)
			p := watch(t, f.PID)
			switch m {
			case "running":
				if err := echo(w); err != nil {
					t.Fatal(err)
				}
			case "stopped":
				p.signal(t, unix.SIGSTOP)
			}
			p.signal(t, unix.SIGKILL)
			await(t, "the worker's end", w.Done())
			var g *GoneError
			if !errors.As(w.Cause(), &g) || g.Signal != int(unix.SIGKILL) || g.OutOfMemory {
				t.Errorf("cause %v", w.Cause())
			}
			release(t, w)
			next, _ := acquire(t, s)
			release(t, next)
		})
	}
}

func TestWorkerThatObeysNothingIsReleased(t *testing.T) {
	for _, does := range []string{"is stubborn", "closes its socket later"} {
		s := begin(t, func(c *Config) { c.Start.Image = does })
		for _, stop := range []bool{false, true} {
			w, f := acquire(t, s)
			p := watch(t, f.PID)
			if stop {
				p.signal(t, unix.SIGSTOP)
			}
			release(t, w)
			if !p.ended() {
				t.Errorf("%s: the process is there after its release", does)
			}
		}
	}
}

func TestCageThatRefusesToEmptyIsNotConfirmed(t *testing.T) {
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, func(c *Config) { c.Spare, c.Limits.Enforcement, c.Limits.Root = 1, Cgroup, obstinateRoot+dir })
	w, f := acquire(t, s)
	p := watch(t, f.PID)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for range 2 {
		err := w.Release(short())
		if !errors.Is(err, ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "resource busy") {
			t.Fatalf("release: %v", err)
		}
	}
	if !p.ended() {
		t.Error("the process is there")
	}
	await(t, "the worker's end", w.Done())
	if _, f := acquire(t, s); f.PID == 0 {
		t.Error("others cannot be had meanwhile")
	}
	if err := s.Close(short()); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("close: %v", err)
	}
	late := make(chan error, 1)
	go func() { _, err := s.Acquire(bound(t)); late <- err }()
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Release(bound(t)), s.Close(bound(t))); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := <-late; !errors.Is(err, ErrSupervisor) {
		t.Errorf("acquired from one that is closing: %v", err)
	}
}

func TestMemoryLimitOfAProcessIsRecognised(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, whose own memory is beyond the limit")
	}
	s := begin(t, func(c *Config) { c.Start.Image, c.Limits.MemoryMax = "eats", 256<<20 })
	w, _ := acquire(t, s)
	if _, err := w.Conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker's end", w.Done())
	var g *GoneError
	if !errors.As(w.Cause(), &g) || !g.OutOfMemory || g.ExitCode != goFatal {
		t.Errorf("cause %v: %.300s", w.Cause(), g.Diagnostics)
	}
}

func TestLastWordsForWantOfMemoryAreKnown(t *testing.T) {
	for words, want := range map[string]bool{
		"fatal error: runtime: out of memory\n\ngoroutine 1":                                                      true,
		"x\nfatal error: runtime: cannot allocate memory\n":                                                       true,
		"fatal error: out of memory allocating heap arena map":                                                    true,
		"SIGSEGV: segmentation violation\nPC=0x43579d m=4 sigcode=1 addr=0x0":                                     true,
		"runtime: failed to create new OS thread (have 5 already; errno=12)":                                      true,
		"runtime: failed to create new OS thread (have 5 already; errno=11)":                                      false,
		"panic: runtime error: invalid memory address\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0": false,
		"fatal error: all goroutines are asleep - deadlock!":                                                      false,
		"panic: out of memory": false,
		"":                     false,
	} {
		if got := (rlimit{}).outOfMemory(GoneError{ExitCode: 2, Diagnostics: words}); got != want {
			t.Errorf("%q: %v", words, got)
		}
		if (rlimit{}).outOfMemory(GoneError{ExitCode: 1, Diagnostics: words}) {
			t.Errorf("%q with another exit code", words)
		}
	}
}
