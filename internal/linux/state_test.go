package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// parked gives a parked process with something in every part of its state.
func parked(t testing.TB) (*guest, *State) {
	t.Helper()
	g := newGuest(t)
	g.must(unix.SYS_BRK, g.l.Brk.Lo+0x5000)
	g.must(unix.SYS_BRK, g.l.Brk.Lo+0x3000)
	a := g.mmap(8 * page)
	g.must(unix.SYS_MUNMAP, a+page, page)
	g.loadMapping(libPath)
	g.handle(syscall.SIGINT, saSiginfo, bit(syscall.SIGUSR1))
	g.must(unix.SYS_RT_SIGPROCMASK, 0, g.bytes(words(bit(syscall.SIGUSR2))), 0, 8)
	g.must(unix.SYS_MKDIR, g.str("/work/d"), 0o755)
	g.file("/work/d/f", "kept")
	g.must(unix.SYS_CHDIR, g.str("/work/d"))
	g.must(unix.SYS_UMASK, 0o077)
	g.must(unix.SYS_PREADV, ringFD, g.iov(g.ring(64, 0, ""), 64, g.ring(64, 0, ""), 64), 2, 0)
	if out := g.park(64, 64, 7); out.Kind != Parked {
		t.Fatalf("outcome %+v", out)
	}
	s, err := g.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	return g, s
}

// restore makes a process of a state.
func (g *guest) restore(s *State, memory uint64) error {
	fs, err := vfs.Import(g.base, testLimits, testClock, s.Files)
	if err != nil {
		return err
	}
	return g.p.Restore(s, fs, memory)
}

func TestAStateIsTheSameAfterARoundTrip(t *testing.T) {
	g, s := parked(t)
	kept := copyOf(t, s)
	if err := kept.Check(g.l); err != nil {
		t.Fatal(err)
	}
	h := newGuest(t)
	h.p.slept = 1 << 40
	if err := h.restore(kept, testMemory); err != nil {
		t.Fatal(err)
	}
	again, err := h.p.Save()
	if err != nil {
		t.Fatal(err)
	}
	// The time goes on, and a restored process has no time of its own.
	again.Monotonic = s.Monotonic
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(again)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("the state was\n%s and is\n%s", a, b)
	}
	if cpu, _ := h.p.readClock(clockProcessCPU); cpu == 0 {
		t.Error("an earlier generation's sleep counts")
	}
	if !h.p.Resume([]byte("h"), []byte("s"), 1) {
		t.Error("the restored process takes no request")
	}
	if got := h.content("f"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
	h.must(unix.SYS_RT_SIGPROCMASK, 1, h.bytes(words(^uint64(0))), 0, 8)
	h.kill(syscall.SIGINT)
	if h.m.regs.RIP != testHandler {
		t.Error("the handler is not there")
	}
}

func TestARestoredProcessCanHaveMoreOrLessMemory(t *testing.T) {
	g, s := parked(t)
	for _, mib := range []uint64{36, 40} {
		if err := g.restore(copyOf(t, s), mib<<20); err != nil {
			t.Fatalf("%d MiB: %v", mib, err)
		}
		g.checkHeap()
		total := uint64(0)
		for _, r := range g.p.mem.free {
			total += r.Hi - r.Lo
		}
		if want := mib<<20 - brkWindow - 7*page; total != want {
			t.Errorf("%d MiB: %#x bytes are free, want %#x", mib, total, want)
		}
	}
	s.Fresh, s.Free = s.End, nil
	if err := g.restore(s, 34<<20); !errors.Is(err, ErrState) {
		t.Errorf("less than is in use: %v", err)
	}
}

