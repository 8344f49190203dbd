package linux

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// checkSpans sees to it that spans are what a platform may be given.
func checkSpans(t testing.TB, spans []platform.Span) {
	t.Helper()
	at := uint64(platform.UserLo)
	for _, s := range spans {
		if s.Lo < at || s.Hi <= s.Lo || s.Lo%page != 0 || s.Hi%page != 0 {
			t.Fatalf("span %#x after %#x", s, at)
		}
		if s.Prot&(platform.Write|platform.Exec) == platform.Write|platform.Exec || s.Prot&platform.Read == 0 {
			t.Fatalf("span %#x has rights %b", s, s.Prot)
		}
		at = s.Hi
	}
}

func TestALayoutKeepsEverythingApart(t *testing.T) {
	l, base := testLayout(t)
	checkSpans(t, l.Spans())
	if l.Entry != l.Interp.Bias+0x200 || l.ExeEntry != l.Exe.Bias+0x200 || l.Phdr != l.Exe.Lo+64 || l.PhdrCount != 2 {
		t.Errorf("entry %#x, %#x, headers %#x", l.Entry, l.ExeEntry, l.Phdr)
	}
	if len(l.Objects) != 2 || l.Objects[1].Lo%l.Objects[1].Align != 0 {
		t.Errorf("objects %+v", l.Objects)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	fixed := buildELF(elf.ET_EXEC, 0x500200, 0x2000,
		loadSegment{elf.PF_R | elf.PF_X, 0, 0x500000, 0x1000, 0x1000, 0x1000})
	l, err := NewLayout(exePath, fixed, interpPath, base[interpPath], nil, testMemory)
	if err != nil || l.Exe.Lo != 0x500000 || l.Exe.Bias != 0 || l.ExeEntry != 0x500200 {
		t.Errorf("a program linked at an address: %+v, %v", l, err)
	}
	for _, memory := range []uint64{0, 1, brkWindow, testMemory, ^uint64(0), ^uint64(0) - hugePage} {
		if n := l.Size(memory); n <= l.Heap.Lo || n > l.Heap.Hi || n%hugePage != 0 {
			t.Errorf("a guest with %#x bytes takes %#x", memory, n)
		}
	}
}

func TestCodeOfALargePageStartsOnOne(t *testing.T) {
	_, base := testLayout(t)
	segment := func(vaddr, size uint64, p platform.Prot) Segment {
		return Segment{Off: vaddr, Vaddr: vaddr, Filesz: size, Memsz: size, Prot: p}
	}
	const r, x = platform.Read, platform.Read | platform.Exec
	objects := []Object{
		{Path: "/a large", Align: page, Segments: []Segment{segment(0, 5*page, r), segment(5*page, hugePage+page, x)}},
		{Path: "/b small", Align: page, Segments: []Segment{segment(0, page, r), segment(page, hugePage-page, x)}},
		{Path: "/c aligned", Align: 16 * page, Segments: []Segment{segment(0, 3*page, r), segment(16*page, 2*hugePage, x)}},
		{Path: "/d as it must be", Align: hugePage, Segments: []Segment{segment(0, 3*page, r), segment(3*page, hugePage, x)}},
	}
	l, err := NewLayout(exePath, base[exePath], interpPath, base[interpPath], objects, testMemory)
	if err != nil {
		t.Fatal(err)
	}
	checkSpans(t, l.Spans())
	for i, onLarge := range []bool{true, false, true, false} {
		p := l.Objects[i]
		if code := p.Bias + p.Segments[1].Vaddr; (code%hugePage == 0) != onLarge {
			t.Errorf("%s: its code is at %#x", p.Path, code)
		}
		if p.Bias%p.Align != 0 {
			t.Errorf("%s: bias %#x, alignment %#x", p.Path, p.Bias, p.Align)
		}
	}
	if gap := l.Objects[1].Lo - l.Objects[0].Hi; gap != page {
		t.Errorf("small code was moved by %#x", gap)
	}
}

func TestNewLayoutRefusesWhatCannotBePlaced(t *testing.T) {
	const r, w, x = elf.PF_R, elf.PF_W, elf.PF_X
	good := newTestBase()
	one := func(s ...loadSegment) []byte { return buildELF(elf.ET_DYN, 0x200, 0x3000, s...) }
	for name, data := range map[string][]byte{
		"nothing":                  nil,
		"no ELF file":              []byte("#!/bin/sh\n"),
		"no segments":              one(),
		"writable and executable":  one(loadSegment{r | w | x, 0, 0, 0x1000, 0x1000, 0x1000}),
		"overlap":                  one(loadSegment{r | x, 0, 0, 0x1000, 0x1800, 0x1000}, loadSegment{r | w, 0x1000, 0x1000, 0x800, 0x800, 0x1000}),
		"a page shared":            one(loadSegment{r | x, 0, 0, 0x800, 0x800, 0x1000}, loadSegment{r | w, 0x800, 0x800, 0x800, 0x800, 0x1000}),
		"out of order":             one(loadSegment{r | w, 0x1000, 0x1000, 0x800, 0x800, 0x1000}, loadSegment{r | x, 0, 0, 0x800, 0x800, 0x1000}),
		"not congruent":            one(loadSegment{r | x, 0x10, 0, 0x800, 0x800, 0x1000}),
		"more in file than memory": one(loadSegment{r | x, 0, 0, 0x1000, 0x800, 0x1000}),
		"segment outside the file": one(loadSegment{r | x, 0, 0, 0x4000, 0x4000, 0x1000}),
		"offset outside the file":  one(loadSegment{r | x, 1 << 63, 0, 0x1000, 0x1000, 0x1000}),
		"segment of all memory":    one(loadSegment{r | w, 0, 0, 0x1000, ^uint64(0), 0x1000}),
		"address of all bits":      one(loadSegment{r | w, 0, ^uint64(0) &^ 0xfff, 0x1000, 0x1000, 0x1000}),
		"odd alignment":            one(loadSegment{r | w, 0, 0, 0x1000, 0x1000, 0x3000}),
		"huge alignment":           one(loadSegment{r | w, 0, 0, 0x1000, 0x1000, 1 << 40}),
		"seventeen segments":       one(slices.Repeat([]loadSegment{{r, 0, 0, 0x10, 0x10, 0x1000}}, 17)...),
		"entry outside its code":   buildELF(elf.ET_DYN, 0x1200, 0x2000, plainSegments(0x1000)...),
	} {
		if _, err := NewLayout(exePath, good[exePath], interpPath, data, nil, testMemory); !errors.Is(err, ErrLayout) {
			t.Errorf("a loader with %s: %v", name, err)
		}
	}
	low := buildELF(elf.ET_EXEC, 0x1200, 0x2000, loadSegment{r | x, 0, 0x1000, 0x1000, 0x1000, 0x1000})
	if _, err := NewLayout(exePath, low, interpPath, good[interpPath], nil, testMemory); !errors.Is(err, ErrLayout) {
		t.Errorf("a program linked below user memory: %v", err)
	}
	wx := Object{Path: "/x", Align: page, Segments: []Segment{{0, 1, 0, 1, platform.Write | platform.Exec}}}
	large := Object{Path: "/x", Align: page, Segments: []Segment{{0, 0, 0, 1 << 30, platform.Read}}}
	for name, objects := range map[string][]Object{
		"writable and executable": {wx}, "too many": make([]Object, maxObjects+1), "too large": {large},
		"no segments": {{Path: "/x", Align: page}}, "alignment zero": {{Path: "/x", Segments: []Segment{{0, 0, 0, 1, 1}}}},
	} {
		if _, err := NewLayout(exePath, good[exePath], interpPath, good[interpPath], objects, testMemory); !errors.Is(err, ErrLayout) {
			t.Errorf("objects %s: %v", name, err)
		}
	}
	for _, memory := range []uint64{0, brkWindow, maxAddress, ^uint64(0)} {
		if _, err := NewLayout(exePath, good[exePath], interpPath, good[interpPath], nil, memory); !errors.Is(err, ErrLayout) {
			t.Errorf("%#x bytes of memory: %v", memory, err)
		}
	}
}

// copyOf makes a deep copy by way of the form in which values are kept.
func copyOf[T any](t testing.TB, v *T) *T {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCheckRefusesATamperedLayout(t *testing.T) {
	good, _ := testLayout(t)
	if err := copyOf(t, good).Check(); err != nil {
		t.Fatalf("an untouched copy: %v", err)
	}
	for name, tamper := range map[string]func(l *Layout){
		"bias that is not aligned":  func(l *Layout) { l.Objects[0].Bias += 8 },
		"bias elsewhere":            func(l *Layout) { l.Objects[0].Bias += page },
		"object below user memory":  func(l *Layout) { l.Exe.Lo -= page; l.Exe.Hi -= page; l.Exe.Bias -= page },
		"object over another":       func(l *Layout) { l.Objects[1] = l.Objects[0] },
		"object over the vDSO":      func(l *Layout) { l.VDSO = l.Objects[0].Lo },
		"vDSO over the loader":      func(l *Layout) { l.VDSO = l.Interp.Lo },
		"vDSO over the stack":       func(l *Layout) { l.VDSO = l.Stack.Lo },
		"vDSO that is not aligned":  func(l *Layout) { l.VDSO += 8 },
		"writable text":             func(l *Layout) { l.Objects[0].Segments[0].Prot |= platform.Write },
		"segment beyond its object": func(l *Layout) { l.Objects[0].Segments[1].Memsz += 1 << 20 },
		"segment of all memory":     func(l *Layout) { l.Objects[0].Segments[1].Memsz = ^uint64(0) },
		"no segments":               func(l *Layout) { l.Exe.Segments = nil },
		"stack in the objects":      func(l *Layout) { l.Stack.Lo = 0x400000 },
		"empty break":               func(l *Layout) { l.Brk.Hi = l.Brk.Lo },
		"small break":               func(l *Layout) { l.Brk.Hi -= hugePage },
		"heap before the break":     func(l *Layout) { l.Heap, l.Brk = l.Brk, l.Heap },
		"heap that is not aligned":  func(l *Layout) { l.Heap.Hi++ },
		"heap of all memory":        func(l *Layout) { l.Heap.Hi = ^uint64(0) &^ (hugePage - 1) },
		"too many objects":          func(l *Layout) { l.Objects = make([]Place, maxObjects+1) },
	} {
		l := copyOf(t, good)
		tamper(l)
		if err := l.Check(); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExecRefusesWhatDoesNotFitItsLayout(t *testing.T) {
	l, base := testLayout(t)
	prog := Program{Exe: base[exePath], Interp: base[interpPath], VDSO: []byte("vdso"), Dir: "/work"}
	for name, change := range map[string]func(p *Program){
		"short program":       func(p *Program) { p.Exe = p.Exe[:100] },
		"short loader":        func(p *Program) { p.Interp = nil },
		"large vDSO":          func(p *Program) { p.VDSO = make([]byte, page+1) },
		"no such folder":      func(p *Program) { p.Dir = "/nowhere" },
		"a file for a folder": func(p *Program) { p.Dir = dataPath },
		"too many arguments":  func(p *Program) { p.Argv = slices.Repeat([]string{fmt.Sprintf("%01000d", 1)}, 5000) },
	} {
		g := newGuestOn(t, newFakeMachine(l.Size(testMemory), l.Spans()), l, base)
		p := prog
		change(&p)
		if err := g.p.Exec(p); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestExecWritesTheStartUpStack(t *testing.T) {
	g := newGuest(t)
	r := g.m.regs
	if r.RIP != g.l.Entry || r.RSP%16 != 0 || g.word(r.RSP) != 2 {
		t.Fatalf("registers %+v", r)
	}
	if argv := g.get(g.word(r.RSP+8), 8); string(argv) != "python3\x00" {
		t.Errorf("argument 0 is %q", argv)
	}
	aux := map[uint64]uint64{}
	for at := r.RSP + 8*6; g.word(at) != atNull; at += 16 {
		aux[g.word(at)] = g.word(at + 8)
	}
	if aux[atEntry] != g.l.ExeEntry || aux[atPhdr] != g.l.Phdr || aux[atSysinfoEhdr] != g.l.VDSO || aux[atPagesz] != page {
		t.Errorf("auxiliary vector %#x", aux)
	}
	if b := g.get(aux[atRandom], 16); b[0] != 0xA5 || b[15] != 0xA5 {
		t.Errorf("random bytes % x", b)
	}
	checkSpans(t, g.m.spans)
}

// FuzzLayout sees to it that no program header makes a layout that is unfit
// for a platform.
func FuzzLayout(f *testing.F) {
	base := newTestBase()
	f.Add(base[exePath], base[interpPath], uint64(testMemory))
	f.Add(base[widePath], base[libPath], uint64(1<<30))
	f.Fuzz(func(t *testing.T, exe, interp []byte, memory uint64) {
		o, _, err := ParseObject(libPath, exe)
		if err != nil {
			return
		}
		l, err := NewLayout(exePath, exe, interpPath, interp, []Object{o}, memory)
		if err != nil {
			return
		}
		checkSpans(t, l.Spans())
	})
}
