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

const testChild, testChildFD = 1<<17 + 3, 11

var testSpec = Spec{Ioctls: []uint32{0xae80, 0xc0606610, 0x4138ae84}, Trace: []Tracee{{testChild, testChildFD}}}

// run is the filter's verdict on a call, by an interpreter. The interpreter
// reads words as a network sends them; the kernel reads its own.
func run(t testing.TB, arch, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(assemble(testPID, testSpec))
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
	for _, c := range sometimes(testPID, testSpec) {
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
		unix.O_ASYNC, unix.O_NONBLOCK, setVMA, ^uint64(0),
		testChild, testChildFD, unix.PTRACE_SYSEMU, unix.PTRACE_CONT, unix.PTRACE_SETREGSET, unix.NT_X86_XSTATE, unix.WALL, uint64(unix.SIGKILL)}
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

// What a tracer may do, it may do to its own child only.
func TestFilterAllowsTracingOfOneChild(t *testing.T) {
	const other = testChild + 1
	for _, c := range []struct {
		name string
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{"emulate calls", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SYSEMU, testChild}, verdictAllow},
		{"emulate calls and pass a signal on", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SYSEMU, testChild, 0, 9}, verdictKill},
		{"emulate calls of another", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SYSEMU, other}, verdictKill},
		{"registers", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SETREGS, testChild, 0, 0x7f0012345678}, verdictAllow},
		{"extended state", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SETREGSET, testChild, unix.NT_X86_XSTATE, 0x7f0012345678}, verdictAllow},
		{"another register set", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SETREGSET, testChild, 1, 0x7f0012345678}, verdictKill},
		{"write words", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_POKEDATA, testChild, 0x400000, 1}, verdictKill},
		{"attach", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_ATTACH, testChild}, verdictKill},
		{"seize", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SEIZE, testChild}, verdictKill},
		{"let go", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_DETACH, testChild}, verdictKill},
		{"change options", unix.SYS_PTRACE, [6]uint64{unix.PTRACE_SETOPTIONS, testChild, 0, 0}, verdictKill},
		{"wait for it", unix.SYS_WAIT4, [6]uint64{testChild, 0x7f0012345678, unix.WALL}, verdictAllow},
		{"wait for any", unix.SYS_WAIT4, [6]uint64{1<<32 - 1, 0, unix.WALL}, verdictKill},
		{"stop it", unix.SYS_PIDFD_SEND_SIGNAL, [6]uint64{testChildFD, uint64(unix.SIGSTOP)}, verdictAllow},
		{"kill it", unix.SYS_PIDFD_SEND_SIGNAL, [6]uint64{testChildFD, uint64(unix.SIGKILL)}, verdictAllow},
		{"another signal", unix.SYS_PIDFD_SEND_SIGNAL, [6]uint64{testChildFD, uint64(unix.SIGCONT)}, verdictKill},
		{"a forged signal", unix.SYS_PIDFD_SEND_SIGNAL, [6]uint64{testChildFD, uint64(unix.SIGKILL), 0x7f0012345678}, verdictKill},
		{"kill by another descriptor", unix.SYS_PIDFD_SEND_SIGNAL, [6]uint64{testChildFD + 1, uint64(unix.SIGKILL)}, verdictKill},
		{"signal its threads", unix.SYS_TGKILL, [6]uint64{testChild, testChild, uint64(unix.SIGKILL)}, verdictKill},
	} {
		if got := run(t, unix.AUDIT_ARCH_X86_64, c.nr, c.args); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
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
	raw, err := bpf.Assemble(assemble(testPID, Spec{Ioctls: make([]uint32, MaxIoctls), Trace: make([]Tracee, MaxTrace)}))
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions, at most %d", len(raw), unix.BPF_MAXINSNS)
	}
}
