//go:build linux && amd64

package ptrace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

func TestRevertRestoresMemoryByteForByte(t *testing.T) {
	testPlatform(t) // skips where there is none
	for _, way := range []string{"scan", "entries", "no pagemap"} {
		t.Run(way, func(t *testing.T) {
			p, err := New()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			if way == "scan" && !p.scan {
				t.Skip("needs PAGEMAP_SCAN (Linux 6.7)")
			}
			b, c := platformtest.Template(t, p, platformtest.Dirty)
			m := clone(t, p, b, c)
			p.scan = way == "scan"
			if way == "no pagemap" {
				_ = unix.Close(m.child.pagemap)
				m.child.pagemap = -1
			}
			m.Load(codeAddr+100, []byte("loaded")) // the host changes text, too
			if _, err := m.Revert(c); err != nil {
				t.Fatal(err)
			}
			platformtest.RevertRestoresMemory(t, p, m, b, c, eyes, giveBackPages, way != "no pagemap")
		})
	}
}

func TestChangedPagesAreTheOnesThatWereWrittenTo(t *testing.T) {
	p := testPlatform(t)
	if !p.scan {
		t.Skip("needs PAGEMAP_SCAN (Linux 6.7)")
	}
	b, c := platformtest.Template(t, p, platformtest.Dirty)
	m := clone(t, p, b, c)
	if r := m.Changed(); len(r) != 0 {
		t.Errorf("a fresh clone has changed %v", r)
	}
	r := m.Regs()
	r.RBX, r.RCX = heapAddr+5*platform.PageSize, 3
	platformtest.Finish(t, m)
	want := platform.Range{Lo: heapAddr + 5*platform.PageSize, Hi: heapAddr + 8*platform.PageSize}
	if got := m.Changed(); len(got) != 1 || got[0] != want {
		t.Errorf("%v, want %v", got, want)
	}
	// Pages that are made ready are changed ones, too.
	b.SetHot([]platform.Range{want})
	if got := clone(t, p, b, c).Changed(); len(got) != 1 || got[0] != want {
		t.Logf("made ready: %v (needs Linux 5.14)", got)
	}
	b.SetHot(nil)
}

func TestZeroClearsWhatIsAsked(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, nil)
	clone := clone(t, p, b, c)
	booted := newGuest(t, nil)
	full := bytes.Repeat([]byte{0xA5}, 4<<20)
	for name, m := range map[string]*Machine{"clone": clone, "booted": booted} {
		for _, r := range []platform.Range{
			{Lo: 0, Hi: 1}, {Lo: 100, Hi: 300}, {Lo: 4095, Hi: 8193}, {Lo: 0, Hi: 8192}, {Lo: 3, Hi: 1<<20 + 7}, {Lo: 0, Hi: 4 << 20}, {Lo: 512 << 10, Hi: 3 << 20},
		} {
			if !m.CopyOut(heapAddr, full) || !m.Zero(heapAddr+r.Lo, r.Hi-r.Lo) {
				t.Fatalf("%s: refused", name)
			}
			want := bytes.Clone(full)
			clear(want[r.Lo:r.Hi])
			if !bytes.Equal(bytesAt(t, m, heapAddr, heapAddr+uint64(len(full))), want) {
				t.Errorf("%s: %v", name, r)
			}
		}
	}
}

// stateful changes every kind of register, as far as this processor has them.
func stateful(t *testing.T, p *Platform) []byte {
	t.Helper()
	code := ""
	if p.features()&4 != 0 {
		code += "C4 41 0D 76 F6" // vpcmpeqd ymm14, ymm14, ymm14
	}
	if p.features()&0xE0 == 0xE0 {
		code += "62 03 05 40 25 FF FF" + // vpternlogd zmm31, zmm31, zmm31, 0xFF
			"C5 F4 46 C9" // kxnorw k1, k1, k1
	}
	if p.features()&(1<<9) != 0 {
		code += "31 C9 31 D2 B8 54 55 55 55 0F 01 EF" // wrpkru 0x55555554
	}
	return platformtest.Assemble(t, code+
		"66 45 0F 76 FF"+ // pcmpeqd xmm15, xmm15
		"66 48 0F 6E C0"+ // movq xmm0, rax
		"0F AE 13"+ // ldmxcsr [rbx]
		"D9 6B 08"+ // fldcw [rbx+8]
		"D9 EB"+ // fldpi
		"FD"+ // std
		"31 C0 8E D8 8E E8 8E E0"+ // null ds, gs and fs, which clears its base
		"0F 05")
}

