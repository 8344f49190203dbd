package linux

import (
	"bytes"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

const (
	page      = platform.PageSize
	anonymous = mapPrivate | mapAnonymous
	readWrite = syscall.PROT_READ | syscall.PROT_WRITE
	noFD      = ^uint64(0)
)

func (g *guest) mmap(n uint64) uint64 {
	g.t.Helper()
	return g.must(unix.SYS_MMAP, 0, n, readWrite, anonymous, noFD, 0)
}

// fill writes a byte all over a range of guest memory.
func (g *guest) fill(addr, n uint64, b byte) {
	g.t.Helper()
	if !g.m.CopyOut(addr, bytes.Repeat([]byte{b}, int(n))) {
		g.t.Fatalf("cannot fill %#x", addr)
	}
}

// checkHeap sees to it that the free ranges make sense.
func (g *guest) checkHeap() {
	g.t.Helper()
	if !sortedRanges(g.p.mem.free, g.l.Heap.Lo, g.p.mem.end) {
		g.t.Errorf("free ranges %#x are not sorted, apart and inside the heap", g.p.mem.free)
	}
}

func TestBrkGrowsAndShrinksWithinItsWindowAndReadsAsZero(t *testing.T) {
	g := newGuest(t)
	lo, hi := g.l.Brk.Lo, g.l.Brk.Hi
	g.want(lo, unix.SYS_BRK, 0)
	g.want(lo+0x1234, unix.SYS_BRK, lo+0x1234)
	g.fill(lo, 0x1234, 7)
	g.want(lo+0x34, unix.SYS_BRK, lo+0x34)
	g.want(lo+0x2000, unix.SYS_BRK, lo+0x2000)
	if b := g.get(lo, 0x34); zeros(b[:1]) || bytes.Contains(b, []byte{0}) {
		t.Error("what stayed below the break was cleared")
	}
	if !zeros(g.get(lo+0x34, 0x2000-0x34)) {
		t.Error("memory given again does not read as zero")
	}
	for _, want := range []uint64{1, lo - 1, hi + 1, ^uint64(0)} {
		g.want(lo+0x2000, unix.SYS_BRK, want)
	}
	if !g.p.MemoryDenied() {
		t.Error("a refused break is not counted as memory denied")
	}
	g.want(hi, unix.SYS_BRK, hi)
	g.want(lo, unix.SYS_BRK, lo)
}

func TestMmapHandsOutTheFirstRangeThatFitsAndReadsAsZero(t *testing.T) {
	g := newGuest(t)
	a, b, c := g.mmap(3*page), g.mmap(1), g.mmap(page)
	if a != g.l.Heap.Lo || b != a+3*page || c != b+page {
		t.Fatalf("ranges at %#x %#x %#x", a, b, c)
	}
	g.fill(a, 3*page, 0xFF)
	g.want(0, unix.SYS_MUNMAP, a, 3*page)
	g.checkHeap()
	if d := g.mmap(4 * page); d != c+page {
		t.Errorf("4 pages at %#x, want behind all others", d)
	}
	if d := g.mmap(2 * page); d != a || !zeros(g.get(d, 2*page)) {
		t.Errorf("2 pages at %#x, or not zero", d)
	}
	if d := g.mmap(page); d != a+2*page || !zeros(g.get(d, page)) {
		t.Errorf("the last page of the hole: %#x", d)
	}
	g.checkHeap()
}

func TestMmapRefusesWhatCannotBe(t *testing.T) {
	g := newGuest(t)
	g.file("/work/f", "data")
	rw := g.open("/work/f", syscall.O_RDWR)
	wr := g.open("/work/f", syscall.O_WRONLY)
	dir := g.open("/work", syscall.O_RDONLY|syscall.O_DIRECTORY)
	null := g.open("/dev/null", syscall.O_RDWR)
	pathFD := g.open(dataPath, oPath)
	data := g.open(dataPath, syscall.O_RDONLY)
	used := g.mmap(page)
	heap := g.l.Heap
	for _, tt := range []struct {
		name string
		a    [6]uint64
		want syscall.Errno
	}{
		{"no length", [6]uint64{0, 0, readWrite, anonymous, noFD, 0}, syscall.EINVAL},
		{"length that wraps when rounded", [6]uint64{0, ^uint64(0), readWrite, anonymous, noFD, 0}, syscall.ENOMEM},
		{"length beyond any guest", [6]uint64{0, 1<<46 + 1, readWrite, anonymous, noFD, 0}, syscall.ENOMEM},
		{"length beyond this guest", [6]uint64{0, 9 << 20, readWrite, anonymous, noFD, 0}, syscall.ENOMEM},
		{"neither private nor shared", [6]uint64{0, page, readWrite, mapAnonymous, noFD, 0}, syscall.EINVAL},
		{"unaligned offset", [6]uint64{0, page, syscall.PROT_READ, mapPrivate, rw, 1}, syscall.EINVAL},
		{"executable memory", [6]uint64{0, page, readWrite | syscall.PROT_EXEC, anonymous, noFD, 0}, syscall.EACCES},
		{"an executable file", [6]uint64{0, page, syscall.PROT_READ | syscall.PROT_EXEC, mapPrivate, rw, 0}, syscall.EACCES},
		{"executable at a fixed place", [6]uint64{heap.Lo, page, syscall.PROT_EXEC, anonymous | mapFixed, noFD, 0}, syscall.EACCES},
		{"no such descriptor", [6]uint64{0, page, readWrite, mapPrivate, 77, 0}, syscall.EBADF},
		{"a folder", [6]uint64{0, page, syscall.PROT_READ, mapPrivate, dir, 0}, syscall.ENODEV},
		{"a device", [6]uint64{0, page, readWrite, mapPrivate, null, 0}, syscall.ENODEV},
		{"standard output", [6]uint64{0, page, readWrite, mapPrivate, 1, 0}, syscall.ENODEV},
		{"a file open for writing only", [6]uint64{0, page, syscall.PROT_READ, mapPrivate, wr, 0}, syscall.EACCES},
		{"a file open as a path only", [6]uint64{0, page, syscall.PROT_READ, mapPrivate, pathFD, 0}, syscall.EACCES},
		{"a shared writable mapping of a file open for reading", [6]uint64{0, page, readWrite, mapShared, data, 0}, syscall.EACCES},
		{"a fixed place that is not aligned", [6]uint64{heap.Lo + 1, page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.EINVAL},
		{"a fixed place that wraps", [6]uint64{^uint64(0) &^ 0xfff, 2 * page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.EINVAL},
		{"a fixed place over the program", [6]uint64{g.l.Exe.Lo, page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.ENOMEM},
		{"a fixed place over the stack", [6]uint64{g.l.Stack.Lo, page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.ENOMEM},
		{"a fixed place below the heap", [6]uint64{heap.Lo - page, 2 * page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.ENOMEM},
		{"a fixed place beyond the heap", [6]uint64{g.p.mem.end - page, 2 * page, readWrite, anonymous | mapFixed, noFD, 0}, syscall.ENOMEM},
		{"a used place with NOREPLACE", [6]uint64{used, page, readWrite, anonymous | mapFixedNoRep, noFD, 0}, syscall.EEXIST},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g.t = t
			before := slices.Clone(g.p.mem.free)
			g.refused(tt.want, unix.SYS_MMAP, tt.a[:]...)
			if !slices.Equal(before, g.p.mem.free) {
				t.Error("a refused mapping changed the free ranges")
			}
		})
	}
}

func TestMmapOfAFileCopiesItAndReadsAsZeroBehindItsEnd(t *testing.T) {
	g := newGuest(t)
	long := bytes.Repeat([]byte("0123456789abcdef"), 3*page/16)
	g.file("/work/f", "layer file")
	fd := g.open("/work/f", syscall.O_RDWR)
	at := g.must(unix.SYS_MMAP, 0, 2*page, readWrite, mapPrivate, fd, 0)
	if b := g.get(at, 2*page); string(b[:10]) != "layer file" || !zeros(b[10:]) {
		t.Error("a file of the layer is not mapped as it is")
	}
	fd = g.open(dataPath, syscall.O_RDONLY)
	at = g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapShared, fd, 0)
	if b := g.get(at, page); string(b[:len(dataText)]) != dataText || !zeros(b[len(dataText):]) {
		t.Error("a file of the base is not mapped as it is")
	}
	at = g.must(unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapPrivate, fd, 1<<40)
	if !zeros(g.get(at, page)) {
		t.Error("a mapping behind the file's end is not zero")
	}
	g.refused(syscall.EOVERFLOW, unix.SYS_MMAP, 0, page, syscall.PROT_READ, mapPrivate, fd, 1<<63)
	g.checkHeap()
	buf := g.bytes(long)
	fd = g.open("/work/long", syscall.O_RDWR|syscall.O_CREAT)
	g.want(uint64(len(long)), unix.SYS_WRITE, fd, buf, uint64(len(long)))
	at = g.must(unix.SYS_MMAP, 0, page, readWrite, mapPrivate, fd, 2*page)
	if !bytes.Equal(g.get(at, page), long[2*page:]) {
		t.Error("a mapping with an offset has other bytes")
	}
}

func TestMmapAtAFixedPlaceReplacesWhatIsThere(t *testing.T) {
	g := newGuest(t)
	a := g.mmap(4 * page)
	g.fill(a, 4*page, 9)
	g.want(a+page, unix.SYS_MMAP, a+page, 2*page, readWrite, anonymous|mapFixed, noFD, 0)
	if b := g.get(a, 4*page); b[0] != 9 || !zeros(b[page:3*page]) || b[3*page] != 9 {
		t.Error("not exactly the pages asked for were cleared")
	}
	far := g.p.mem.end - 2*page
	g.want(far, unix.SYS_MMAP, far, page, readWrite, anonymous|mapFixedNoRep, noFD, 0)
	g.checkHeap()
	g.fill(far, page, 3)
	g.want(0, unix.SYS_MUNMAP, far, page)
	if b := g.must(unix.SYS_MMAP, 0, g.p.mem.end-a-4*page, readWrite, anonymous, noFD, 0); !zeros(g.get(b+(far-b), page)) {
		t.Error("memory handed out at a fixed place came back dirty")
	}
	if len(g.p.mem.free) != 0 {
		t.Errorf("free ranges %#x are left in a full heap", g.p.mem.free)
	}
	g.refused(syscall.ENOMEM, unix.SYS_MMAP, 0, page, readWrite, anonymous, noFD, 0)
}

func TestMunmapGivesBackOnceWhateverItIsToldTwice(t *testing.T) {
	g := newGuest(t)
	a := g.mmap(8 * page)
	for _, r := range [][2]uint64{{1, 1}, {5, 2}, {3, 1}, {1, 3}, {0, 8}, {2, 4}} {
		g.want(0, unix.SYS_MUNMAP, a+r[0]*page, r[1]*page)
		g.checkHeap()
	}
	if n := len(g.p.mem.free); n != 1 || g.p.mem.free[0] != (platform.Range{Lo: g.l.Heap.Lo, Hi: g.p.mem.end}) {
		t.Errorf("free ranges %#x, want the whole heap", g.p.mem.free)
	}
	g.want(0, unix.SYS_MUNMAP, 0, 1<<46)
	g.checkHeap()
	for _, r := range [][2]uint64{{a + 1, page}, {a, 0}, {a, 1<<46 + 1}, {^uint64(0) &^ 0xfff, 2 * page}} {
		g.refused(syscall.EINVAL, unix.SYS_MUNMAP, r[0], r[1])
	}
}

func TestMremapGrowsInPlaceOrMovesAndKeepsTheBytes(t *testing.T) {
	g := newGuest(t)
	a := g.mmap(2 * page)
	g.fill(a, 2*page, 5)
	g.want(a, unix.SYS_MREMAP, a, 2*page, 2*page, 0)
	g.want(a, unix.SYS_MREMAP, a, 2*page, 4*page, 0)
	if b := g.get(a, 4*page); b[2*page-1] != 5 || !zeros(b[2*page:]) {
		t.Error("growing in place lost bytes, or gave dirty ones")
	}
	b := g.mmap(page)
	g.refused(syscall.ENOMEM, unix.SYS_MREMAP, a, 4*page, 5*page, 0)
	c := g.must(unix.SYS_MREMAP, a, 4*page, 5*page, mremapMayMove)
	if c <= b || g.get(c, 1)[0] != 5 || !zeros(g.get(c+2*page, 3*page)) {
		t.Errorf("moved to %#x", c)
	}
	g.want(c, unix.SYS_MREMAP, c, 5*page, page, 0)
	g.checkHeap()
	if d := g.mmap(4 * page); d != a || !zeros(g.get(d, 4*page)) {
		t.Errorf("the old place is not free or not clear: %#x", d)
	}
	for _, tt := range []struct {
		a    [4]uint64
		want syscall.Errno
	}{
		{[4]uint64{c + 1, page, page, 0}, syscall.EINVAL},
		{[4]uint64{c, page, 0, 0}, syscall.EINVAL},
		{[4]uint64{c, 0, page, 0}, syscall.EINVAL},
		{[4]uint64{c, page, page, mremapMayMove | mremapFixed}, syscall.EINVAL},
		{[4]uint64{g.l.Stack.Lo, page, 2 * page, mremapMayMove}, syscall.EFAULT},
		{[4]uint64{g.p.mem.end, page, 2 * page, mremapMayMove}, syscall.EFAULT},
		{[4]uint64{^uint64(0) &^ 0xfff, page, 2 * page, mremapMayMove}, syscall.EFAULT},
		{[4]uint64{c, page, 1 << 46, mremapMayMove}, syscall.ENOMEM},
	} {
		g.refused(tt.want, unix.SYS_MREMAP, tt.a[:]...)
	}
	g.checkHeap()
}

func TestMprotectAgreesOnlyToRightsThatHold(t *testing.T) {
	g := newGuest(t)
	text, data := g.l.Exe.Lo, g.l.Exe.Lo+page
	const rx, rwx = syscall.PROT_READ | syscall.PROT_EXEC, 7
	for _, tt := range []struct {
		name          string
		addr, n, prot uint64
		want          syscall.Errno
	}{
		{"stricter data", data, page, syscall.PROT_READ, 0},
		{"none", g.l.Heap.Lo, page, 0, 0},
		{"data as it is", data, page, readWrite, 0},
		{"text as it is", text, page, rx, 0},
		{"writable text", text, page, readWrite, syscall.EACCES},
		{"executable data", data, page, rx, syscall.EACCES},
		{"executable heap", g.l.Heap.Lo, page, rwx, syscall.EACCES},
		{"text and data writable", text, 2 * page, readWrite, syscall.EACCES},
		{"nothing", text + 1, 0, rwx, 0},
		{"unaligned", text + 1, 1, rx, syscall.EINVAL},
		{"wrapping", ^uint64(0) &^ 0xfff, page + 1, rx, syscall.EINVAL},
		{"too long", text, ^uint64(0), rx, syscall.EINVAL},
	} {
		if got := g.call(unix.SYS_MPROTECT, tt.addr, tt.n, tt.prot); got != result(tt.want) {
			t.Errorf("%s: %s, want %v", tt.name, answerText(got), tt.want)
		}
	}
}

func TestMadviseDontneedReadsAsZeroAndOtherAdviceChangesNothing(t *testing.T) {
	g := newGuest(t)
	a := g.mmap(3 * page)
	g.fill(a, 3*page, 1)
	g.want(0, unix.SYS_MADVISE, a, 3*page, madviseFree)
	g.want(0, unix.SYS_MADVISE, a+page, page, madviseDontneed)
	if b := g.get(a, 3*page); b[0] != 1 || !zeros(b[page:2*page]) || b[2*page] != 1 {
		t.Error("not exactly the page asked for was cleared")
	}
	g.refused(syscall.EINVAL, unix.SYS_MADVISE, a+1, page, madviseDontneed)
	g.refused(syscall.EINVAL, unix.SYS_MADVISE, ^uint64(0)&^0xfff, page, madviseDontneed)
	g.want(0, unix.SYS_MADVISE, g.l.Exe.Lo, page, madviseDontneed)
}

func TestLongMemoryCallsEndEarlyWhenTheProcessIsStopped(t *testing.T) {
	g := newGuest(t)
	a := g.mmap(6 << 20)
	g.want(0, unix.SYS_MUNMAP, a, 6<<20)
	before := slices.Clone(g.p.mem.free)
	got := g.during(g.p.Stop, unix.SYS_MMAP, 0, 6<<20, readWrite, anonymous, noFD, 0)
	if got != fail(syscall.ENOMEM) || !slices.Equal(before, g.p.mem.free) {
		t.Errorf("mmap = %s, free %#x", answerText(got), g.p.mem.free)
	}
	a = g.mmap(page)
	b := g.mmap(page)
	if got := g.during(g.p.Stop, unix.SYS_MREMAP, a, page, 2*page, mremapMayMove); got != fail(syscall.ENOMEM) {
		t.Errorf("mremap = %s", answerText(got))
	}
	if got := g.during(g.p.Stop, unix.SYS_MADVISE, b, page, madviseDontneed); got != fail(syscall.EAGAIN) {
		t.Errorf("madvise = %s", answerText(got))
	}
	if g.p.MemoryDenied() {
		t.Error("a stop counts as memory denied")
	}
	g.checkHeap()
}
