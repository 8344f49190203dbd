package linux

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"sort"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Sizes of the fixed parts of the address space, in bytes.
const (
	// stackSize is the main thread's stack: Linux's default RLIMIT_STACK.
	stackSize = 8 << 20
	// brkWindow is the room for brk. It is fixed, so that one template serves
	// every guest memory size; glibc goes on with mmap when it is used up.
	brkWindow = 32 << 20
	// guardSize lies unmapped on both sides of the stack and of the heap: far
	// enough that a skipped stack probe of one large frame still faults.
	guardSize = 2 << 20
	// hugePage is the size of a large page; regions start on one so that the
	// platform can map them with large entries.
	hugePage = 2 << 20
	// maxObjects and maxObjectSpan bound what an image may ask to be placed.
	maxObjects    = 4096
	maxObjectSpan = 1 << 30
	// maxPlaced bounds all objects together: page tables for it fit under
	// platform.UserLo.
	maxPlaced = 1 << 30
	// maxAddress bounds the whole address space.
	maxAddress = 1 << 40
)

// ErrLayout is returned for programs and objects that cannot be placed.
var ErrLayout = errors.New("cannot lay out the program")

// Segment is one PT_LOAD of an ELF object.
type Segment struct {
	Off, Filesz, Vaddr, Memsz uint64
	Prot                      platform.Prot
}

// Object is a shared object of the image with what its program header says.
type Object struct {
	Path     string
	Align    uint64
	Segments []Segment
}

// Place is where an object's memory is: fixed before the first instruction
// runs, which is what makes W^X possible with static page tables.
type Place struct {
	Object
	// Bias is what is added to the object's virtual addresses.
	Bias uint64
	// Lo and Hi bound the object's memory, page aligned.
	Lo, Hi uint64
}

// Layout is a program's whole address space.
type Layout struct {
	// Exe is the program, Interp its ELF loader.
	Exe, Interp Place
	// Entry is where execution starts, ExeEntry the program's own entry.
	Entry, ExeEntry uint64
	// Phdr and PhdrCount locate the program's own headers in memory.
	Phdr      uint64
	PhdrCount int
	// VDSO is where the vDSO's single page is.
	VDSO uint64
	// Objects are the image's shared objects, sorted by path.
	Objects []Place
	// Stack, Brk and Heap are the anonymous regions. Heap.Hi is the end for
	// the largest guest; a smaller guest ends earlier.
	Stack, Brk, Heap platform.Range
}

func alignUp(x, a uint64) uint64 { return (x + a - 1) &^ (a - 1) }

func pageUp(x uint64) uint64 { return alignUp(x, platform.PageSize) }

func pageDown(x uint64) uint64 { return x &^ (platform.PageSize - 1) }

// ProtOf turns the flags of a program header into page rights.
func ProtOf(f elf.ProgFlag) platform.Prot {
	var p platform.Prot
	if f&elf.PF_R != 0 {
		p |= platform.Read
	}
	if f&elf.PF_W != 0 {
		p |= platform.Write
	}
	if f&elf.PF_X != 0 {
		p |= platform.Exec
	}
	return p
}

// ParseObject reads the program header of an ELF file.
func ParseObject(path string, data []byte) (Object, *elf.File, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return Object{}, nil, fmt.Errorf("%w: %s: %w", ErrLayout, path, err)
	}
	o := Object{Path: path, Align: platform.PageSize}
	for _, ph := range f.Progs {
		if ph.Type != elf.PT_LOAD {
			continue
		}
		if ph.Off > uint64(len(data)) || ph.Filesz > uint64(len(data))-ph.Off {
			return Object{}, nil, fmt.Errorf("%w: %s: a segment lies outside the file", ErrLayout, path)
		}
		o.Segments = append(o.Segments, Segment{ph.Off, ph.Filesz, ph.Vaddr, ph.Memsz, ProtOf(ph.Flags)})
		o.Align = max(o.Align, ph.Align)
	}
	return o, f, o.check()
}

