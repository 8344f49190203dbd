package vdso

import (
	"debug/elf"
	"encoding/binary"
)

// Sizes of ELF structures in bytes.
const (
	headerSize  = 64
	progSize    = 56
	sectionSize = 64
	programs    = 3
	headersSize = headerSize + programs*progSize
)

// builder lays sections one behind the other. Addresses are file offsets.
type builder struct {
	image    []byte
	sections []elf.Section64
	names    []byte
}

// reserve leaves n bytes for what is only known at the end.
func (b *builder) reserve(n int) {
	b.image = make([]byte, n, MaxSize)
	b.sections = []elf.Section64{{}}
	b.names = []byte{0}
}

// section appends data and returns the section's index.
func (b *builder) section(name string, kind elf.SectionType, align int, data []byte, entrySize uint64) int {
	for len(b.image)%align != 0 {
		b.image = append(b.image, 0)
	}
	b.sections = append(b.sections, elf.Section64{
		Name:      uint32(len(b.names)),
		Type:      uint32(kind),
		Flags:     uint64(elf.SHF_ALLOC),
		Addr:      uint64(len(b.image)),
		Off:       uint64(len(b.image)),
		Size:      uint64(len(data)),
		Addralign: uint64(align),
		Entsize:   entrySize,
	})
	b.names = append(append(b.names, name...), 0)
	b.image = append(b.image, data...)
	return len(b.sections) - 1
}

// finish adds the section headers (for debuggers; no loader reads them) and
// fills in the headers at the front.
func (b *builder) finish(dynamic int) []byte {
	strings := b.section(".shstrtab", elf.SHT_STRTAB, 1, nil, 0)
	b.image = append(b.image, b.names...)
	b.sections[strings].Size = uint64(len(b.names))
	b.sections[strings].Flags, b.sections[strings].Addr = 0, 0
	for len(b.image)%8 != 0 {
		b.image = append(b.image, 0)
	}
	sectionsAt := uint64(len(b.image))
	b.image = append(b.image, encode(b.sections)...)

	header := elf.Header64{
		Type:      uint16(elf.ET_DYN),
		Machine:   uint16(elf.EM_X86_64),
		Version:   uint32(elf.EV_CURRENT),
		Phoff:     headerSize,
		Shoff:     sectionsAt,
		Ehsize:    headerSize,
		Phentsize: progSize,
		Phnum:     programs,
		Shentsize: sectionSize,
		Shnum:     uint16(len(b.sections)),
		Shstrndx:  uint16(strings),
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)

	total := uint64(len(b.image))
	d := b.sections[dynamic]
	copy(b.image, encode(header))
	copy(b.image[headerSize:], encode([]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: total, Memsz: total, Align: MaxSize},
		{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R), Off: d.Off, Vaddr: d.Addr, Paddr: d.Addr, Filesz: d.Size, Memsz: d.Size, Align: d.Addralign},
		// Without it a loader takes the object for one that needs an executable
		// stack.
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}))
	return b.image
}

// encode gives the little-endian bytes of a value of fixed size.
func encode(v any) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		// Only a type without a fixed size gets here, which no caller passes.
		panic(err)
	}
	return out
}
