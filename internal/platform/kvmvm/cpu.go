//go:build linux && amd64

package kvmvm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/x86"
)

// rdtsc reads the time stamp counter after all earlier instructions.
func rdtsc() uint64 { return x86.TSC() }

// cpuid executes CPUID.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32) { return x86.CPUID(leaf, subleaf) }

// offeredXCR0 are the extended state components a guest may use: x87, SSE, AVX
// and AVX-512. They fit the 4 KiB XSAVE area; AMX tiles and PKRU do not take
// part.
const offeredXCR0 = 0xE7

// Features that a process may use are passed on even where KVM's own table
// leaves them out (kvm-pvm leaves out LZCNT, and numpy then silently falls back
// to code up to 11 times slower). Masked out are those that need the kernel's
// help or state that is not switched. Bits: SDM vol. 2A, CPUID.
const (
	leaf1ECX = 1<<0 | 1<<1 | 1<<9 | 1<<12 | 1<<13 | 1<<19 | 1<<20 | 1<<22 | 1<<23 | 1<<25 | 1<<26 | 1<<28 | 1<<29 | 1<<30
	// SSE3 PCLMUL SSSE3 FMA CX16 SSE4.1 SSE4.2 MOVBE POPCNT AES XSAVE AVX F16C RDRAND
	leaf7EBX = 1<<3 | 1<<5 | 1<<8 | 1<<9 | 1<<16 | 1<<17 | 1<<18 | 1<<19 | 1<<21 | 1<<23 | 1<<24 | 1<<26 | 1<<27 | 1<<28 | 1<<29 | 1<<30 | 1<<31
	// BMI1 AVX2 BMI2 ERMS AVX512{F,DQ} RDSEED ADX AVX512IFMA CLFLUSHOPT CLWB AVX512{PF,ER,CD} SHA AVX512{BW,VL}
	leaf7ECX = 1<<1 | 1<<6 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12 | 1<<14 | 1<<22
	// AVX512VBMI VBMI2 GFNI VAES VPCLMULQDQ VNNI BITALG VPOPCNTDQ RDPID
	leaf7EDX = 1<<2 | 1<<3 | 1<<4 | 1<<8 | 1<<23
	// AVX512_4VNNIW 4FMAPS FSRM VP2INTERSECT FP16
	leaf71EAX = 1<<4 | 1<<5 | 1<<10 | 1<<11 | 1<<12
	// AVX_VNNI AVX512_BF16 FZRM FSRS FSRCS
	ext1ECX = 1<<0 | 1<<5 | 1<<6 | 1<<8
	// LAHF LZCNT SSE4A PREFETCHW
)

// Bits that are taken away wherever they come from.
const (
	hide1ECX  = 1<<3 | 1<<5 | 1<<15 | 1<<21 | 1<<24 | 1<<31 // MONITOR VMX PDCM x2APIC TSC-deadline hypervisor
	hide7EBX  = 1<<0 | 1<<2 | 1<<4 | 1<<11 | 1<<14          // FSGSBASE SGX HLE RTM MPX
	hide7ECX  = 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<7 | 1<<13    // UMIP PKU OSPKE WAITPKG CET_SS TME
	hide7EDX  = 1<<20 | 1<<22 | 1<<24 | 1<<25               // CET_IBT AMX-BF16 AMX-TILE AMX-INT8
	hide71EAX = 1 << 21                                     // AMX-FP16
	hideExt1  = 1<<2 | 1<<10 | 1<<12                        // SVM IBS SKINIT
)

const significantIndex = 1 // KVM_CPUID_FLAG_SIGNIFCANT_INDEX

