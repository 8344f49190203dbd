//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// extended builds a guest that loads vector registers from RBX, makes a system
// call, and stores them at RSI; n is how many bytes take part.
func extended(t *testing.T, xcr0 uint64) (code []byte, n uint64) {
	t.Helper()
	load, store := "F3 0F 6F 9B A0 00 00 00", "F3 0F 7F 9E A0 00 00 00" // movdqu xmm3, [rbx+160]; and to [rsi+160]
	if xcr0&4 != 0 {
		load += "C5 7E 6F 33"  // vmovdqu ymm14, [rbx]
		store += "C5 7E 7F 36" // vmovdqu [rsi], ymm14
	}
	if xcr0&0xE0 == 0xE0 {
		load += "62 61 FE 48 6F 7B 01" + "C5 F8 90 8B 80 00 00 00"  // vmovdqu64 zmm31, [rbx+64]; kmovw k1, [rbx+128]
		store += "62 61 FE 48 7F 7E 01" + "C5 F8 91 8E 80 00 00 00" // vmovdqu64 [rsi+64], zmm31; kmovw [rsi+128], k1
	}
	code, err := hex.DecodeString(strings.ReplaceAll(load+"0F 05"+store+"0F 05", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return code, 176
}

// Vector registers are a guest's own: they outlast its exits, whatever the host
// computes meanwhile, and reach no other guest on the same thread.
func TestVectorRegistersSurviveExitsAndReachNoOtherGuest(t *testing.T) {
	p := testPlatform(t)
	code, n := extended(t, p.xcr0)
	b, c := platformtest.Template(t, p, nil)
	const from, to = heapAddr + 4096, heapAddr + 8192
	var ms [3]*Machine
	patterns := make([][]byte, len(ms))
	for i := range ms {
		ms[i] = clone(t, p, b, c)
		patterns[i] = bytes.Repeat([]byte{byte(0x11 * (i + 1))}, int(n))
		ms[i].Load(codeAddr, code)
		ms[i].CopyOut(from, patterns[i])
		*ms[i].Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202, RBX: from, RSI: to}
	}
	step := func(i int) {
		t.Helper()
		if e := platformtest.Finish(t, ms[i]); e.Kind != platform.Syscall {
			t.Fatalf("machine %d: %+v at %#x", i, e, ms[i].Regs().RIP)
		}
	}
	// A third machine loads nothing and stores what it finds.
	step(0)
	step(1)
	ms[2].Regs().RIP = codeAddr + uint64(bytes.Index(code, []byte{0x0F, 0x05}))
	step(2)
	eyes.Memory(t, clone(t, p, b, c), b) // the host uses vector registers too
	for i := range ms {
		step(i)
	}
	for i, m := range ms {
		got := make([]byte, n)
		m.CopyIn(got, to)
		want := make([]byte, n)
		if i < 2 {
			want = patterns[i]
		}
		at := []uint64{160, 176} // xmm3
		if p.xcr0&4 != 0 {
			at = append(at, 0, 32) // ymm14
		}
		if p.xcr0&0xE0 == 0xE0 {
			at = append(at, 64, 130) // zmm31, k1
		}
		for j := 0; j < len(at); j += 2 {
			if !bytes.Equal(got[at[j]:at[j+1]], want[at[j]:at[j+1]]) {
				t.Errorf("machine %d: registers stored at %d are %x", i, at[j], got[at[j]:at[j+1]])
			}
		}
	}
}
