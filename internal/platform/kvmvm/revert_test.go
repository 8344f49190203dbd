//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

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
			b, c := platformtest.Template(t, p, platformtest.Dirty)
			platformtest.RevertRestoresMemory(t, p, clone(t, p, b, c), b, c, eyes, giveBackPages, name != "no pagemap")
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
	b, c := platformtest.Template(t, p, code)
	m := clone(t, p, b, c)
	platformtest.RevertLeavesNothingInRegisters(t, m, c)
	var got platform.Context
	if err := m.Save(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*c, got); diff != "" {
		t.Errorf("after the revert: %s", diff)
	}
}

func TestClonesDoNotSeeEachOther(t *testing.T) {
	platformtest.ClonesDoNotSeeEachOther(t, testPlatform(t), eyes)
}

func TestBootedMachineCannotBeReverted(t *testing.T) {
	m := newGuest(t, []byte{0x0F, 0x05})
	if _, err := m.Revert(&platform.Context{}); err == nil {
		t.Error("it was")
	}
}