// features are the components of extended state, as in XCR0, that the kernel
// gives a process.
func (p *Platform) features() uint64 {
	b, c, err := p.bare()
	if err != nil {
		return 0
	}
	_ = b.Close()
	// Software's own bytes of the legacy area (arch/x86/kernel/fpu/xstate.c).
	return binary.LittleEndian.Uint64(c.XSave[464:])
}

// bare gives the state of a guest that has not run.
func (p *Platform) bare() (*Machine, platform.Context, error) {
	var c platform.Context
	m, fd, err := p.Boot(memSize, platformtest.Spans, nil)
	if err != nil {
		return nil, c, err
	}
	return m.(*Machine), c, errors.Join(m.Save(&c), unix.Close(fd))
}

func TestRevertLeavesNothingInRegisters(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, stateful(t, p))
	m := clone(t, p, b, c)
	platformtest.RevertLeavesNothingInRegisters(t, m, c)
	if err := m.Verify(c); err != nil {
		t.Error(err)
	}
}

// Vector registers are a guest's own: they outlast its exits and the stub, and
// reach no other guest.
func TestVectorRegistersSurviveExitsAndReachNoOtherGuest(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, nil)
	code := platformtest.Assemble(t, "F3 0F 6F 1B 0F 05 F3 0F 7F 1E 0F 05") // movdqu xmm3, [rbx]; syscall; movdqu [rsi], xmm3; syscall
	const from, to = heapAddr + 4096, heapAddr + 8192
	var ms [3]*Machine
	for i := range ms {
		ms[i] = clone(t, p, b, c)
		ms[i].Load(codeAddr, code)
		ms[i].CopyOut(from, bytes.Repeat([]byte{byte(0x11 * (i + 1))}, 16))
		*ms[i].Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202, RBX: from, RSI: to}
	}
	ms[2].Regs().RIP += 6 // it loads nothing and stores what it finds
	for i, m := range ms {
		if i < 2 {
			platformtest.Finish(t, m)
		}
	}
	for i, m := range ms {
		if err := m.give(guard+8<<20, memSize); err != nil {
			t.Fatal(err)
		}
		platformtest.Finish(t, m)
		want := bytes.Repeat([]byte{byte(0x11 * (i + 1))}, 16)
		if i == 2 {
			clear(want)
		}
		if got := bytesAt(t, m, to, to+16); !bytes.Equal(got, want) {
			t.Errorf("machine %d stores % x", i, got)
		}
	}
}

func TestClonesDoNotSeeEachOther(t *testing.T) {
	platformtest.ClonesDoNotSeeEachOther(t, testPlatform(t), eyes)
}

func TestBootedMachineCannotBeReverted(t *testing.T) {
	m := newGuest(t, []byte{0x0F, 0x05})
	if _, err := m.Revert(&platform.Context{}); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("%v", err)
	}
}

func TestContextsOfAnotherKindAreRefused(t *testing.T) {
	p := testPlatform(t)
	b, c := platformtest.Template(t, p, nil)
	m := clone(t, p, b, c)
	for name, change := range map[string]func(c *platform.Context){
		"no extended state":          func(c *platform.Context) { c.XSave = nil },
		"KVM's extended state":       func(c *platform.Context) { c.XSave = make([]byte, 4096) },
		"a base that is the kernels": func(c *platform.Context) { c.FSBase = 1 << 63 },
		"a base beyond user memory":  func(c *platform.Context) { c.GSBase = 1<<47 - 1 },
	} {
		bad := *c
		bad.XSave = bytes.Clone(c.XSave)
		change(&bad)
		if err := m.Restore(&bad); !errors.Is(err, platform.ErrMachine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What only the kernel can judge ends the run, not the program.
	bad := *c
	bad.XSave = bytes.Repeat([]byte{0xFF}, len(c.XSave))
	if err := m.Restore(&bad); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("impossible extended state: %v", err)
	}
	if _, err := m.Revert(c); err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(c); err != nil {
		t.Error(err)
	}
}
