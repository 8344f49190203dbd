//go:build linux && amd64

package kvmvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// register is one of the registers in which CPUID answers.
type register uint8

const (
	regEAX register = iota
	regEBX
	regECX
	regEDX
)

// feature is a bit of CPUID by which native libraries choose their code.
type feature struct {
	leaf, index uint32
	reg         register
	bit         uint8
	name        string
}

// features are those that must show in a guest when the processor has them: the
// x86-64-v3 and -v4 levels of the System V ABI (x86-64 psABI, table 3.1) and
// what else libraries ask for. Bits: SDM vol. 2A, CPUID.
var features = []feature{
	{1, 0, regECX, 0, "SSE3"}, {1, 0, regECX, 1, "PCLMULQDQ"}, {1, 0, regECX, 9, "SSSE3"}, {1, 0, regECX, 12, "FMA"},
	{1, 0, regECX, 13, "CX16"}, {1, 0, regECX, 19, "SSE4.1"}, {1, 0, regECX, 20, "SSE4.2"}, {1, 0, regECX, 22, "MOVBE"},
	{1, 0, regECX, 23, "POPCNT"}, {1, 0, regECX, 25, "AES"}, {1, 0, regECX, 28, "AVX"}, {1, 0, regECX, 29, "F16C"},
	{7, 0, regEBX, 3, "BMI1"}, {7, 0, regEBX, 5, "AVX2"}, {7, 0, regEBX, 8, "BMI2"}, {7, 0, regEBX, 29, "SHA"},
	{7, 0, regEBX, 16, "AVX512F"}, {7, 0, regEBX, 17, "AVX512DQ"}, {7, 0, regEBX, 28, "AVX512CD"},
	{7, 0, regEBX, 30, "AVX512BW"}, {7, 0, regEBX, 31, "AVX512VL"},
	{0x80000001, 0, regECX, 0, "LAHF"}, {0x80000001, 0, regECX, 5, "LZCNT"},
}

// needsAVX512: the feature is of use with the AVX-512 state only (XCR0 bits 5 to 7).
func (f feature) needsAVX512() bool { return len(f.name) >= 6 && f.name[:6] == "AVX512" }

// cpuidFunc answers CPUID.
type cpuidFunc func(leaf, index uint32) [4]uint32

func hostCPUID(leaf, index uint32) [4]uint32 {
	// Leaves beyond the last one answer with another leaf's content.
	if top, _, _, _ := cpuid(leaf&0x80000000, 0); leaf > top {
		return [4]uint32{}
	}
	a, b, c, d := cpuid(leaf, index)
	return [4]uint32{a, b, c, d}
}

// tableCPUID answers from a table.
func tableCPUID(t []kvm.CPUIDEntry) cpuidFunc {
	return func(leaf, index uint32) [4]uint32 {
		for _, e := range t {
			if e.Function == leaf && e.Index == index {
				return [4]uint32{e.EAX, e.EBX, e.ECX, e.EDX}
			}
		}
		return [4]uint32{}
	}
}

// missing names the features that the host has and a guest does not see.
func missing(host, guest cpuidFunc, xcr0 uint64) []string {
	var names []string
	for _, f := range features {
		if f.needsAVX512() && xcr0&0xE0 != 0xE0 {
			continue
		}
		bit := uint32(1) << f.bit
		if host(f.leaf, f.index)[f.reg]&bit != 0 && guest(f.leaf, f.index)[f.reg]&bit == 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// Features is what the self-test found.
type Features struct {
	// Seen is how many of the features that libraries choose their code by a
	// guest sees, Missing names those that the processor has and it does not
	// see. With even one missing a library may fall back to code several times
	// slower, silently.
	Seen    int
	Missing []string
}

// SelfTest runs a guest that executes CPUID and XGETBV and compares what it
// sees with what this processor has: KVM's own word is not taken for it.
func (p *Platform) SelfTest() (Features, error) {
	seen, xcr0, err := p.lookInside()
	if err != nil {
		return Features{}, err
	}
	if xcr0&p.xcr0 != p.xcr0 {
		return Features{}, fmt.Errorf("%w: a guest has extended state %#x, asked for was %#x", platform.ErrMachine, xcr0, p.xcr0)
	}
	f := Features{Missing: missing(hostCPUID, seen, p.xcr0)}
	for _, x := range features {
		if seen(x.leaf, x.index)[x.reg]&(1<<x.bit) != 0 {
			f.Seen++
		}
	}
	return f, nil
}

// lookInside gives what CPUID and XGETBV answer in ring 3 of a guest.
func (p *Platform) lookInside() (cpuidFunc, uint64, error) {
	leaves := [][2]uint32{{1, 0}, {7, 0}, {0x80000001, 0}}
	code := platform.Span{Lo: platform.UserLo, Hi: platform.UserLo + platform.PageSize, Prot: platform.Read | platform.Exec}
	data := platform.Span{Lo: code.Hi, Hi: code.Hi + platform.PageSize, Prot: platform.Read | platform.Write}
	at := uint32(data.Lo)
	var text []byte
	emit := func(b ...byte) { text = append(text, b...) }
	word := func(v uint32) { text = binary.LittleEndian.AppendUint32(text, v) }
	store := func(modrm byte) { // mov [at], register
		emit(0x89, modrm, 0x25)
		word(at)
		at += 4
	}
	for _, l := range leaves {
		emit(0xB8) // mov eax, leaf
		word(l[0])
		emit(0xB9) // mov ecx, index
		word(l[1])
		emit(0x0F, 0xA2) // cpuid
		store(0x04)
		store(0x1C)
		store(0x0C)
		store(0x14)
	}
	if p.xcr0&4 != 0 { // without AVX the host may not have XGETBV
		emit(0x31, 0xC9, 0x0F, 0x01, 0xD0) // xor ecx, ecx; xgetbv
		store(0x04)
		store(0x14)
	}
	emit(0x0F, 0x05) // syscall
	m, fd, err := p.Boot(data.Hi, []platform.Span{code, data}, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = errors.Join(m.Close(), unix.Close(fd)) }() // nothing is kept
	m.Load(code.Lo, text)
	m.Regs().RIP = code.Lo
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := platform.Exit{Kind: platform.Interrupted}
	for e.Kind == platform.Interrupted {
		if e, err = m.Run(); err != nil {
			return nil, 0, err
		}
	}
	if e.Kind != platform.Syscall {
		return nil, 0, fmt.Errorf("%w: the self-test ended as exit %d, exception %d", platform.ErrMachine, e.Kind, e.Vector)
	}
	b := make([]byte, 16*len(leaves)+8)
	m.CopyIn(b, data.Lo)
	seen := map[[2]uint32][4]uint32{}
	for i, l := range leaves {
		var v [4]uint32
		for j := range v {
			v[j] = binary.LittleEndian.Uint32(b[16*i+4*j:])
		}
		seen[l] = v
	}
	xcr0 := p.xcr0
	if p.xcr0&4 != 0 {
		xcr0 = binary.LittleEndian.Uint64(b[16*len(leaves):])
	}
	return func(leaf, index uint32) [4]uint32 { return seen[[2]uint32{leaf, index}] }, xcr0, nil
}
