//go:build unix

package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"
)

// elfSpec describes an invented ELF file.
type elfSpec struct {
	class   elf.Class
	machine elf.Machine
	kind    elf.Type
	interp  string
	pie     bool
}

// makeELF makes an ELF file with one PT_LOAD, a PT_DYNAMIC, and bytes behind
// them that no loader maps.
func makeELF(s elfSpec) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x400)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(s.class), byte(elf.ELFDATA2LSB), 1
	le.PutUint16(b[16:], uint16(s.kind))
	le.PutUint16(b[18:], uint16(s.machine))
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[32:], elfHeaderSize)
	le.PutUint64(b[40:], 0x380) // section headers
	le.PutUint16(b[54:], progSize)
	le.PutUint16(b[56:], 3)
	le.PutUint16(b[60:], 2)
	put := func(i int, kind elf.ProgType, off, size uint64) {
		p := b[elfHeaderSize+i*progSize:]
		le.PutUint32(p, uint32(kind))
		le.PutUint32(p[4:], uint32(elf.PF_R))
		for j, v := range []uint64{off, off, off, size, size, 0x1000} {
			le.PutUint64(p[8+8*j:], v)
		}
	}
	put(0, elf.PT_LOAD, 0, 0x300)
	put(1, elf.PT_DYNAMIC, 0x200, 32)
	put(2, elf.PT_NULL, 0, 0)
	if s.interp != "" {
		copy(b[0x280:], s.interp)
		put(2, elf.PT_INTERP, 0x280, uint64(len(s.interp)+1))
	}
	if s.pie {
		le.PutUint64(b[0x200:], uint64(elf.DT_FLAGS_1))
		le.PutUint64(b[0x208:], uint64(elf.DF_1_PIE))
	}
	return b
}

func tinyELF() []byte {
	return makeELF(elfSpec{class: elf.ELFCLASS64, machine: elf.EM_X86_64, kind: elf.ET_DYN})
}

func TestELFFileIsCutDownToWhatIsLoaded(t *testing.T) {
	data := tinyELF()
	p, err := parseELF(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if !p.library() || p.end != 0x300 || len(p.loads) != 1 {
		t.Errorf("program %+v", p)
	}
	cut := cutELF(data, p)
	f, err := elf.NewFile(bytes.NewReader(cut))
	if err != nil {
		t.Fatal(err)
	}
	if len(cut) != 0x300 || len(f.Sections) != 0 || len(f.Progs) != 3 {
		t.Errorf("%d bytes, %d sections, %d segments", len(cut), len(f.Sections), len(f.Progs))
	}
}

func TestOnlyLibrariesAreTakenForLibraries(t *testing.T) {
	native := elfSpec{class: elf.ELFCLASS64, machine: elf.EM_X86_64, kind: elf.ET_DYN}
	tests := map[string]struct {
		change func(s *elfSpec)
		want   bool
	}{
		"library":              {func(*elfSpec) {}, true},
		"libc, which can run":  {func(s *elfSpec) { s.interp = "/lib64/ld.so" }, true},
		"PIE program":          {func(s *elfSpec) { s.pie = true }, false},
		"program":              {func(s *elfSpec) { s.kind = elf.ET_EXEC }, false},
		"object file":          {func(s *elfSpec) { s.kind = elf.ET_REL }, false},
		"another architecture": {func(s *elfSpec) { s.machine = elf.EM_AARCH64 }, false},
		"32-bit":               {func(s *elfSpec) { s.class = elf.ELFCLASS32 }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := native
			tt.change(&s)
			b := makeELF(s)
			p, err := parseELF(bytes.NewReader(b), int64(len(b)))
			if err != nil || p.library() != tt.want {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestMalformedELFIsRefused(t *testing.T) {
	tests := map[string]func(b []byte) []byte{
		"cut off":                 func(b []byte) []byte { return b[:40] },
		"headers behind the end":  func(b []byte) []byte { binary.LittleEndian.PutUint64(b[32:], 1<<40); return b },
		"too many headers":        func(b []byte) []byte { b[57] = 0xff; return b },
		"size of headers":         func(b []byte) []byte { b[54] = 1; return b },
		"segment behind the end":  func(b []byte) []byte { binary.LittleEndian.PutUint64(b[72:], 1<<40); return b },
		"segment that overflows":  func(b []byte) []byte { binary.LittleEndian.PutUint64(b[96:], 1<<63); return b },
		"nothing behind the name": func(b []byte) []byte { return b[:20] },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			b := change(tinyELF())
			if p, err := parseELF(bytes.NewReader(b), int64(len(b))); !errors.Is(err, errBadELF) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	if _, err := parseELF(bytes.NewReader([]byte("#!/bin/sh\n")), 10); !errors.Is(err, errNotELF) {
		t.Errorf("a script: %v", err)
	}
}

func FuzzParseELF(f *testing.F) {
	f.Add(tinyELF())
	f.Add(makeELF(elfSpec{class: elf.ELFCLASS64, machine: elf.EM_X86_64, kind: elf.ET_EXEC, interp: "/lib64/ld.so", pie: true}))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseELF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if p.native() && p.end > uint64(max(len(b), elfHeaderSize)) {
			t.Fatalf("end %d of %d bytes", p.end, len(b))
		}
		cutELF(b, p)
		if p.library() {
			o := p.object("/x")
			_ = o.check()
		}
	})
}
