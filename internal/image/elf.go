package image

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
)

// Bounds on program headers worth reading; real files have about a dozen.
const (
	elfHeaderSize = 64
	progSize      = 56
	maxProgs      = 64
	maxDynamic    = 64 << 10
)

var (
	errNotELF = errors.New("not an ELF file")
	errBadELF = errors.New("malformed ELF file")
)

// program is what the kernel and the ELF loader read of an ELF file.
type program struct {
	class   elf.Class
	machine elf.Machine
	kind    elf.Type
	interp  string
	dynamic bool
	pie     bool
	align   uint64
	loads   []Load
	// end is where the last byte that is ever loaded ends: behind it are
	// section headers, symbol tables and debugging information.
	end uint64
}

// parseELF reads the program header of a file of size bytes. Files of another
// class, byte order or machine come back with only these set.
func parseELF(r io.ReaderAt, size int64) (*program, error) {
	var h [elfHeaderSize]byte
	n, err := r.ReadAt(h[:], 0)
	if n < 20 || !bytes.HasPrefix(h[:], []byte(elf.ELFMAG)) {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errNotELF
	}
	p := &program{class: elf.Class(h[elf.EI_CLASS])}
	if elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return p, nil
	}
	p.kind = elf.Type(binary.LittleEndian.Uint16(h[16:]))
	p.machine = elf.Machine(binary.LittleEndian.Uint16(h[18:]))
	if !p.native() {
		return p, nil
	}
	off, count := binary.LittleEndian.Uint64(h[32:]), int(binary.LittleEndian.Uint16(h[56:]))
	if n < elfHeaderSize || count > maxProgs || count > 0 && binary.LittleEndian.Uint16(h[54:]) != progSize {
		return nil, errBadELF
	}
	if off > uint64(size) || uint64(count*progSize) > uint64(size)-off {
		return nil, errBadELF
	}
	table := make([]byte, count*progSize)
	if _, err := r.ReadAt(table, int64(off)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p.end = max(elfHeaderSize, off+uint64(len(table)))
	for ; len(table) > 0; table = table[progSize:] {
		if err := p.segment(r, uint64(size), table[:progSize]); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(p.loads, func(a, b Load) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	return p, nil
}

func (p *program) segment(r io.ReaderAt, size uint64, b []byte) error {
	kind := elf.ProgType(binary.LittleEndian.Uint32(b))
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	l := Load{Flags: binary.LittleEndian.Uint32(b[4:]), Off: word(1), Vaddr: word(2), Filesz: word(4), Memsz: word(5)}
	if l.Off > size || l.Filesz > size-l.Off {
		return errBadELF
	}
	if l.Filesz > 0 {
		p.end = max(p.end, l.Off+l.Filesz)
	}
	switch kind {
	case elf.PT_LOAD:
		p.loads = append(p.loads, l)
		p.align = max(p.align, word(6))
	case elf.PT_INTERP:
		if l.Filesz > maxPath {
			return errBadELF
		}
		text := make([]byte, l.Filesz)
		if _, err := r.ReadAt(text, int64(l.Off)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		p.interp = strings.TrimRight(string(text), "\x00")
	case elf.PT_DYNAMIC:
		p.dynamic = true
		return p.dynamicFlags(r, l)
	}
	return nil
}

// dynamicFlags looks for the flag that tells a PIE program from a library.
func (p *program) dynamicFlags(r io.ReaderAt, l Load) error {
	table := make([]byte, min(l.Filesz, maxDynamic)&^15)
	if _, err := r.ReadAt(table, int64(l.Off)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for ; len(table) > 0; table = table[16:] {
		tag := elf.DynTag(binary.LittleEndian.Uint64(table))
		if tag == elf.DT_FLAGS_1 {
			p.pie = elf.DynFlag1(binary.LittleEndian.Uint64(table[8:]))&elf.DF_1_PIE != 0
		}
		if tag == elf.DT_NULL {
			break
		}
	}
	return nil
}

func (p *program) native() bool {
	return p.class == elf.ELFCLASS64 && p.machine == elf.EM_X86_64
}

// library reports whether the file is one that dlopen can load.
func (p *program) library() bool {
	return p.native() && p.kind == elf.ET_DYN && p.dynamic && !p.pie && len(p.loads) > 0
}

func (p *program) object(guest string) Object {
	last := p.loads[len(p.loads)-1]
	return Object{
		Path: guest, Position: p.kind == elf.ET_EXEC,
		Low: p.loads[0].Vaddr, High: last.Vaddr + last.Memsz, Align: max(p.align, 1), Loads: p.loads,
	}
}

// cutELF returns the part of a native ELF file that is ever loaded, with a
// header that names no sections. It changes data.
func cutELF(data []byte, p *program) []byte {
	data = data[:min(uint64(len(data)), p.end)]
	if len(data) >= elfHeaderSize {
		clear(data[40:48]) // e_shoff
		clear(data[58:64]) // e_shentsize, e_shnum, e_shstrndx
	}
	return data
}