// check validates what an image says about an object, since an image may come
// from another machine.
func (o Object) check() error {
	bad := func(why string) error { return fmt.Errorf("%w: %s: %s", ErrLayout, o.Path, why) }
	if len(o.Segments) == 0 || len(o.Segments) > 16 {
		return bad("no loadable segments, or too many")
	}
	if o.Align < platform.PageSize || o.Align&(o.Align-1) != 0 || o.Align > hugePage {
		return bad("unusual alignment")
	}
	end := uint64(0)
	for _, s := range o.Segments {
		switch {
		case s.Filesz > s.Memsz || s.Memsz > maxObjectSpan || s.Vaddr > maxObjectSpan || s.Off > maxObjectSpan:
			return bad("segment out of bounds")
		case s.Prot&(platform.Write|platform.Exec) == platform.Write|platform.Exec:
			return bad("a segment is both writable and executable")
		case s.Vaddr%platform.PageSize != s.Off%platform.PageSize:
			return bad("segment is not congruent with its file offset")
		case pageDown(s.Vaddr) < end:
			return bad("segments overlap or share a page")
		}
		end = pageUp(s.Vaddr + s.Memsz)
	}
	return nil
}

// place fixes an object at the first suitable address from lo on.
func (o Object) place(lo uint64) Place {
	first := pageDown(o.Segments[0].Vaddr)
	last := o.Segments[len(o.Segments)-1]
	at := alignUp(lo, o.Align)
	// The bias must keep every address congruent modulo the alignment.
	if r := first % o.Align; r != 0 {
		at = alignUp(lo, o.Align) + r
	}
	// Code of a large page or more starts on one, if the alignment leaves the
	// choice: the platform can then map most of it with large entries.
	for _, s := range o.Segments {
		if s.Prot&platform.Exec != 0 && pageUp(s.Vaddr+s.Memsz)-pageDown(s.Vaddr) >= hugePage && hugePage%o.Align == 0 {
			code := at - first + pageDown(s.Vaddr)
			at += (alignUp(code, hugePage) - code) &^ (o.Align - 1)
			break
		}
	}
	return Place{Object: o, Bias: at - first, Lo: at, Hi: pageUp(at - first + last.Vaddr + last.Memsz)}
}

// spans appends the rights of an object's pages.
func (p Place) spans(out []platform.Span) []platform.Span {
	for _, s := range p.Segments {
		out = append(out, platform.Span{
			Lo:   pageDown(p.Bias + s.Vaddr),
			Hi:   pageUp(p.Bias + s.Vaddr + s.Memsz),
			Prot: s.Prot | platform.Read,
		})
	}
	return out
}

// NewLayout places a program, its loader, the vDSO and every object, and
// leaves room for maxMemory bytes of guest memory.
func NewLayout(exePath string, exe []byte, interpPath string, interp []byte, objects []Object, maxMemory uint64) (*Layout, error) {
	if len(objects) > maxObjects {
		return nil, fmt.Errorf("%w: %d shared objects, at most %d", ErrLayout, len(objects), maxObjects)
	}
	if maxMemory < brkWindow+hugePage || maxMemory > maxAddress/2 {
		return nil, fmt.Errorf("%w: %d MiB of memory", ErrLayout, maxMemory>>20)
	}
	eo, ef, err := ParseObject(exePath, exe)
	if err != nil {
		return nil, err
	}
	io, inf, err := ParseObject(interpPath, interp)
	if err != nil {
		return nil, err
	}
	l := &Layout{PhdrCount: len(ef.Progs)}
	l.Exe = Place{Object: eo, Lo: pageDown(eo.Segments[0].Vaddr)}
	if ef.Type == elf.ET_DYN {
		l.Exe = eo.place(platform.UserLo)
	} else {
		last := eo.Segments[len(eo.Segments)-1]
		l.Exe.Hi = pageUp(last.Vaddr + last.Memsz)
	}
	if l.Exe.Lo < platform.UserLo || l.Exe.Hi > maxPlaced {
		return nil, fmt.Errorf("%w: %s is linked at %#x", ErrLayout, exePath, l.Exe.Lo)
	}
	for _, ph := range ef.Progs {
		switch {
		case ph.Type == elf.PT_PHDR:
			l.Phdr = l.Exe.Bias + ph.Vaddr
		case ph.Type == elf.PT_LOAD && ph.Off == 0 && l.Phdr == 0:
			l.Phdr = l.Exe.Bias + ph.Vaddr + 64 // the ELF header's size
		}
	}
	l.ExeEntry = l.Exe.Bias + ef.Entry
	const gap = 16 * platform.PageSize
	l.Interp = io.place(l.Exe.Hi + gap)
	l.Entry = l.Interp.Bias + inf.Entry
	l.VDSO = l.Interp.Hi + gap
	at := l.VDSO + gap
	objects = append([]Object(nil), objects...)
	sort.Slice(objects, func(i, j int) bool { return objects[i].Path < objects[j].Path })
	for _, o := range objects {
		if o.Path == exePath || o.Path == interpPath {
			continue
		}
		if err := o.check(); err != nil {
			return nil, err
		}
		p := o.place(at)
		if p.Hi > maxPlaced {
			return nil, fmt.Errorf("%w: shared objects need more than %d MiB of addresses", ErrLayout, maxPlaced>>20)
		}
		l.Objects = append(l.Objects, p)
		at = p.Hi + platform.PageSize
	}
	l.Stack.Lo = alignUp(at, hugePage) + guardSize
	l.Stack.Hi = l.Stack.Lo + stackSize
	l.Brk.Lo = l.Stack.Hi + guardSize
	l.Brk.Hi = l.Brk.Lo + brkWindow
	l.Heap.Lo = l.Brk.Hi + guardSize
	l.Heap.Hi = l.Heap.Lo + alignUp(maxMemory, hugePage) - brkWindow
	if err := l.Check(); err != nil {
		return nil, err
	}
	if err := l.checkEntry(); err != nil {
		return nil, err
	}
	return l, nil
}

