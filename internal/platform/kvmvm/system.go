//go:build linux && amd64

package kvmvm

import (
	"encoding/binary"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// The platform's own part of guest memory, below platform.UserLo.
const (
	gdtAddr   = 0x1000
	idtAddr   = 0x2000
	tssAddr   = 0x3000
	stubAddr  = 0x4000
	faultBase = stubAddr + 0x100 // one exception stub every faultStep bytes
	faultStep = 8
	stackLow  = 0x8000 // exception stack, grows down from stackTop
	stackTop  = 0x9000
	pml4Addr  = 0x10000
	pdptAddr  = 0x11000
	pdAddr    = 0x12000 // page directories: one for each GiB
	maxPDs    = 32
	ptAddr    = pdAddr + maxPDs*platform.PageSize // page tables, up to the clock page
	ptEnd     = platform.ClockPage
)

// maxSize is the most memory a machine can have: what the page directories
// reach.
const maxSize = maxPDs << 30

// The ports that the stubs write to.
const (
	portSyscall = 0x50
	portFault   = 0x51
)

const (
	gib       = 1 << 30
	largePage = 2 << 20
	vectors   = 32
	// breakpoint is the vector of INT3.
	breakpoint = 3
)

// Page table bits (SDM vol. 3, section 4.5). Accessed and dirty are set in
// advance, so that the processor never writes to the tables.
const (
	ptePresent  = 1 << 0
	pteWrite    = 1 << 1
	pteUser     = 1 << 2
	pteAccessed = 1 << 5
	pteDirty    = 1 << 6
	pteLarge    = 1 << 7
	pteNX       = 1 << 63
	pteTable    = ptePresent | pteWrite | pteUser | pteAccessed
)

// Selectors. The order is what SYSRET derives its segments from (SDM vol. 2B,
// SYSRET): user code is STAR[63:48]+16, user stack STAR[63:48]+8.
const (
	selKernelCode = 0x08
	selKernelData = 0x10
	selUserData   = 0x18 | 3
	selUserCode   = 0x20 | 3
	selTask       = 0x28
)

// MSR indexes (SDM vol. 4) and values.
const (
	msrTSC    = 0x10
	msrSTAR   = 0xC0000081
	msrLSTAR  = 0xC0000082
	msrSFMASK = 0xC0000084
	msrFSBase = 0xC0000100

	starValue   = selKernelCode<<32 | (selKernelData|3)<<48
	sfmaskValue = 1<<18 | 1<<10 | 1<<9 | 1<<8 // AC, DF, IF, TF
)

// ioBitmap is where the I/O permission bitmap starts in the task state segment
// (SDM vol. 3, section 8.7), and taskLimit the segment's limit: the bitmap goes
// just past the two ports, and what lies beyond a bitmap is refused.
const (
	ioBitmap  = 104
	taskLimit = ioBitmap + portFault/8 + 1
)

// entry gives the page table bits of a user page.
func entry(p platform.Prot) uint64 {
	e := uint64(ptePresent | pteUser | pteAccessed | pteDirty)
	if p&platform.Write != 0 {
		e |= pteWrite
	}
	if p&platform.Exec == 0 {
		e |= pteNX
	}
	return e
}

// systemImage builds the content of [0, platform.UserLo): descriptor tables,
// stubs and page tables for the spans.
func systemImage(spans []platform.Span) ([]byte, error) {
	mem := make([]byte, platform.UserLo)
	le := binary.LittleEndian
	putDescriptors(mem)
	putStubs(mem)
	pages := []platform.Span{
		{Lo: stubAddr, Hi: stubAddr + platform.PageSize, Prot: platform.Read | platform.Exec},
		{Lo: platform.ClockPage, Hi: platform.UserLo, Prot: platform.Read},
	}
	pages = append(pages, spans...)
	le.PutUint64(mem[pml4Addr:], pdptAddr|pteTable)
	nextPT := uint64(ptAddr)
	table := func(addr uint64) (uint64, error) {
		pde := pdAddr + addr/largePage*8
		if e := le.Uint64(mem[pde:]); e != 0 {
			return e &^ (platform.PageSize - 1), nil
		}
		if nextPT+platform.PageSize > ptEnd {
			return 0, fmt.Errorf("%w: no room for page tables", platform.ErrMachine)
		}
		pt := nextPT
		nextPT += platform.PageSize
		le.PutUint64(mem[pde:], pt|pteTable)
		return pt, nil
	}
	// What the exception path needs is the supervisor's. The page tables have
	// no address.
	pt, err := table(0)
	if err != nil {
		return nil, err
	}
	for _, a := range []uint64{gdtAddr, idtAddr, tssAddr} {
		le.PutUint64(mem[pt+a/platform.PageSize*8:], a|ptePresent|pteAccessed|pteDirty|pteNX)
	}
	for a := uint64(stackLow); a < stackTop; a += platform.PageSize {
		le.PutUint64(mem[pt+a/platform.PageSize*8:], a|ptePresent|pteWrite|pteAccessed|pteDirty|pteNX)
	}
	end := uint64(0)
	for _, s := range pages {
		if s.Lo < end || s.Hi <= s.Lo || s.Lo%platform.PageSize != 0 || s.Hi%platform.PageSize != 0 || s.Hi > maxSize {
			return nil, fmt.Errorf("%w: spans must be sorted pages below %d GiB", platform.ErrMachine, maxSize/gib)
		}
		end = s.Hi
		e := entry(s.Prot)
		for a := s.Lo; a < s.Hi; {
			pdpte := pdptAddr + a/gib*8
			le.PutUint64(mem[pdpte:], pdAddr+a/gib*platform.PageSize|pteTable)
			if a%largePage == 0 && s.Hi-a >= largePage {
				le.PutUint64(mem[pdAddr+a/largePage*8:], a|e|pteLarge)
				a += largePage
				continue
			}
			pt, err := table(a)
			if err != nil {
				return nil, err
			}
			le.PutUint64(mem[pt+a/platform.PageSize%512*8:], a|e)
			a += platform.PageSize
		}
	}
	return mem, nil
}

// putDescriptors writes the global and interrupt descriptor tables and the
// task state segment.
func putDescriptors(mem []byte) {
	le := binary.LittleEndian
	gdt := mem[gdtAddr:]
	le.PutUint64(gdt[selKernelCode:], 0x00AF9B000000FFFF)
	le.PutUint64(gdt[selKernelData:], 0x00CF93000000FFFF)
	le.PutUint64(gdt[selUserData&^3:], 0x00CFF3000000FFFF)
	le.PutUint64(gdt[selUserCode&^3:], 0x00AFFB000000FFFF)
	const base = uint64(tssAddr)
	le.PutUint64(gdt[selTask:], 0x0000890000000000|taskLimit|(base&0xFFFFFF)<<16|(base>>24)<<56)
	le.PutUint64(gdt[selTask+8:], base>>32)

	tss := mem[tssAddr:]
	le.PutUint64(tss[4:], stackTop)  // RSP0
	le.PutUint64(tss[36:], stackTop) // IST1
	le.PutUint16(tss[102:], ioBitmap)
	for i := ioBitmap; i <= taskLimit; i++ {
		tss[i] = 0xFF
	}
	for _, port := range []int{portSyscall, portFault} {
		tss[ioBitmap+port/8] &^= 1 << (port % 8)
	}
	for v := range vectors {
		stub := uint64(faultBase + v*faultStep)
		d := mem[idtAddr+v*16:]
		le.PutUint16(d, uint16(stub))
		le.PutUint16(d[2:], selKernelCode)
		// IST1: SYSCALL leaves the guest's stack pointer, to which an exception
		// in ring 0 would otherwise push.
		d[4] = 1
		d[5] = 0x8E // present, ring 0 only, interrupt gate
		if v == breakpoint {
			d[5] |= 3 << 5 // INT3 is for ring 3 too
		}
		le.PutUint16(d[6:], uint16(stub>>16))
	}
}

// putStubs writes the code that the guest's system calls and exceptions reach.
func putStubs(mem []byte) {
	// out portSyscall, al; sysretq; hlt
	copy(mem[stubAddr:], []byte{0xE6, portSyscall, 0x48, 0x0F, 0x07, 0xF4})
	for v := range vectors {
		// out portFault, al; hlt; jmp to the hlt
		copy(mem[faultBase+v*faultStep:], []byte{0xE6, portFault, 0xF4, 0xEB, 0xFD})
	}
}

// sysretAddr is the stub's SYSRET, just behind its two-byte OUT.
const sysretAddr = stubAddr + 2

// inStubs reports whether an instruction address is in the platform's own code.
func inStubs(rip uint64) bool { return rip >= stubAddr && rip < stubAddr+platform.PageSize }

// userSregs makes s those of a 64-bit process: ring 3, paging, no interrupts.
func userSregs(s *kvm.Sregs, fs, gs uint64) {
	data := kvm.Segment{Limit: 0xFFFFFFFF, Selector: selUserData, Type: 3, Present: 1, DPL: 3, DB: 1, S: 1, G: 1}
	s.CS = kvm.Segment{Limit: 0xFFFFFFFF, Selector: selUserCode, Type: 11, Present: 1, DPL: 3, S: 1, L: 1, G: 1}
	s.SS, s.DS, s.ES, s.FS, s.GS = data, data, data, data, data
	s.FS.Base, s.GS.Base = fs, gs
	s.TR = kvm.Segment{Base: tssAddr, Limit: taskLimit, Selector: selTask, Type: 11, Present: 1}
	s.LDT = kvm.Segment{Unusable: 1}
	s.GDT = kvm.DTable{Base: gdtAddr, Limit: selTask + 15}
	s.IDT = kvm.DTable{Base: idtAddr, Limit: vectors*16 - 1}
	s.CR0 = 0x80010033 // PG WP NE ET MP PE
	s.CR2 = 0
	s.CR3 = pml4Addr
	s.CR4 = 1<<5 | 1<<9 | 1<<10 | 1<<18 // PAE OSFXSR OSXMMEXCPT OSXSAVE
	s.CR8 = 0
	s.EFER = 1<<0 | 1<<8 | 1<<10 | 1<<11 // SCE LME LMA NXE
	s.InterruptBitmap = [4]uint64{}
}

// userFlags is what a process may have in RFLAGS: the arithmetic flags, TF, DF,
// NT, AC and ID. IF is always on and bit 1 always set.
const userFlags = 0x244DD5

func cleanFlags(f uint64) uint64 { return f&userFlags | 1<<9 | 1<<1 }

// userCanonical reports whether an address is one that a process can have.
func userCanonical(addr uint64) bool { return addr < 1<<47 }
