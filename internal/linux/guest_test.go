package linux

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Paths of the test tree.
const (
	exePath    = "/usr/bin/python3"
	interpPath = "/usr/lib/ld.so"
	libPath    = "/usr/lib/libplain.so"
	widePath   = "/usr/lib/libwide.so"
	dataPath   = "/usr/share/data.txt"
	dataText   = "the quick brown fox"
)

// testMemory is the guest's memory: the brk window and 8 MiB of heap.
const testMemory = brkWindow + 8<<20

// loadSegment is a program header of buildELF.
type loadSegment struct {
	flags                             elf.ProgFlag
	off, vaddr, filesz, memsz, aligns uint64
}

// buildELF makes an ELF file of size bytes that are nowhere zero past its
// headers.
func buildELF(kind elf.Type, entry uint64, size int, segments ...loadSegment) []byte {
	var b bytes.Buffer
	h := elf.Header64{
		Type: uint16(kind), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: entry,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(segments)),
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	put(h)
	for _, s := range segments {
		put(elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(s.flags), Off: s.off, Vaddr: s.vaddr,
			Filesz: s.filesz, Memsz: s.memsz, Align: s.aligns,
		})
	}
	for b.Len() < size {
		b.WriteByte(byte(b.Len()%251) | 1)
	}
	return b.Bytes()
}

// Text is a page, then data of half a page in two pages of memory.
func plainSegments(align uint64) []loadSegment {
	return []loadSegment{
		{elf.PF_R | elf.PF_X, 0, 0, 0x1000, 0x1000, align},
		{elf.PF_R | elf.PF_W, 0x1000, 0x1000, 0x800, 0x1800, align},
	}
}

func plainELF(align uint64) []byte {
	return buildELF(elf.ET_DYN, 0x200, 0x2000, plainSegments(align)...)
}

// testBase is a vfs.Base over a map; folders are what paths imply.
type testBase map[string][]byte

func newTestBase() testBase {
	return testBase{
		exePath: plainELF(0x1000), interpPath: plainELF(0x1000),
		libPath: plainELF(0x1000), widePath: plainELF(0x10000), dataPath: []byte(dataText),
	}
}

func (b testBase) Lookup(p string) (vfs.Info, bool) {
	names := slices.Sorted(maps.Keys(b))
	if i := slices.Index(names, p); i >= 0 {
		return vfs.Info{Kind: vfs.File, Size: int64(len(b[p])), Inode: uint64(1000 + i)}, true
	}
	for i, name := range names {
		if p == "/" || strings.HasPrefix(name, p+"/") {
			return vfs.Info{Kind: vfs.Dir, Inode: uint64(100 + i*10 + strings.Count(p, "/"))}, true
		}
	}
	return vfs.Info{}, false
}

