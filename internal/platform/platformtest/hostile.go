//go:build linux

package platformtest

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Place is an address, with its name.
type Place struct {
	Name string
	Addr uint64
}

// Foreign are addresses that are not a guest's on any platform, or not to be
// written to. Platforms have more.
var Foreign = []Place{
	{"null", 0},
	{"clock", platform.ClockPage + 64},
	{"text", CodeAddr + 0x900},
	{"rodata", ReadOnly + 64},
	{"guard above the stack", DataEnd + 64},
	{"guard below the heap", HeapAddr - 64},
	{"end of memory", MemSize},
	{"heap of a larger guest", HeapEnd - 64},
	{"last canonical address", 1<<47 - 64},
	{"first non-canonical address", 1 << 47},
	{"non-canonical address", 1 << 63},
	{"kernel's half", 0xFFFFFFFF80000000},
	{"vsyscall page", 0xFFFFFFFFFF600000 + 64},
	{"last bytes", ^uint64(0) - 63},
}

// TouchEverything tries to change or execute what is at the places.
func (l *Lab) TouchEverything(t *testing.T, places []Place, may Outcome) {
	t.Helper()
	for _, p := range places {
		for _, w := range Touches {
			t.Run(w.Name+"/"+p.Name, func(t *testing.T) {
				l.Try(t, Attempt{Code: w.Code, May: may, Regs: platform.Regs{
					RBX: p.Addr, RDI: p.Addr, RCX: 64, RBP: DataAddr + 4096,
				}})
			})
		}
	}
}

// WildPointers has things happen with stack pointers and instruction pointers at
// the places: the host gets to know of it and nothing is written. may is how a
// start there may end; with a stack pointer there it may be harmless, too.
func (l *Lab) WildPointers(t *testing.T, places []Place, may Outcome) {
	t.Helper()
	events := []struct{ name, code string }{
		{"ud2", "0F 0B"}, {"int3", "CC"}, {"page fault", "8A 04 25 00 00 00 00"}, {"single step", "90"},
		{"cpuid", "0F A2"}, {"system call", "0F 05"},
	}
	for _, p := range places {
		for _, e := range events {
			t.Run("stack at "+p.Name+"/"+e.name, func(t *testing.T) {
				regs := platform.Regs{RSP: p.Addr | 8}
				if e.name == "single step" {
					regs.RFLAGS = Flags | 0x100
				}
				l.Try(t, Attempt{Code: e.code, May: may | Harmless, Regs: regs})
			})
		}
		if p.Addr != 0 { // which stands for the usual one
			t.Run("start at "+p.Name, func(t *testing.T) {
				l.Try(t, Attempt{May: may, Regs: platform.Regs{RIP: p.Addr}})
			})
		}
	}
}

// WrittenCode has a guest, and the host, write code to where a guest can write,
// and a guest run it or write to its own.
func (l *Lab) WrittenCode(t *testing.T) {
	t.Helper()
	for name, at := range map[string]uint64{
		"data": DataAddr, "heap": HeapAddr + 70<<10, "fresh heap": Guard + 5<<20, "stack": DataEnd - 64, "last bytes of memory": MemSize - 8,
	} {
		t.Run(name, func(t *testing.T) {
			// mov dword [rbx], syscall; jmp rbx
			l.Try(t, Attempt{Code: "C7 03 0F 05 90 90 FF E3", May: Faults, Regs: platform.Regs{RBX: at}})
		})
		t.Run("host's bytes in "+name, func(t *testing.T) {
			if !l.Subject(t).CopyOut(at, []byte{0x0F, 0x05}) {
				t.Fatal("not written")
			}
			l.Try(t, Attempt{Code: "FF E3", May: Faults, Regs: platform.Regs{RBX: at}})
		})
	}
	for name, code := range map[string]string{
		"the next instruction":   "C6 05 00 00 00 00 90",
		"by string move":         "48 8D 3D 00 00 00 00 48 89 FE B9 10 00 00 00 F3 A4",
		"by locked exchange":     "48 8D 1D 00 00 00 00 48 87 03",
		"by bit string":          "48 8D 1D 00 00 00 00 F0 48 0F AB 03",
		"by non-temporal stores": "48 8D 3D 00 00 00 00 66 0F 76 C9 66 0F F7 C1",
	} {
		t.Run("own text "+name, func(t *testing.T) {
			l.Try(t, Attempt{Code: code, May: Faults | ShutsDown, Regs: platform.Regs{RAX: ^uint64(0)}})
		})
	}
}