// guestCPUID makes the guest's CPUID table from what KVM offers and what this
// processor has.
func guestCPUID(offered []kvm.CPUIDEntry, xcr0 uint64) []kvm.CPUIDEntry {
	var t []kvm.CPUIDEntry
	for _, e := range offered {
		switch {
		case e.Function >= 0x40000000 && e.Function < 0x80000000:
			// The hypervisor's leaves promise paravirtual devices.
			continue
		case e.Function == 0x1D || e.Function == 0x1E || e.Function == 0x12 || e.Function == 0x14:
			// AMX, SGX and processor trace.
			continue
		}
		t = append(t, e)
	}
	at := func(leaf, index uint32) *kvm.CPUIDEntry {
		i := slices.IndexFunc(t, func(e kvm.CPUIDEntry) bool { return e.Function == leaf && e.Index == index })
		if i < 0 {
			flags := uint32(0)
			if leaf == 7 || leaf == 0xD {
				flags = significantIndex
			}
			t = append(t, kvm.CPUIDEntry{Function: leaf, Index: index, Flags: flags})
			i = len(t) - 1
		}
		return &t[i]
	}
	avx512 := xcr0&0xE0 == 0xE0
	_, _, hc, _ := cpuid(1, 0)
	e := at(1, 0)
	e.ECX = (e.ECX | hc&leaf1ECX) &^ hide1ECX
	// One processor with identifier 0: which one of the host's made the table
	// must not show, nor change the template's key.
	e.EBX = e.EBX&0x0000FFFF | 1<<16
	maxLeaf, _, _, _ := cpuid(0, 0)
	if maxLeaf >= 7 {
		sub, hb, hc, hd := cpuid(7, 0)
		e = at(7, 0)
		e.EBX = (e.EBX | hb&leaf7EBX) &^ hide7EBX
		e.ECX = (e.ECX | hc&leaf7ECX) &^ hide7ECX
		e.EDX = (e.EDX | hd&leaf7EDX) &^ hide7EDX
		if !avx512 {
			e.EBX &^= 1<<16 | 1<<17 | 1<<21 | 1<<26 | 1<<27 | 1<<28 | 1<<30 | 1<<31
			e.ECX &^= 1<<1 | 1<<6 | 1<<11 | 1<<12 | 1<<14
			e.EDX &^= 1<<2 | 1<<3 | 1<<8 | 1<<23
		}
		if sub >= 1 {
			ha, _, _, _ := cpuid(7, 1)
			e1 := at(7, 1)
			e1.EAX = (e1.EAX | ha&leaf71EAX) &^ hide71EAX
			at(7, 0).EAX = 1
		}
	}
	_, _, hc, _ = cpuid(0x80000001, 0)
	e = at(0x80000001, 0)
	e.ECX = (e.ECX | hc&ext1ECX) &^ hideExt1
	for i := range t {
		switch t[i].Function {
		case 4, 0x8000001D:
			// Cache sizes stay, how many processors share them does not.
			t[i].EAX &= 1<<14 - 1
		case 0x8000001E:
			t[i].EAX, t[i].EBX, t[i].ECX = 0, 0, 0 // AMD's processor and node identifiers
		case 0xB, 0x1F:
			t[i].EDX = 0 // this processor's own x2APIC identifier
		case 0xD:
			if t[i].Index == 0 {
				t[i].EAX, t[i].EDX = uint32(xcr0), 0
			}
		}
	}
	return slices.DeleteFunc(t, func(e kvm.CPUIDEntry) bool {
		return e.Function == 0xD && e.Index > 1 && (e.Index > 62 || xcr0&(1<<e.Index) == 0)
	})
}

// guestXCR0 chooses the components that host, KVM and we all have.
func guestXCR0(offered []kvm.CPUIDEntry) uint64 {
	_, _, c, _ := cpuid(1, 0)
	if c&(1<<27) == 0 { // OSXSAVE
		return 3
	}
	v := x86.XCR0() & offeredXCR0
	for _, e := range offered {
		if e.Function == 0xD && e.Index == 0 && e.EAX&3 == 3 {
			v &= uint64(e.EDX)<<32 | uint64(e.EAX)
		}
	}
	if v&4 == 0 || v&0xE0 != 0xE0 {
		v &= 7
	}
	return v | 3
}

// cpuKey identifies a processor for template caches.
func cpuKey(table []kvm.CPUIDEntry, xcr0 uint64) string {
	h := sha256.New()
	for _, e := range table {
		for _, v := range []uint32{e.Function, e.Index, e.EAX, e.EBX, e.ECX, e.EDX} {
			_ = binary.Write(h, binary.LittleEndian, v)
		}
	}
	_ = binary.Write(h, binary.LittleEndian, xcr0)
	return hex.EncodeToString(h.Sum(nil))
}