func (b testBase) ReadDir(p string) []string {
	var out []string
	for name := range b {
		if rest, ok := strings.CutPrefix(name, path.Clean(p+"/")+"/"); ok && p != "/" {
			out = append(out, strings.Split(rest, "/")[0])
		} else if p == "/" {
			out = append(out, strings.Split(name, "/")[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (b testBase) Content(p string) ([]byte, error) {
	if data, ok := b[p]; ok {
		return data, nil
	}
	return nil, errors.New("no such file")
}

var testLimits = vfs.Limits{Bytes: 1 << 20, Inodes: 200}

func testClock() (int64, int64) { return 1_800_000_000, 500 }

// patternReader is a source of random bytes that are not.
type patternReader struct{}

func (patternReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 0xA5
	}
	return len(b), nil
}

// testLayout places the test tree's program and libraries.
func testLayout(t testing.TB) (*Layout, testBase) {
	t.Helper()
	base := newTestBase()
	var objects []Object
	for _, name := range []string{libPath, widePath} {
		o, _, err := ParseObject(name, base[name])
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	l, err := NewLayout(exePath, base[exePath], interpPath, base[interpPath], objects, testMemory)
	if err != nil {
		t.Fatal(err)
	}
	return l, base
}

// guest is a process on a fake machine and what tests need around it.
type guest struct {
	t    testing.TB
	m    *fakeMachine
	p    *Process
	l    *Layout
	base testBase
	// out is what was written to the standard streams.
	out map[int]string
	// arena is the next free byte of guest memory for test data.
	arena uint64
	// outcome is how the last run ended.
	outcome Outcome
	obeyed  int
}

func newGuest(t testing.TB) *guest {
	t.Helper()
	l, base := testLayout(t)
	return newGuestOn(t, newFakeMachine(l.Size(testMemory), l.Spans()), l, base)
}

// newGuestOn starts the test program on a machine whose memory is clear.
func newGuestOn(t testing.TB, m *fakeMachine, l *Layout, base testBase) *guest {
	t.Helper()
	g := &guest{t: t, l: l, base: base, m: m, out: map[int]string{}, arena: l.Stack.Lo + 64<<10}
	g.p = New(Config{
		Machine: m, Layout: l, Memory: testMemory, FS: vfs.New(base, testLimits, testClock), Random: patternReader{},
		Output: func(fd int, b []byte) { g.out[fd] += string(b) },
		Obeyed: func() { g.obeyed++ },
	})
	m.idle = g.p.Stop
	// No tick disturbs a test that does not ask for one.
	g.p.tickIn = func(time.Duration) {}
	err := g.p.Exec(Program{
		Exe: base[exePath], Interp: base[interpPath], VDSO: []byte("vdso"),
		Argv: []string{"python3", "-I"}, Env: []string{"HOME=/work"}, Dir: "/work",
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// run executes steps until the process ends or they are all done.
func (g *guest) run(steps ...step) Outcome {
	g.t.Helper()
	g.m.script = steps
	out, err := g.p.Run()
	if err != nil {
		g.t.Fatalf("run: %v", err)
	}
	g.p.Clear()
	g.m.interrupted.Store(false)
	g.outcome = out
	return out
}

// call executes one system call and gives what it returned.
func (g *guest) call(nr uint64, a ...uint64) uint64 {
	g.t.Helper()
	g.run(call(nr, a...))
	return g.m.regs.RAX
}

// during executes one system call with something happening at its start.
func (g *guest) during(event func(), nr uint64, a ...uint64) uint64 {
	g.t.Helper()
	g.run(func(m *fakeMachine) platform.Exit {
		e := call(nr, a...)(m)
		event()
		return e
	})
	return g.m.regs.RAX
}

// must executes a system call that has to succeed.
func (g *guest) must(nr uint64, a ...uint64) uint64 {
	g.t.Helper()
	v := g.call(nr, a...)
	if e := errnoOf(v); e != 0 {
		g.t.Fatalf("call %d%#x failed: %v", nr, a, e)
	}
	return v
}

// want executes a system call that has to answer want.
func (g *guest) want(want, nr uint64, a ...uint64) {
	g.t.Helper()
	if got := g.call(nr, a...); got != want {
		g.t.Errorf("call %d%#x = %s, want %s", nr, a, answerText(got), answerText(want))
	}
}

// refused executes a system call that has to fail with e.
func (g *guest) refused(e syscall.Errno, nr uint64, a ...uint64) {
	g.t.Helper()
	g.want(fail(e), nr, a...)
}

func answerText(v uint64) string {
	if e := errnoOf(v); e != 0 {
		return "-" + e.Error()
	}
	return fmt.Sprintf("%#x", v)
}

// alloc reserves n bytes of guest memory for test data.
func (g *guest) alloc(n int) uint64 {
	at := g.arena
	g.arena += uint64(n+15) &^ 15
	if g.arena > g.l.Stack.Hi-256<<10 {
		g.t.Fatal("the arena is full")
	}
	return at
}

// bytes puts b into guest memory.
func (g *guest) bytes(b []byte) uint64 {
	at := g.alloc(len(b))
	if !g.m.CopyOut(at, b) {
		g.t.Fatal("cannot write test data")
	}
	return at
}

// str puts a string with its NUL into guest memory.
func (g *guest) str(s string) uint64 { return g.bytes(append([]byte(s), 0)) }

// get reads guest memory.
func (g *guest) get(addr uint64, n int) []byte {
	g.t.Helper()
	b := make([]byte, n)
	if !g.m.CopyIn(b, addr) {
		g.t.Fatalf("cannot read %d bytes at %#x", n, addr)
	}
	return b
}

func (g *guest) word(addr uint64) uint64 {
	g.t.Helper()
	return binary.LittleEndian.Uint64(g.get(addr, 8))
}

// open opens a path with flags and gives the descriptor.
func (g *guest) open(name string, flags uint64) uint64 {
	g.t.Helper()
	return g.must(unix.SYS_OPEN, g.str(name), flags, 0o644)
}

// file makes a file with a content.
func (g *guest) file(name, content string) {
	g.t.Helper()
	fd := g.open(name, syscall.O_CREAT|syscall.O_WRONLY|syscall.O_TRUNC)
	g.must(unix.SYS_WRITE, fd, g.str(content), uint64(len(content)))
	g.must(unix.SYS_CLOSE, fd)
}

// content reads a whole file.
func (g *guest) content(name string) string {
	g.t.Helper()
	fd := g.open(name, syscall.O_RDONLY)
	defer g.must(unix.SYS_CLOSE, fd)
	buf := g.alloc(4096)
	return string(g.get(buf, int(g.must(unix.SYS_READ, fd, buf, 4096))))
}
