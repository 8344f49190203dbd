//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// dirty is a guest that writes AL to RCX pages from RBX on.
//
//	loop: mov [rbx], al; add rbx, 0x1000; dec rcx; jnz loop; syscall
var dirty = []byte{
	0x88, 0x03, 0x48, 0x81, 0xC3, 0x00, 0x10, 0x00, 0x00, 0x48, 0xFF, 0xC9, 0x75, 0xF2, 0x0F, 0x05,
}

// testTemplate boots a guest with a pattern in memory and makes a backing of
// it. A system call puts its processor where a real template's is.
func testTemplate(t *testing.T, p *Platform, code []byte) (*platform.Backing, *platform.Context) {
	t.Helper()
	// nop; syscall in front of the code
	m, fd := bootGuest(t, p, append([]byte{0x90, 0x0F, 0x05}, code...))
	pattern := make([]byte, guard-heapAddr)
	for i := range pattern {
		pattern[i] = byte(i * 7 >> 3)
	}
	clear(pattern[64<<10 : 128<<10]) // a hole of zeros
	if !m.CopyOut(heapAddr, pattern) || !m.CopyOut(dataAddr, []byte("data of the template")) {
		t.Fatal("memory refused")
	}
	m.SetFSBase(dataAddr)
	if e := finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v", e)
	}
	c := new(platform.Context)
	if err := m.Save(c); err != nil {
		t.Fatal(err)
	}
	b, err := platform.NewBacking(fd, []platform.Range{{Lo: 0, Hi: dataEnd}, {Lo: heapAddr, Hi: guard}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, c
}

func clone(t *testing.T, p *Platform, b *platform.Backing, c *platform.Context) *Machine {
	t.Helper()
	m, err := p.Clone(b, memSize, testSpans, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.(*Machine)
}

// checkMemory compares all of guest memory with the template.
func checkMemory(t *testing.T, m *Machine, b *platform.Backing) {
	t.Helper()
	if m.backing != b {
		t.Fatal("the machine has another template")
	}
	if at, ok := m.differs(0, memSize); ok {
		t.Fatalf("page %#x differs from the template", at)
	}
}

func TestRevertRestoresMemoryByteForByte(t *testing.T) {
	testPlatform(t) // skips without KVM
	own := func() *Platform {
		p, err := New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	slow, none := own(), own()
	slow.pagemapScan = false
	none.pagemapScan = false
	if err := unix.Close(none.pagemap.fd); err != nil {
		t.Fatal(err)
	}
	none.pagemap.fd = -1
	for name, p := range map[string]*Platform{"scan": testPlatform(t), "entries": slow, "no pagemap": none} {
		t.Run(name, func(t *testing.T) {
			b, c := testTemplate(t, p, dirty)
			m := clone(t, p, b, c)
			checkMemory(t, m, b)
			for round, tt := range []struct{ from, pages uint64 }{
				{heapAddr, 3},
				{dataAddr, 16},
				{guard - 2*platform.PageSize, 4},
				{guard, 1000},
				{memSize - platform.PageSize, 1},
				{heapAddr, giveBackPages + 100},
				{heapAddr, 5},
			} {
				m.StartClock(uint64(round) * 1e9)
				r := m.Regs()
				r.RBX, r.RCX, r.RAX = tt.from, tt.pages, 0xA5
				if e := finish(t, m); e.Kind != platform.Syscall {
					t.Fatalf("round %d: %+v at %#x", round, e, r.RIP)
				}
				// The host writes too, and reads what was never touched.
				m.CopyOut(heapAddr+70<<10, []byte("host"))
				m.Zero(guard-100, 200)
				m.Move(memSize-4096, heapAddr, 4096)
				m.CopyIn(make([]byte, 4096), memSize-20<<20)
				pages, err := m.Revert(c)
				if err != nil {
					t.Fatal(err)
				}
				if name != "no pagemap" && uint64(pages) < min(tt.pages, giveBackPages) {
					t.Errorf("round %d: %d pages were found changed, %d were", round, pages, tt.pages)
				}
				checkMemory(t, m, b)
				if err := m.Verify(c); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
		})
	}
}

func TestRevertLeavesNothingInRegisters(t *testing.T) {
	p := testPlatform(t)
	avx := []byte{0xC4, 0x41, 0x0D, 0x76, 0xF6} // vpcmpeqd ymm14, ymm14, ymm14
	if p.xcr0&4 == 0 {
		avx = nil
	}
	avx512 := []byte{
		0x62, 0x03, 0x05, 0x40, 0x25, 0xFF, 0xFF, // vpternlogd zmm31, zmm31, zmm31, 0xFF
		0xC5, 0xF4, 0x46, 0xC9, // kxnorw k1, k1, k1
	}
	if p.xcr0&0xE0 == 0 {
		avx512 = nil
	}
	code := bytes.Join([][]byte{avx, avx512, {
		0x66, 0x45, 0x0F, 0x76, 0xFF, // pcmpeqd xmm15, xmm15
		0x66, 0x48, 0x0F, 0x6E, 0xC0, // movq xmm0, rax
		0x0F, 0xAE, 0x13, // ldmxcsr [rbx]
		0xD9, 0x6B, 0x08, // fldcw [rbx+8]
		0xD9, 0xEB, // fldpi
		0xFD,                         // std
		0xB8, 0x00, 0x00, 0x00, 0x00, // mov eax, 0
		0x8E, 0xD8, // mov ds, eax
		0x8E, 0xE8, // mov gs, eax
		0x8E, 0xE0, // mov fs, eax, which clears its base
		0x0F, 0x05, // syscall
	}}, nil)
	b, c := testTemplate(t, p, code)
	m := clone(t, p, b, c)
	control := binary.LittleEndian.AppendUint64(nil, 0x7F80) // MXCSR: round to zero
	control = binary.LittleEndian.AppendUint64(control, 0x0F7F)
	m.CopyOut(dataAddr+256, control)
	r := m.Regs()
	*r = platform.Regs{
		RAX: 1, RBX: dataAddr + 256, RDX: 3, RSI: 4, RDI: 5, RSP: dataEnd - 64, RBP: 6,
		R8: 8, R9: 9, R10: 10, R12: 12, R13: 13, R14: 14, R15: 15, RIP: r.RIP, RFLAGS: 0x202,
	}
	m.SetFSBase(heapAddr)
	if e := finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v at %#x", e, r.RIP)
	}
	var changed, got platform.Context
	if err := m.Save(&changed); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(changed.XSave, c.XSave) || changed.FSBase == c.FSBase {
		t.Fatal("the guest changed nothing")
	}
	if _, err := m.Revert(c); err != nil {
		t.Fatal(err)
	}
	if err := m.Save(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*c, got); diff != "" {
		t.Errorf("after the revert: %s", diff)
	}
}

func TestClonesDoNotSeeEachOther(t *testing.T) {
	p := testPlatform(t)
	b, c := testTemplate(t, p, dirty)
	first, second := clone(t, p, b, c), clone(t, p, b, c)
	r := first.Regs()
	r.RBX, r.RCX, r.RAX = heapAddr, 500, 0x5A
	finish(t, first)
	first.CopyOut(dataAddr, []byte("secret"))
	checkMemory(t, second, b)
	checkMemory(t, clone(t, p, b, c), b)
}

func TestBootedMachineCannotBeReverted(t *testing.T) {
	m := newGuest(t, []byte{0x0F, 0x05})
	if _, err := m.Revert(&platform.Context{}); err == nil {
		t.Error("it was")
	}
}
