//go:build linux && amd64

package kvmvm

import (
	"slices"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

func TestAGuestSeesEveryFeatureOfTheProcessor(t *testing.T) {
	p := testPlatform(t)
	f, err := p.SelfTest()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Missing) > 0 || f.Seen == 0 {
		t.Errorf("%+v", f)
	}
}

func TestAMissingFeatureIsCaught(t *testing.T) {
	for _, f := range features {
		guest := func(leaf, index uint32) [4]uint32 {
			v := [4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}
			if leaf == f.leaf && index == f.index {
				v[f.reg] &^= 1 << f.bit
			}
			return v
		}
		all := func(uint32, uint32) [4]uint32 { return [4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)} }
		none := func(uint32, uint32) [4]uint32 { return [4]uint32{} }
		if got := missing(all, guest, offeredXCR0); !slices.Equal(got, []string{f.name}) {
			t.Errorf("without %s the missing ones are %v", f.name, got)
		}
		if got := missing(none, guest, offeredXCR0); got != nil {
			t.Errorf("a processor without features misses %v", got)
		}
		if got := missing(all, guest, 7); f.needsAVX512() && got != nil {
			t.Errorf("without the state of AVX-512 the missing ones are %v", got)
		}
	}
}

// kvm-pvm's own table lacks LZCNT, and numpy then falls back to code up to 11
// times slower.
func TestFeaturesThatKVMLeavesOutAreAdded(t *testing.T) {
	for _, f := range features {
		host := hostCPUID(f.leaf, f.index)
		if host[f.reg]&(1<<f.bit) == 0 {
			continue
		}
		var offered []kvm.CPUIDEntry
		for _, leaf := range []uint32{1, 7, 0x80000001} {
			v := hostCPUID(leaf, 0)
			if leaf == f.leaf {
				v[f.reg] &^= 1 << f.bit
			}
			offered = append(offered, kvm.CPUIDEntry{Function: leaf, EAX: v[0], EBX: v[1], ECX: v[2], EDX: v[3]})
		}
		xcr0 := guestXCR0(nil)
		if got := missing(hostCPUID, tableCPUID(offered), xcr0); !slices.Equal(got, []string{f.name}) && !f.needsAVX512() {
			t.Errorf("KVM's table without %s misses %v", f.name, got)
		}
		if got := missing(hostCPUID, tableCPUID(guestCPUID(offered, xcr0)), xcr0); got != nil {
			t.Errorf("ours, made from a table without %s, misses %v", f.name, got)
		}
	}
}
