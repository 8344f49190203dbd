package windows

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
)

// missingLibrary is what Go's runtime says where bcryptprimitives.dll, which it
// asks for random numbers, does not exist: Wine has it from version 9 on.
const missingLibrary = "bcryptprimitives.dll not found"

// starts makes sure that programs built by Go start in this Wine.
func (w *wine) starts(t *testing.T, args ...string) {
	t.Helper()
	if _, stderr, _ := w.run(t, args...); !strings.Contains(stderr, missingLibrary) {
		return
	}
	if !cpu.X86.HasRDRAND {
		t.Skip("needs Wine 9, or a processor with RDRAND")
	}
	path := filepath.Join(w.prefix, "drive_c", "windows", "system32", "bcryptprimitives.dll")
	if err := os.WriteFile(path, library(), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "WINEDLLOVERRIDES=bcryptprimitives=n")
	if _, stderr, _ := w.run(t, args...); strings.Contains(stderr, missingLibrary) {
		t.Skip("needs Wine 9: this one does not load a library that the test made")
	}
}

// library makes a bcryptprimitives.dll with the one function that Go calls,
//
//	BOOL ProcessPrng(PBYTE data, SIZE_T length)
//
// which fills the buffer by RDRAND. The layout is that of Microsoft's "PE
// Format": headers, one section with code, one with the table of exports.
func library() []byte {
	const (
		page, sector = 0x1000, 0x200
		text, edata  = page, 2 * page // where the sections are in memory
		dll, fn      = "bcryptprimitives.dll\x00", "ProcessPrng\x00"
		tables       = 40 // bytes of the directory of exports
	)
	code := []byte{
		0x48, 0x85, 0xd2, // test rdx, rdx
		0x74, 0x10, // jz done
		0x48, 0x0f, 0xc7, 0xf0, // next: rdrand rax
		0x73, 0xfa, // jnc next
		0x88, 0x01, // mov [rcx], al
		0x48, 0xff, 0xc1, // inc rcx
		0x48, 0xff, 0xca, // dec rdx
		0x75, 0xf0, // jnz next
		0xb8, 1, 0, 0, 0, // done: mov eax, 1
		0xc3, // ret
	}
	name := uint32(edata + tables + 10) // after the three tables of one entry
	exports := pack(
		[]uint32{0, 0, 0, name, 1, 1, 1, edata + tables, edata + tables + 4, edata + tables + 8},
		uint32(text), name+uint32(len(dll)), uint16(0), []byte(dll+fn),
	)
	headers := pack(
		[]byte("MZ"), make([]byte, 58), uint32(0x40),
		[]byte("PE\x00\x00"), uint16(0x8664), uint16(2), make([]byte, 12), uint16(240), uint16(0x2022),
		// The optional header; no entry point, relocatable.
		uint16(0x20b), uint16(1), []uint32{sector, sector, 0, 0, text},
		uint64(0x180000000), []uint32{page, sector}, []uint16{6, 0, 0, 0, 6, 0}, []uint32{0, 3 * page, sector, 0}, []uint16{3, 0x100},
		[]uint64{1 << 20, page, 1 << 20, page}, []uint32{0, 16}, []uint32{edata, uint32(len(exports))}, make([]byte, 15*8),
		[]byte(".text\x00\x00\x00"), []uint32{sector, text, sector, sector, 0, 0, 0, 0x60000020},
		[]byte(".edata\x00\x00"), []uint32{sector, edata, sector, 2 * sector, 0, 0, 0, 0x40000040},
	)
	file := make([]byte, 3*sector)
	copy(file, headers)
	copy(file[sector:], code)
	copy(file[2*sector:], exports)
	return file
}

// pack writes values one after the other, little end first.
func pack(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		_ = binary.Write(&b, binary.LittleEndian, v) // to memory, of fixed sizes
	}
	return b.Bytes()
}
