//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// procFile reads a file about a machine's process.
func procFile(t *testing.T, m *Machine, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", m.child.pid, name))
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		t.Skipf("only root can look at %s of a process that is not dumpable", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAGuestsProcessHasNothingButItsMemory(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, nil)
	m := clone(t, p, b, c)
	if err := checkStatus(procFile(t, m, "status")); err != nil {
		t.Error(err)
	}
	g := memory{size: memSize, spans: platformtest.Spans}
	maps := procFile(t, m, "maps")
	if err := checkMaps(maps, g.pages()); err != nil {
		t.Errorf("%v\n%s", err, maps)
	}
	for _, name := range []string{"vdso", "vvar", "stack", "heap"} {
		if strings.Contains(maps, "["+name) {
			t.Errorf("it has a %s:\n%s", name, maps)
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.child.pid))
	if err == nil && len(fds) != 0 {
		t.Errorf("it has descriptors: %v", fds)
	}
}

func TestAGuestsProcessHasNamespacesAndARootOfItsOwn(t *testing.T) {
	p := testPlatform(t)
	if !p.isolation.private() {
		t.Skipf("this host does not permit namespaces: %s", p.lacks)
	}
	if p.Isolation() != "container" {
		t.Errorf("the rung is %s", p.Isolation())
	}
	m := newGuest(t, nil)
	names := []string{"pid", "net", "mnt", "ipc", "uts", "cgroup"}
	if p.isolation.user {
		names = append(names, "user")
	}
	link := func(pid, name string) string {
		s, err := os.Readlink("/proc/" + pid + "/ns/" + name)
		if err != nil {
			t.Skipf("only root can look at the namespaces of a process that is not dumpable: %v", err)
		}
		return s
	}
	for _, name := range names {
		if link("self", name) == link(fmt.Sprint(m.child.pid), name) {
			t.Errorf("its %s namespace is ours", name)
		}
	}
	if root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", m.child.pid)); err != nil || !strings.HasSuffix(root, " (deleted)") {
		t.Errorf("its root is %q, %v", root, err)
	}
	if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", m.child.pid)); len(entries) != 0 {
		t.Errorf("its root has %v, %v", entries, err)
	}
}

// A tracer that let a guest run without emulation by mistake would have it
// killed.
func TestTheFilterKillsWhatTheTracerLetsThrough(t *testing.T) {
	for name, code := range map[string]string{
		"getpid":                "B8 27 00 00 00 0F 05",
		"exit_group":            "B8 E7 00 00 00 31 FF 0F 05",
		"madvise of its own":    "B8 1C 00 00 00 31 FF 31 F6 BA 04 00 00 00 0F 05",
		"int 0x80":              "B8 01 00 00 00 CD 80",
		"x32 getpid":            "B8 27 00 00 40 0F 05",
		"another call by stub":  "B8 27 00 00 00 49 BF 00 01 00 00 00 7E 00 00 41 FF E7",
		"other advice by stub":  "B8 1C 00 00 00 BA 08 00 00 00 49 BF 00 01 00 00 00 7E 00 00 41 FF E7",
		"advice with more bits": "B8 1C 00 00 00 48 BA 04 00 00 00 01 00 00 00 49 BF 00 01 00 00 00 7E 00 00 41 FF E7",
		"the table":             "BB 01 00 00 00 BD 00 20 40 00 49 BF 10 01 00 00 00 7E 00 00 41 FF E7",
		"the way out":           "49 BF 80 01 00 00 00 7E 00 00 41 FF E7",
	} {
		t.Run(name, func(t *testing.T) {
			m := newGuest(t, platformtest.Assemble(t, code))
			m.OnThread(func() {
				if err := m.enter(); err != nil { // stops at once, and is let go the wrong way
					t.Error(err)
					return
				}
				s, err := m.child.wait()
				if err != nil || s.StopSignal() != syscallStop {
					t.Errorf("status %#x, %v", uint32(s), err)
					return
				}
				if err := getRegs(m.child.pid, &m.raw); err != nil {
					t.Error(err)
				}
				m.leave()
				m.regs.RAX = m.raw.Orig_rax
				m.regs.RIP -= 2
				if err := m.enterBy(cont); err != nil {
					t.Error(err)
				}
				if s, err = m.child.wait(); err != nil || !s.Signaled() || s.Signal() != unix.SIGSYS {
					t.Errorf("status %#x, %v", uint32(s), err)
				}
			})
		})
	}
}

// What some other process of the user sends is no exception of the guest.
func TestSignalsFromOutsideAreNoFaults(t *testing.T) {
	m := newGuest(t, platformtest.Assemble(t, "EB FE"))
	for _, s := range []unix.Signal{unix.SIGSYS, unix.SIGSEGV, unix.SIGTRAP, unix.SIGTERM, unix.SIGINT, unix.SIGCONT, unix.Signal(40)} {
		var g sync.WaitGroup
		g.Go(func() { m.child.signal(s) })
		if e, err := m.Run(); err != nil || e.Kind != platform.Interrupted {
			t.Errorf("%v: %+v, %v", s, e, err)
		}
		g.Wait()
	}
}

const soundStatus = "Name:\tguest\nUmask:\t0022\nThreads:\t1\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"

