//go:build linux && amd64

package kvmvm

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// page is one page of an address space, as its tables say.
type page struct{ phys, bits uint64 }

// walk reads the page tables of a system image as the processor does.
func walk(t *testing.T, mem []byte) map[uint64]page {
	t.Helper()
	const frame = 0x000FFFFFFFFFF000
	out := map[uint64]page{}
	tables := map[uint64]bool{pml4Addr: true}
	entries := func(table uint64, fn func(i, e uint64)) {
		for i := range uint64(512) {
			if e := binary.LittleEndian.Uint64(mem[table+i*8:]); e&ptePresent != 0 {
				fn(i, e)
			}
		}
	}
	down := func(e uint64) uint64 {
		next := e & frame
		if next < pml4Addr || next >= ptEnd || tables[next] {
			t.Fatalf("table at %#x is outside the table area or used twice", next)
		}
		tables[next] = true
		return next
	}
	entries(pml4Addr, func(a, e4 uint64) {
		entries(down(e4), func(b, e3 uint64) {
			entries(down(e3), func(c, e2 uint64) {
				at := a<<39 | b<<30 | c<<21
				if e2&pteLarge != 0 {
					for off := uint64(0); off < largePage; off += platform.PageSize {
						out[at+off] = page{e2&frame + off, e2&^uint64(pteWrite|pteUser) | e2&e3&e4&(pteWrite|pteUser)}
					}
					return
				}
				entries(down(e2), func(d, e1 uint64) {
					rights := e1&^uint64(pteWrite|pteUser) | e1&e2&e3&e4&(pteWrite|pteUser)
					out[at|d<<12] = page{e1 & frame, rights}
				})
			})
		})
	})
	for at := range out {
		if tables[at] {
			t.Errorf("the page table at %#x can be addressed", at)
		}
	}
	return out
}

func TestPageTablesGiveExactlyTheSpansAndWhatExceptionsNeed(t *testing.T) {
	rw, rx := platform.Read|platform.Write, platform.Read|platform.Exec
	spans := []platform.Span{
		{Lo: 0x400000, Hi: 0x403000, Prot: rx},
		{Lo: 0x403000, Hi: 0x404000, Prot: platform.Read},
		{Lo: 0x404000, Hi: 0x405000, Prot: rw},
		{Lo: 0x5FF000, Hi: 0xA01000, Prot: rw},                // a page, two large pages, a page
		{Lo: 0x3FFFF000, Hi: 0x40001000, Prot: platform.Read}, // over a GiB
		{Lo: 0x7C000000, Hi: 0x7C200000, Prot: rx},
	}
	mem, err := systemImage(spans)
	if err != nil {
		t.Fatal(err)
	}
	got := walk(t, mem)
	want := append([]platform.Span{
		{Lo: stubAddr, Hi: stubAddr + platform.PageSize, Prot: rx},
		{Lo: platform.ClockPage, Hi: platform.UserLo, Prot: platform.Read},
	}, spans...)
	users := 0
	for _, s := range want {
		for a := s.Lo; a < s.Hi; a += platform.PageSize {
			users++
			p, ok := got[a]
			bits := entry(s.Prot)
			if !ok || p.phys != a || p.bits&(ptePresent|pteWrite|pteUser|pteAccessed|pteDirty|pteNX) != bits {
				t.Fatalf("page %#x is %+v, want bits %#x", a, p, bits)
			}
		}
	}
	for a, p := range got {
		if p.phys != a {
			t.Errorf("page %#x is at %#x", a, p.phys)
		}
		if p.bits&pteWrite != 0 && p.bits&pteNX == 0 {
			t.Errorf("page %#x is writable and executable", a)
		}
		if p.bits&(pteAccessed|pteDirty) != pteAccessed|pteDirty {
			t.Errorf("the processor would write to the table of page %#x", a)
		}
		if p.bits&pteUser != 0 {
			users--
			if a < platform.UserLo && p.bits&pteWrite != 0 {
				t.Errorf("the guest can write to the platform's page %#x", a)
			}
			continue
		}
		if a != gdtAddr && a != idtAddr && a != tssAddr && (a < stackLow || a >= stackTop) {
			t.Errorf("page %#x is the supervisor's without need", a)
		}
	}
	if users != 0 {
		t.Errorf("the guest has %d pages more than asked for", -users)
	}
}

