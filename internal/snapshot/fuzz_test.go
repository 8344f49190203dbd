//go:build linux

package snapshot

import (
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// sound is a record as Write makes them, small.
func sound() *record {
	segment := []linux.Segment{{Filesz: 4096, Memsz: 4096, Prot: platform.Read | platform.Exec}}
	place := func(path string, lo uint64) linux.Place {
		return linux.Place{Object: linux.Object{Path: path, Align: 4096, Segments: segment}, Bias: lo, Lo: lo, Hi: lo + 4096}
	}
	const mib = 1 << 20
	return &record{
		Format: formatVersion, Key: "k",
		Layout: &linux.Layout{
			Exe: place("/exe", 4*mib), Interp: place("/ld", 5*mib), VDSO: 6 * mib,
			Objects: []linux.Place{place("/lib", 7*mib)},
			Entry:   5 * mib, ExeEntry: 4 * mib, Phdr: 4*mib + 64, PhdrCount: 1,
			Stack: platform.Range{Lo: 10 * mib, Hi: 18 * mib}, Brk: platform.Range{Lo: 20 * mib, Hi: 52 * mib},
			Heap: platform.Range{Lo: 54 * mib, Hi: 100 * mib},
		},
		State: &linux.State{
			Brk: 20 * mib, BrkFresh: 20 * mib, Fresh: 54 * mib, End: 60 * mib,
			Free:  []platform.Range{{Lo: 54 * mib, Hi: 60 * mib}},
			InUse: []bool{true}, Filled: []bool{true}, Cwd: "/work",
			Mailbox: linux.SavedMailbox{Request: [][2]uint64{{1, 56}, {2, 100}}},
		},
		Ranges:  []platform.Range{{Lo: 0, Hi: 20 * mib}, {Lo: 54 * mib, Hi: 55 * mib}},
		Extents: []extent{{4 * mib, 4096, 1}},
	}
}

func TestASoundRecordDecodes(t *testing.T) {
	b, err := cbor.Marshal(sound())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(b); err != nil {
		t.Fatal(err)
	}
}

func TestTamperedRecordsAreRefused(t *testing.T) {
	for name, change := range map[string]func(r *record){
		"format":           func(r *record) { r.Format++ },
		"no layout":        func(r *record) { r.Layout = nil },
		"no state":         func(r *record) { r.State = nil },
		"no ranges":        func(r *record) { r.Ranges = nil },
		"ranges overlap":   func(r *record) { r.Ranges[1].Lo = 0 },
		"extent beyond":    func(r *record) { r.Extents[0].Off = 1 << 50 },
		"extents overlap":  func(r *record) { r.Extents = append(r.Extents, r.Extents[0]) },
		"extent too long":  func(r *record) { r.Extents[0].Len = 1 << 40 },
		"program too low":  func(r *record) { r.Layout.Exe.Lo = 0 },
		"writable text":    func(r *record) { r.Layout.Exe.Segments[0].Prot = platform.Write | platform.Exec },
		"break beyond":     func(r *record) { r.State.BrkFresh = 1 << 40 },
		"heap beyond":      func(r *record) { r.State.End = 1 << 41 },
		"free outside":     func(r *record) { r.State.Free[0].Lo = 0 },
		"objects":          func(r *record) { r.State.InUse = nil },
		"signal":           func(r *record) { r.State.Handlers = []linux.SavedHandler{{Signal: 99}} },
		"request":          func(r *record) { r.State.Mailbox.Request = nil },
		"ring too large":   func(r *record) { r.State.Mailbox.Rings[1][1] = 1 << 40 },
		"stack over heap":  func(r *record) { r.Layout.Stack.Hi = r.Layout.Heap.Hi },
		"vDSO below":       func(r *record) { r.Layout.VDSO = 0x1000 },
		"too many objects": func(r *record) { r.Layout.Objects = make([]linux.Place, 5000) },
	} {
		r := sound()
		// The place's segments are shared by value only in part: copy them.
		r.Layout.Exe.Segments = append([]linux.Segment(nil), r.Layout.Exe.Segments...)
		change(r)
		b, err := cbor.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b, err := cbor.Marshal(sound())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for _, r := range []*record{{}, {Format: formatVersion, Layout: &linux.Layout{}, State: &linux.State{}, Ranges: []platform.Range{{Lo: 0, Hi: 4096}}}} {
		if b, err = cbor.Marshal(r); err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		// What is accepted keeps its promises.
		for _, s := range r.Layout.Spans() {
			if s.Lo < platform.UserLo || s.Hi <= s.Lo {
				t.Fatalf("span %#x to %#x", s.Lo, s.Hi)
			}
		}
	})
}
