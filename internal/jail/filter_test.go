//go:build linux && amd64

package jail

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const testPID = 1<<16 + 7

var testIoctls = []uint32{0xae80, 0xc0606610, 0x4138ae84}

// run is the filter's verdict on a call, by an interpreter. The interpreter
// reads words as a network sends them; the kernel reads its own.
func run(t testing.TB, arch, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(assemble(testPID, testIoctls))
	if err != nil {
		t.Fatal(err)
	}
	var data [64]byte
	be := binary.BigEndian
	be.PutUint32(data[offNumber:], nr)
	be.PutUint32(data[offArch:], arch)
	for i, a := range args {
		be.PutUint32(data[offArgs+8*i:], uint32(a))
		be.PutUint32(data[offArgs+8*i+4:], uint32(a>>32))
	}
	v, err := vm.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

// expected is what the lists say, without a program.
func expected(arch, nr uint32, args [6]uint64) uint32 {
	if arch != unix.AUDIT_ARCH_X86_64 {
		return verdictKill
	}
	for _, a := range answered {
		if a.nr == nr {
			return verdictErrno | uint32(a.errno)
		}
	}
	if slices.Contains(always, nr) {
		return verdictAllow
	}
	for _, c := range sometimes(testPID, testIoctls) {
		if c.nr != nr {
			continue
		}
		for _, r := range c.rules {
			holds := true
			for _, cond := range r {
				holds = holds && args[cond.arg]&cond.mask == cond.value
			}
			if holds {
				return verdictAllow
			}
		}
	}
	return verdictKill
}

func TestFilterDoesWhatTheListsSay(t *testing.T) {
	interesting := []uint64{0, 1, 2, 3, 4, 5, 7, 8, 9, testPID, 0xae80, 0xae01, 1 << 32, 1<<32 | 3, 1<<32 | 0xae80,
		threadMust, threadMust | threadMay, threadMust | unix.CLONE_NEWNET, threadMust &^ unix.CLONE_THREAD, threadMust | 1<<32,
		unix.O_ASYNC, unix.O_NONBLOCK, setVMA, ^uint64(0)}
	for nr := range uint32(600) {
		for i := range 40 {
			var args [6]uint64
			for a := range args {
				args[a] = interesting[rand.IntN(len(interesting))]
				if i%8 == 7 {
					args[a] = rand.Uint64()
				}
			}
			want := expected(unix.AUDIT_ARCH_X86_64, nr, args)
			if got := run(t, unix.AUDIT_ARCH_X86_64, nr, args); got != want {
				t.Fatalf("call %d with %#x: %#x, want %#x", nr, args, got, want)
			}
		}
	}
}

func TestFilterKnowsOneArchitecture(t *testing.T) {
	for _, c := range []struct {
		name     string
		arch, nr uint32
	}{
		{"32-bit getpid", unix.AUDIT_ARCH_I386, 20},
		{"32-bit with a 64-bit number", unix.AUDIT_ARCH_I386, unix.SYS_READ},
		{"x32 read", unix.AUDIT_ARCH_X86_64, x32 | unix.SYS_READ},
		{"number -1", unix.AUDIT_ARCH_X86_64, 1<<32 - 1},
	} {
		if got := run(t, c.arch, c.nr, [6]uint64{}); got != verdictKill {
			t.Errorf("%s: %#x, want %#x", c.name, got, uint32(verdictKill))
		}
	}
}

func TestFilterFitsTheKernel(t *testing.T) {
	raw, err := bpf.Assemble(assemble(testPID, make([]uint32, MaxIoctls)))
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions, at most %d", len(raw), unix.BPF_MAXINSNS)
	}
}