func TestSaveRefusesAProcessThatIsBusy(t *testing.T) {
	for name, prepare := range map[string]func(g *guest){
		"not parked":             func(g *guest) { g.call(unix.SYS_GETPID) },
		"resumed":                func(g *guest) { g.park(8, 8, 0); g.p.Resume(nil, nil, 0) },
		"an open file":           func(g *guest) { g.open(dataPath, 0); g.park(8, 8, 0) },
		"a file as input":        func(g *guest) { g.must(unix.SYS_CLOSE, 0); g.open(dataPath, 0); g.park(8, 8, 0) },
		"no standard error":      func(g *guest) { g.must(unix.SYS_CLOSE, 2); g.park(8, 8, 0) },
		"a signal being handled": func(g *guest) { g.handle(10, 0, 0); g.kill(10); g.park(8, 8, 0) },
		"a pending signal": func(g *guest) {
			g.handle(10, 0, 0)
			g.must(unix.SYS_RT_SIGPROCMASK, 2, g.bytes(words(^uint64(0))), 0, 8)
			g.kill(10)
			g.park(8, 8, 0)
		},
		"a working folder that is gone": func(g *guest) {
			g.must(unix.SYS_MKDIR, g.str("d"), 0o755)
			g.must(unix.SYS_CHDIR, g.str("d"))
			g.must(unix.SYS_RMDIR, g.str("/work/d"))
			g.park(8, 8, 0)
		},
	} {
		g := newGuest(t)
		prepare(g)
		if _, err := g.p.Save(); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefusesATamperedState(t *testing.T) {
	g, good := parked(t)
	heap := g.l.Heap
	for name, tamper := range map[string]func(s *State){
		"break below its window":      func(s *State) { s.Brk = 0 },
		"break above its window":      func(s *State) { s.Brk, s.BrkFresh = g.l.Brk.Hi+1, g.l.Brk.Hi+1 },
		"break above the fresh one":   func(s *State) { s.BrkFresh = s.Brk - 1 },
		"heap beyond its end":         func(s *State) { s.End = heap.Hi + page },
		"fresh beyond the end":        func(s *State) { s.Fresh = s.End + page },
		"fresh that is not aligned":   func(s *State) { s.Fresh++ },
		"end that is not aligned":     func(s *State) { s.End-- },
		"free before the heap":        func(s *State) { s.Free[0].Lo = heap.Lo - page },
		"free beyond the end":         func(s *State) { s.Free[len(s.Free)-1].Hi += page },
		"free out of order":           func(s *State) { s.Free[0], s.Free[1] = s.Free[1], s.Free[0] },
		"free twice":                  func(s *State) { s.Free = append(s.Free[:1], s.Free...) },
		"free that is not aligned":    func(s *State) { s.Free[0].Lo++ },
		"free upside down":            func(s *State) { s.Free[0].Lo, s.Free[0].Hi = s.Free[0].Hi, s.Free[0].Lo },
		"free next to each other":     func(s *State) { s.Free = append([]platform.Range{{Lo: heap.Lo, Hi: s.Free[0].Lo}}, s.Free...) },
		"used beyond the fresh":       func(s *State) { s.Free = s.Free[:1] },
		"objects of another layout":   func(s *State) { s.InUse = nil },
		"filled of another layout":    func(s *State) { s.Filled = append(s.Filled, true) },
		"signal 0":                    func(s *State) { s.Handlers[0].Signal = 0 },
		"signal 65":                   func(s *State) { s.Handlers[0].Signal = 65 },
		"negative signal":             func(s *State) { s.Handlers[0].Signal = -1 },
		"handler of SIGKILL":          func(s *State) { s.Handlers[0].Signal = 9 },
		"SIGKILL blocked in handlers": func(s *State) { s.Handlers[0].Action.Mask = ^uint64(0) },
		"SIGKILL blocked":             func(s *State) { s.Mask = ^uint64(0) },
		"umask":                       func(s *State) { s.Umask = 0o7777 },
		"no request":                  func(s *State) { s.Mailbox.Request = nil },
		"three requests":              func(s *State) { s.Mailbox.Request = make([][2]uint64, 3) },
		"a huge ring":                 func(s *State) { s.Mailbox.Rings[1][1] = maxRing + 1 },
		"a ring without room":         func(s *State) { s.Mailbox.Rings[1][1] = ringHeader - 1 },
	} {
		s := copyOf(t, good)
		tamper(s)
		if err := s.Check(g.l); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cwd := range map[string]string{"no folder": "", "a file": "/work/d/f", "nowhere": "/work/x", "a NUL": "/work\x00"} {
		s := copyOf(t, good)
		s.Cwd = cwd
		if err := g.restore(s, testMemory); !errors.Is(err, ErrState) {
			t.Errorf("working folder %s: %v", name, err)
		}
	}
}

// FuzzState sees to it that no kept state makes a process that breaks its own
// rules.
func FuzzState(f *testing.F) {
	g, s := parked(f)
	seed, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{}`))
	f.Add(fmt.Appendf(nil, `{"Brk":%d,"BrkFresh":%d,"Fresh":%d,"End":%d,"Free":null,"Cwd":"/"}`, g.l.Brk.Lo, g.l.Brk.Hi, g.l.Heap.Lo, g.l.Heap.Hi))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := new(State)
		if json.Unmarshal(data, s) != nil || s.Check(g.l) != nil || g.restore(s, testMemory) != nil {
			return
		}
		if !sortedRanges(g.p.mem.free, g.l.Heap.Lo, g.p.mem.end) {
			t.Fatalf("free ranges %#x", g.p.mem.free)
		}
		g.m.script = nil
		g.p.Resume([]byte("header"), []byte("source"), 10)
		g.p.Drain()
		if _, err := g.p.Run(); err != nil {
			t.Fatal(err)
		}
		g.p.Clear()
		g.p.take(page)
		g.p.Interrupt()
		if _, err := g.p.Run(); err != nil {
			t.Fatal(err)
		}
		g.p.Clear()
	})
}