func TestStatusThatIsNotConfinedIsFound(t *testing.T) {
	if err := checkStatus(soundStatus); err != nil {
		t.Error(err)
	}
	for name, change := range map[string][2]string{
		"no filter":            {"Seccomp:\t2", "Seccomp:\t0"},
		"strict mode":          {"Seccomp:\t2", "Seccomp:\t1"},
		"new privileges":       {"NoNewPrivs:\t1", "NoNewPrivs:\t0"},
		"a capability":         {"CapEff:\t0000000000000000", "CapEff:\t0000000000000001"},
		"a permitted one":      {"CapPrm:\t0000000000000000", "CapPrm:\t0000000080000000"},
		"an inheritable one":   {"CapInh:\t0000000000000000", "CapInh:\t0000000000000002"},
		"two threads":          {"Threads:\t1", "Threads:\t2"},
		"no line about seccmp": {"Seccomp:\t2\n", ""},
		"nothing":              {soundStatus, ""},
	} {
		if err := checkStatus(strings.Replace(soundStatus, change[0], change[1], 1)); !errors.Is(err, errUnconfined) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const soundMaps = `003ff000-00400000 r--p 00000000 00:00 0
00400000-00401000 r-xp 00400000 00:01 9 /memfd:guest (deleted)
00401000-00402000 r--p 00401000 00:01 9 /memfd:guest (deleted)
00402000-00403000 rw-p 00402000 00:01 9 /memfd:guest (deleted)
00403000-00412000 rw-p 00000000 00:00 0
00800000-02800000 rw-p 00000000 00:00 0
7e0000000000-7e0000001000 r-xp 00000000 00:01 8 /memfd:stub (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestMapsThatAreNotTheGuestsAreFound(t *testing.T) {
	pages := memory{size: memSize, spans: platformtest.Spans}.pages()
	if err := checkMaps(soundMaps, pages); err != nil {
		t.Error(err)
	}
	stack := "7ffc5a000000-7ffc5a021000 rw-p 00000000 00:00 0 [stack]\n"
	for name, change := range map[string][2]string{
		"a stack":               {"ffffffffff600000", stack + "ffffffffff600000"},
		"a vDSO":                {"ffffffffff600000", "7ffd1c1f2000-7ffd1c1f4000 r-xp 00000000 00:00 0 [vdso]\nffffffffff600000"},
		"memory below":          {"003ff000", "00010000-00020000 rw-p 00000000 00:00 0\n003ff000"},
		"writable text":         {"00400000-00401000 r-xp", "00400000-00401000 rwxp"},
		"executable data":       {"00402000-00403000 rw-p", "00402000-00403000 rwxp"},
		"a longer heap":         {"-02800000", "-02801000"},
		"a shorter heap":        {"-02800000", "-02700000"},
		"no stub":               {"7e0000000000-7e0000001000 r-xp 00000000 00:01 8 /memfd:stub (deleted)\n", ""},
		"a writable stub":       {"7e0000001000 r-xp", "7e0000001000 rwxp"},
		"a readable page twice": {"00401000-00402000", "00400000-00402000"},
		"a line of nonsense":    {"003ff000", "what\n003ff000"},
		"a range backwards":     {"00800000-02800000", "02800000-00800000"},
		"a writable vsyscall":   {"--xp", "-wxp"},
		"nothing":               {soundMaps, ""},
	} {
		if err := checkMaps(strings.Replace(soundMaps, change[0], change[1], 1), pages); !errors.Is(err, errUnconfined) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The kernel may show neighbours of the same rights as one, and one as two.
	for name, change := range map[string][2]string{
		"joined":           {"00402000-00403000 rw-p 00402000 00:01 9 /memfd:guest (deleted)\n00403000-00412000", "00402000-00412000"},
		"parted":           {"00800000-02800000 rw-p", "00800000-00900000 rw-p 00000000 00:00 0\n00900000-02800000 rw-p"},
		"no vsyscall page": {"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n", ""},
	} {
		if err := checkMaps(strings.Replace(soundMaps, change[0], change[1], 1), pages); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add(soundMaps)
	f.Add("0-ffffffffffffffff rwxp\n")
	f.Add("400000-401000 r\n")
	pages := memory{size: memSize, spans: platformtest.Spans}.pages()
	f.Fuzz(func(t *testing.T, maps string) {
		if checkMaps(maps, pages) != nil {
			return
		}
		// What passes shows every page once, with nothing else.
		total := uint64(0)
		for line := range strings.Lines(maps) {
			lo, hi, _, ok := mapsLine(line)
			if !ok {
				t.Fatalf("%q passed", line)
			}
			if lo != vsyscallPage {
				total += hi - lo
			}
		}
		want := uint64(platform.PageSize)
		for _, s := range pages {
			want += s.Hi - s.Lo
		}
		if total != want {
			t.Errorf("%d bytes passed, want %d", total, want)
		}
	})
}

func TestMemoryThatDoesNotFitIsRefused(t *testing.T) {
	span := func(lo, hi uint64, p platform.Prot) []platform.Span {
		return []platform.Span{{Lo: lo, Hi: hi, Prot: p}}
	}
	for name, g := range map[string]memory{
		"nothing":              {size: 0},
		"too little":           {size: platform.UserLo - 1},
		"too much":             {size: maxSize + 1},
		"below user memory":    {size: memSize, spans: span(0, 4096, platform.Read)},
		"not page aligned":     {size: memSize, spans: span(codeAddr, codeAddr+5, platform.Read)},
		"backwards":            {size: memSize, spans: span(dataAddr, codeAddr, platform.Read)},
		"beyond the largest":   {size: memSize, spans: span(codeAddr, maxSize+4096, platform.Read)},
		"the stub":             {size: memSize, spans: span(stubBase, stubEnd, platform.Read)},
		"writable, executable": {size: memSize, spans: span(codeAddr, dataAddr, platform.Write|platform.Exec)},
		"overlapping":          {size: memSize, spans: append(span(codeAddr, dataEnd, platform.Read), platformtest.Spans[1])},
	} {
		if err := g.check(); !errors.Is(err, platform.ErrMachine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (memory{size: memSize, spans: platformtest.Spans}).check(); err != nil {
		t.Error(err)
	}
}