func TestSpansThatDoNotFitAreRefused(t *testing.T) {
	for name, spans := range map[string][]platform.Span{
		"in the platform's part": {{Lo: 0x3FE000, Hi: 0x3FF000, Prot: platform.Read}},
		"over the clock page":    {{Lo: platform.ClockPage, Hi: platform.UserLo + 4096, Prot: platform.Read | platform.Write}},
		"at zero":                {{Lo: 0, Hi: 4096, Prot: platform.Read}},
		"backwards":              {{Lo: 0x500000, Hi: 0x400000, Prot: platform.Read}},
		"empty":                  {{Lo: 0x500000, Hi: 0x500000, Prot: platform.Read}},
		"unaligned":              {{Lo: 0x500001, Hi: 0x501000, Prot: platform.Read}},
		"overlapping":            {{Lo: 0x500000, Hi: 0x502000, Prot: platform.Read}, {Lo: 0x501000, Hi: 0x503000, Prot: platform.Write}},
		"too high":               {{Lo: maxSize, Hi: maxSize + 4096, Prot: platform.Read}},
		"wrapping":               {{Lo: 1<<64 - 8192, Hi: 1<<64 - 4096, Prot: platform.Read}},
	} {
		if _, err := systemImage(spans); !errors.Is(err, platform.ErrMachine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// More page tables than there is room for.
	var many []platform.Span
	for a := uint64(platform.UserLo); a < 4<<30; a += largePage {
		many = append(many, platform.Span{Lo: a, Hi: a + platform.PageSize, Prot: platform.Read})
	}
	if _, err := systemImage(many); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("too many page tables: %v", err)
	}
}

func TestTaskSegmentOpensTwoPortsOnly(t *testing.T) {
	mem, err := systemImage(platformtest.Spans)
	if err != nil {
		t.Fatal(err)
	}
	tss := mem[tssAddr:]
	base := int(binary.LittleEndian.Uint16(tss[102:]))
	// As the processor does: two bytes are read, both within the limit
	// (SDM vol. 1, section 19.5.2).
	allowed := func(port, size int) bool {
		at := base + port/8
		if at+1 > taskLimit {
			return false
		}
		bits := binary.LittleEndian.Uint16(tss[at:])
		return bits>>(port%8)&(1<<size-1) == 0
	}
	for port := range 1 << 16 {
		want := port == portSyscall || port == portFault
		if allowed(port, 1) != want {
			t.Errorf("port %#x: allowed is %v", port, !want)
		}
		if allowed(port, 4) {
			t.Errorf("four ports from %#x are allowed", port)
		}
	}
	limit := binary.LittleEndian.Uint64(mem[gdtAddr+selTask:])
	if limit&0xFFFF != taskLimit || limit>>48&0xF != 0 {
		t.Errorf("the descriptor %#x has another limit than %d", limit, taskLimit)
	}
}

func TestExceptionsHaveTheirOwnStack(t *testing.T) {
	mem, err := systemImage(platformtest.Spans)
	if err != nil {
		t.Fatal(err)
	}
	if binary.LittleEndian.Uint64(mem[tssAddr+4:]) != stackTop || binary.LittleEndian.Uint64(mem[tssAddr+36:]) != stackTop {
		t.Error("the task segment names another stack")
	}
	for v := range vectors {
		gate := mem[idtAddr+v*16:]
		if gate[4] != 1 {
			t.Errorf("exception %d pushes to the stack that the guest left", v)
		}
		if want := v == breakpoint; gate[5]>>5&3 == 3 != want {
			t.Errorf("the gate of exception %d can be called by the guest: %v", v, !want)
		}
	}
}

func TestFlagsOfTheGuestHaveNoPrivilege(t *testing.T) {
	for _, f := range []uint64{0, ^uint64(0), 0x3000, 0x20000} {
		g := cleanFlags(f)
		if g&(3<<12|1<<16|1<<17|1<<19|1<<20) != 0 || g&0x202 != 0x202 || g>>22 != 0 {
			t.Errorf("cleanFlags(%#x) is %#x", f, g)
		}
	}
}

func TestNoBytesCanBeMovedAnywhere(t *testing.T) {
	m := &Machine{mem: make([]byte, platform.UserLo), rights: platformtest.Spans}
	for _, addr := range []uint64{0, codeAddr, memSize, 1 << 47, 1 << 63, ^uint64(0)} {
		if !m.CopyIn(nil, addr) || !m.CopyOut(addr, nil) || !m.Load(addr, nil) || !m.Zero(addr, 0) || !m.Move(addr, addr, 0) {
			t.Errorf("refused at %#x", addr)
		}
	}
}