// Size is how many bytes a machine needs for a guest with memory bytes of its
// own: the brk window and the heap, which has at least one large page.
func (l *Layout) Size(memory uint64) uint64 {
	memory = min(max(memory, brkWindow+hugePage), maxAddress)
	return min(l.Heap.Lo+alignUp(memory, hugePage)-brkWindow, l.Heap.Hi)
}

// Spans gives the rights of every user page, sorted by address.
func (l *Layout) Spans() []platform.Span {
	rw := platform.Read | platform.Write
	n := len(l.Exe.Segments) + len(l.Interp.Segments) + 4
	for _, p := range l.Objects {
		n += len(p.Segments)
	}
	out := l.Interp.spans(l.Exe.spans(make([]platform.Span, 0, n)))
	out = append(out, platform.Span{Lo: l.VDSO, Hi: l.VDSO + platform.PageSize, Prot: platform.Read | platform.Exec})
	for _, p := range l.Objects {
		out = p.spans(out)
	}
	return append(out,
		platform.Span{Lo: l.Stack.Lo, Hi: l.Stack.Hi, Prot: rw},
		platform.Span{Lo: l.Brk.Lo, Hi: l.Brk.Hi, Prot: rw},
		platform.Span{Lo: l.Heap.Lo, Hi: l.Heap.Hi, Prot: rw})
}

// Check validates a layout that comes from a file.
func (l *Layout) Check() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrLayout, what) }
	if len(l.Objects) > maxObjects {
		return bad("objects")
	}
	at := uint64(platform.UserLo)
	for i, p := range append([]Place{l.Exe, l.Interp}, l.Objects...) {
		if err := p.check(); err != nil {
			return err
		}
		// A bias may be negative: the sums are modulo 2^64.
		last := p.Segments[len(p.Segments)-1]
		first, end := p.Bias+pageDown(p.Segments[0].Vaddr), p.Bias+pageUp(last.Vaddr+last.Memsz)
		if first != p.Lo || end != p.Hi || p.Lo%platform.PageSize != 0 || p.Lo < at || p.Hi <= p.Lo || p.Hi > maxPlaced {
			return bad("place of " + p.Path)
		}
		at = p.Hi
		if i == 1 { // the vDSO lies between the loader and the objects
			if l.VDSO < at || l.VDSO%platform.PageSize != 0 || l.VDSO > maxPlaced {
				return bad("place of the vDSO")
			}
			at = l.VDSO + platform.PageSize
		}
	}
	for _, r := range []platform.Range{l.Stack, l.Brk, l.Heap} {
		if r.Lo < at || r.Hi <= r.Lo || r.Lo%hugePage != 0 || r.Hi%hugePage != 0 || r.Hi > maxAddress {
			return bad("regions")
		}
		at = r.Hi
	}
	if l.Brk.Hi-l.Brk.Lo != brkWindow || l.Stack.Hi-l.Stack.Lo != stackSize {
		return bad("regions")
	}
	return nil
}

// checkEntry sees to it that execution starts in the loader's code: a
// processor cannot even be given some addresses.
func (l *Layout) checkEntry() error {
	for _, s := range l.Interp.spans(nil) {
		if s.Prot&platform.Exec != 0 && l.Entry >= s.Lo && l.Entry < s.Hi {
			return nil
		}
	}
	return fmt.Errorf("%w: entry %#x is not in the loader's code", ErrLayout, l.Entry)
}
