//go:build linux && amd64

package kvmvm

import "testing"
import "github.com/maf-sandbox/maf-sandbox-go/internal/platform"

func TestZZ(t *testing.T) {
	for _, sp := range []uint64{0xDEADBEEFDEADBEEF, 0, 8, 1 << 47, 1<<63, 0xFFFFFFFF80000000, pml4Addr, dataAddr} {
	// syscall; mov eax,cs ; mov rdx,cr3 ; mov rbx,[0x10000]; syscall
	m := newGuest(t, []byte{0x0F, 0x05, 0x8C, 0xC8, 0x0F, 0x20, 0xDA, 0x48, 0x8B, 0x1C, 0x25, 0x00, 0x00, 0x01, 0x00, 0x0F, 0x05})
	m.Regs().RSP = sp
	e := finish(t, m)
	t.Logf("sp %#x: %+v ring %d", sp, e, ring(t, m))
	for range 2 {
	e, err := m.Run()
	t.Logf("   then %+v %v rip %#x rax(cs) %#x cr3 %#x pml4e %#x", e, err, m.Regs().RIP, m.Regs().RAX, m.Regs().RDX, m.Regs().RBX)
	if e.Kind != platform.Syscall { break }
	}
	}
}
