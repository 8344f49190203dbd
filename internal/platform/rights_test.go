package platform_test

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

func TestRightsAreThoseOfEveryByte(t *testing.T) {
	const size = 0x900000
	r := platform.Rights{
		{Lo: 0x400000, Hi: 0x401000, Prot: platform.Read | platform.Exec},
		{Lo: 0x401000, Hi: 0x402000, Prot: platform.Read},
		{Lo: 0x402000, Hi: 0x404000, Prot: platform.Read | platform.Write},
		{Lo: 0x404000, Hi: 0x405000, Prot: platform.Read | platform.Write},
		{Lo: 0x500000, Hi: 0x501000, Prot: platform.Read | platform.Write},
		{Lo: 0x800000, Hi: 0xA00000, Prot: platform.Read | platform.Write},
	}
	for _, tt := range []struct {
		name    string
		addr, n uint64
		need    platform.Prot
		want    bool
	}{
		{"first byte", 0x400000, 1, platform.Read, true},
		{"byte before the first", 0x3FFFFF, 1, platform.Read, false},
		{"over the lower end", 0x3FFFFF, 2, platform.Read, false},
		{"clock page", platform.ClockPage, 8, platform.Read, false},
		{"zero", 0, 1, platform.Read, false},
		{"all that is adjacent", 0x400000, 0x5000, platform.Read, true},
		{"one byte too many", 0x400000, 0x5001, platform.Read, false},
		{"write over two writable spans", 0x403FFF, 2, platform.Write, true},
		{"write over a read-only start", 0x401FFF, 2, platform.Write, false},
		{"write to text", 0x400000, 1, platform.Write, false},
		{"load into text", 0x400000, 0x1000, 0, true},
		{"execute over text into rodata", 0x400FFF, 2, platform.Exec, false},
		{"over a hole", 0x404FFF, 0xFB002, platform.Read, false},
		{"in a hole", 0x450000, 1, 0, false},
		{"lone span", 0x500000, 0x1000, platform.Write, true},
		{"last span, to the end of memory", 0x800000, 0x100000, platform.Write, true},
		{"last span, beyond memory", 0x8FFFFF, 2, platform.Write, false},
		{"last span, wholly beyond memory", 0x900000, 1, platform.Read, false},
		{"past the last span", 0xA00000, 1, platform.Read, false},
		{"wrapping", ^uint64(0), 2, platform.Read, false},
		{"wrapping into user memory", 1<<64 - 0x1000, 0x401001, platform.Read, false},
		{"the longest", 0x400000, ^uint64(0), platform.Read, false},
		{"non-canonical", 1 << 63, 1, platform.Read, false},
	} {
		if got := r.Allow(tt.addr, tt.n, size, tt.need); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if (platform.Rights{}).Allow(0x400000, 1, size, 0) {
		t.Error("no spans allow something")
	}
}
