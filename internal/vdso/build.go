package vdso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// MaxSize bounds what Build returns, in bytes: one page.
const MaxSize = 4096

// Names that the C library looks for.
const (
	soname  = "linux-vdso.so.1"
	version = "LINUX_2.6"
)

// Indices of the version definitions; 0 and 1 are reserved for local and for
// the object itself.
const (
	baseVersion   = 1
	symbolVersion = 2
)

// function is an entry point of the machine code.
type function struct {
	name         string
	offset, size uint64
}

// Build returns the shared object as it is to lie in memory, at any page
// boundary, readable and executable and never written: one ELF segment from
// address 0 that holds everything (the C library takes the first PT_LOAD for
// the bias). clockPage is the guest address of the clock page.
func Build(clockPage uint64) []byte {
	var b builder
	b.reserve(headersSize)
	names := []byte{0}
	intern := func(s string) uint32 {
		at := len(names)
		names = append(append(names, s...), 0)
		return uint32(at)
	}
	sonameAt, versionAt := intern(soname), intern(version)

	hash := b.section(".hash", elf.SHT_HASH, 8, hashTable(len(functions)+1), 4)
	// The symbols hold addresses in the text, so they are filled in below.
	symbols := make([]elf.Sym64, 1, len(functions)+1)
	symtab := b.section(".dynsym", elf.SHT_DYNSYM, 8, make([]byte, (len(functions)+1)*elf.Sym64Size), elf.Sym64Size)
	for _, f := range functions {
		symbols = append(symbols, elf.Sym64{
			Name: intern(f.name),
			Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC),
			Size: f.size,
		})
	}
	strtab := b.section(".dynstr", elf.SHT_STRTAB, 1, names, 0)
	versym := b.section(".gnu.version", elf.SHT_GNU_VERSYM, 2, versionTable(len(functions)), 2)
	verdef := b.section(".gnu.version_d", elf.SHT_GNU_VERDEF, 8, versionDefinitions(sonameAt, versionAt), 0)
	dynamic := b.section(".dynamic", elf.SHT_DYNAMIC, 8, encode([]elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: uint64(sonameAt)},
		{Tag: int64(elf.DT_HASH), Val: b.sections[hash].Addr},
		{Tag: int64(elf.DT_SYMTAB), Val: b.sections[symtab].Addr},
		{Tag: int64(elf.DT_SYMENT), Val: elf.Sym64Size},
		{Tag: int64(elf.DT_STRTAB), Val: b.sections[strtab].Addr},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(names))},
		{Tag: int64(elf.DT_VERSYM), Val: b.sections[versym].Addr},
		{Tag: int64(elf.DT_VERDEF), Val: b.sections[verdef].Addr},
		{Tag: int64(elf.DT_VERDEFNUM), Val: symbolVersion},
		{Tag: int64(elf.DT_NULL)},
	}), 16)
	text := b.section(".text", elf.SHT_PROGBITS, 16, machineCode(clockPage), 0)

	for i, f := range functions {
		symbols[i+1].Shndx = uint16(text)
		symbols[i+1].Value = b.sections[text].Addr + f.offset
	}
	copy(b.image[b.sections[symtab].Off:], encode(symbols))
	b.sections[hash].Link = uint32(symtab)
	b.sections[symtab].Link, b.sections[symtab].Info = uint32(strtab), 1
	b.sections[versym].Link = uint32(symtab)
	b.sections[verdef].Link, b.sections[verdef].Info = uint32(strtab), symbolVersion
	b.sections[dynamic].Link = uint32(strtab)
	b.sections[text].Flags |= uint64(elf.SHF_EXECINSTR)
	return b.finish(dynamic)
}

// machineCode gives the code with the clock page's address in place.
func machineCode(clockPage uint64) []byte {
	out := bytes.Clone(code[:])
	for _, at := range clockPageAt {
		binary.LittleEndian.PutUint64(out[at:], clockPage)
	}
	return out
}

// hashTable is a DT_HASH of one bucket: a chain through all n symbols but the
// first, which is the null symbol.
func hashTable(n int) []byte {
	words := []uint32{1, uint32(n), 1, 0}
	for i := 1; i < n; i++ {
		words = append(words, uint32((i+1)%n))
	}
	return encode(words)
}

// versionTable gives every one of n functions the same version.
func versionTable(n int) []byte {
	indices := make([]uint16, n+1)
	for i := range n {
		indices[i+1] = symbolVersion
	}
	return encode(indices)
}

// versionDefinitions is the DT_VERDEF of the object itself and of the one
// version, whose names are at the given offsets of the string table.
func versionDefinitions(sonameAt, versionAt uint32) []byte {
	// Elf64_Verdef and Elf64_Verdaux of the generic ABI's GNU extension; package
	// elf has no types for them.
	type verdef struct {
		Version, Flags, Index, Count uint16
		Hash, Aux, Next              uint32
		Name, NextAux                uint32
	}
	const (
		current   = 1
		base      = 1 // VER_FLG_BASE
		headSize  = 20
		entrySize = 28
	)
	return encode([]verdef{
		{Version: current, Flags: base, Index: baseVersion, Count: 1, Hash: elfHash(soname), Aux: headSize, Next: entrySize, Name: sonameAt},
		{Version: current, Index: symbolVersion, Count: 1, Hash: elfHash(version), Aux: headSize, Name: versionAt},
	})
}

// elfHash is the System V ABI's hash of a symbol name.
func elfHash(name string) uint32 {
	var h uint32
	for _, c := range []byte(name) {
		h = h<<4 + uint32(c)
		high := h & 0xf0000000
		h = (h ^ high>>24) &^ high
	}
	return h
}
