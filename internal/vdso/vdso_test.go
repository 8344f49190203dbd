package vdso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

const testClockPage = 0x7a5e_5000

func open(t *testing.T, image []byte) *elf.File {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestObjectFitsInOnePage(t *testing.T) {
	if n := len(Build(testClockPage)); n > MaxSize {
		t.Errorf("%d bytes, want at most %d", n, MaxSize)
	}
}

func TestObjectIsOneReadExecuteSegmentFromZero(t *testing.T) {
	image := Build(testClockPage)
	f := open(t, image)
	if f.Type != elf.ET_DYN || f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		t.Errorf("header %+v", f.FileHeader)
	}
	var loads []elf.ProgHeader
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			loads = append(loads, p.ProgHeader)
		}
	}
	want := elf.ProgHeader{
		Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X,
		Filesz: uint64(len(image)), Memsz: uint64(len(image)), Align: 4096,
	}
	if len(loads) != 1 || loads[0] != want {
		t.Errorf("PT_LOADs %+v, want %+v", loads, want)
	}
}

func TestDynamicTagsPointAtTheirTables(t *testing.T) {
	f := open(t, Build(testClockPage))
	for tag, section := range map[elf.DynTag]string{
		elf.DT_HASH:   ".hash",
		elf.DT_SYMTAB: ".dynsym",
		elf.DT_STRTAB: ".dynstr",
		elf.DT_VERSYM: ".gnu.version",
		elf.DT_VERDEF: ".gnu.version_d",
	} {
		got, err := f.DynValue(tag)
		if err != nil {
			t.Fatal(err)
		}
		if want := f.Section(section).Addr; !slices.Equal(got, []uint64{want}) {
			t.Errorf("%v = %#x, want %#x", tag, got, want)
		}
	}
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || !slices.Equal(names, []string{"linux-vdso.so.1"}) {
		t.Errorf("DT_SONAME %q, %v", names, err)
	}
}

func TestSymbolsAreFunctionsInTheTextWithTheVersionOfLinux(t *testing.T) {
	f := open(t, Build(testClockPage))
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	text := f.Section(".text")
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.ST_BIND(s.Info) != elf.STB_GLOBAL {
			t.Errorf("%s: info %#x", s.Name, s.Info)
		}
		if s.Size == 0 || s.Value < text.Addr || s.Value+s.Size > text.Addr+text.Size {
			t.Errorf("%s: %#x+%#x outside the text", s.Name, s.Value, s.Size)
		}
		if s.Version != "LINUX_2.6" {
			t.Errorf("%s: version %q", s.Name, s.Version)
		}
	}
	slices.Sort(names)
	want := []string{"__vdso_clock_gettime", "__vdso_getcpu", "__vdso_gettimeofday", "__vdso_time"}
	if !slices.Equal(names, want) {
		t.Errorf("symbols %q, want %q", names, want)
	}
	versions, err := f.DynamicVersions()
	if err != nil || len(versions) != 2 || versions[1].Name != "LINUX_2.6" {
		t.Errorf("versions %+v, %v", versions, err)
	}
}

func TestHashTableReachesEverySymbol(t *testing.T) {
	f := open(t, Build(testClockPage))
	data, err := f.Section(".hash").Data()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, words); err != nil {
		t.Fatal(err)
	}
	chain := words[3:]
	var reached []uint32
	for i := words[2]; i != 0 && len(reached) < len(chain); i = chain[i] {
		reached = append(reached, i)
	}
	if !slices.Equal(reached, []uint32{1, 2, 3, 4}) {
		t.Errorf("table %v reaches %v", words, reached)
	}
}

func TestVersionHashIsTheOneTheCLibraryLooksFor(t *testing.T) {
	// The constant is in the C library's source (sysdeps/unix/sysv/linux/dl-vdso.h).
	if got := elfHash("LINUX_2.6"); got != 0x3ae75f6 {
		t.Errorf("hash %#x", got)
	}
}

func TestOnlyTheClockPageAddressDependsOnTheArgument(t *testing.T) {
	a, b := Build(0), Build(math.MaxUint64)
	differing := 0
	for i := range a {
		if a[i] != b[i] {
			differing++
		}
	}
	if want := 8 * len(clockPageAt); len(a) != len(b) || differing != want {
		t.Errorf("%d bytes differ, want %d", differing, want)
	}
}

func TestClockAt(t *testing.T) {
	const second = 1_000_000_000
	for _, tt := range []struct {
		name                string
		clock               Clock
		tsc                 uint64
		monotonic, realtime uint64
	}{
		{"at the start both clocks read their bases", Clock{100, TickLength(1e6), 7, 9}, 100, 7, 9},
		{"a tick of a 1 GHz counter is a nanosecond", Clock{100, TickLength(1e6), 7, 9}, 105, 12, 14},
		{"an earlier counter counts as no time", Clock{100, TickLength(1e6), 7, 9}, 99, 7, 9},
		{"a year at 4 GHz does not overflow", Clock{0, TickLength(4e6), 0, 0}, 4 * second * 31_536_000, 31_536_000 * second, 31_536_000 * second},
		{"no tick length is no time", Clock{0, TickLength(0), 7, 9}, 1 << 60, 7, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			monotonic, realtime := tt.clock.At(tt.tsc)
			if monotonic != tt.monotonic || realtime != tt.realtime {
				t.Errorf("got %d, %d, want %d, %d", monotonic, realtime, tt.monotonic, tt.realtime)
			}
		})
	}
}
