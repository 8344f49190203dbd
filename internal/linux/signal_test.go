package linux

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

const (
	testHandler  = 0x401010
	testRestorer = 0x401020
)

// handle installs a handler for a signal.
func (g *guest) handle(n syscall.Signal, flags, mask uint64) {
	g.t.Helper()
	g.must(unix.SYS_RT_SIGACTION, uint64(n), g.bytes(words(testHandler, flags|saRestorer, testRestorer, mask)), 0, 8)
}

// kill sends the process a signal.
func (g *guest) kill(n syscall.Signal) Outcome {
	g.t.Helper()
	return g.run(call(unix.SYS_KILL, processID, uint64(n)))
}

// sigreturn does what the restorer does, once the handler has returned to it.
func (g *guest) sigreturn() Outcome {
	g.t.Helper()
	return g.run(func(m *fakeMachine) platform.Exit {
		m.regs.RSP += 8
		m.regs.RIP = testRestorer
		return call(unix.SYS_RT_SIGRETURN)(m)
	})
}

func TestAHandlerIsEnteredWithAFrameAndSigreturnRestoresAll(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saSiginfo, bit(syscall.SIGUSR2))
	sp := g.m.regs.RSP
	g.m.regs.RBX, g.m.regs.R12, g.m.regs.RIP, g.m.xsave[3] = 0xB, 0x12, 0x401234, 77
	g.kill(syscall.SIGUSR1)
	r := g.m.regs
	if r.RIP != testHandler || r.RDI != uint64(syscall.SIGUSR1) || r.RSP%16 != 8 || r.RSP >= sp-128 {
		t.Fatalf("in the handler: %+v", r)
	}
	if g.word(r.RSP) != testRestorer {
		t.Error("the handler does not return to the restorer")
	}
	info, uc := g.get(r.RSI, 128), g.get(r.RDX, 968)
	le := binary.LittleEndian
	if le.Uint32(info) != uint32(syscall.SIGUSR1) || le.Uint32(info[16:]) != processID || le.Uint32(info[20:]) != userID {
		t.Errorf("siginfo % x", info[:24])
	}
	if rbx, rip := le.Uint64(uc[40+11*8:]), le.Uint64(uc[40+16*8:]); rbx != 0xB || rip != 0x401234 {
		t.Errorf("ucontext has RBX %#x, RIP %#x", rbx, rip)
	}
	if g.p.current.mask != bit(syscall.SIGUSR1)|bit(syscall.SIGUSR2) {
		t.Errorf("mask %#x in the handler", g.p.current.mask)
	}
	g.m.regs.RBX, g.m.regs.R12, g.m.xsave[3] = 0, 0, 0
	// What the handler writes to its frame does not count.
	g.fill(r.RDX, 968, 0xFF)
	g.sigreturn()
	if r := g.m.regs; r.RBX != 0xB || r.R12 != 0x12 || r.RIP != 0x401234 || r.RSP != sp || r.RAX != 0 || g.m.xsave[3] != 77 {
		t.Errorf("after the handler: %+v", r)
	}
	if g.p.current.mask != 0 || len(g.p.current.frames) != 0 {
		t.Error("the mask or the frames are not what they were")
	}
}

func TestHandlersNestAndReturnInOrder(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saNoDefer, 0)
	for i := range uint64(5) {
		g.m.regs.RBX = i
		g.kill(syscall.SIGUSR1)
	}
	for i := range uint64(5) {
		g.sigreturn()
		if g.m.regs.RBX != 4-i {
			t.Errorf("RBX %d, want %d", g.m.regs.RBX, 4-i)
		}
	}
}

func TestTooManyNestedHandlersEndTheProcess(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saNoDefer, 0)
	for range maxFrames {
		if out := g.kill(syscall.SIGUSR1); out.Kind != Stopped {
			t.Fatalf("ended early: %+v", out)
		}
	}
	if out := g.kill(syscall.SIGUSR1); out.Kind != Killed || out.Signal != syscall.SIGUSR1 {
		t.Errorf("outcome %+v", out)
	}
}

func TestFramesLeftByLongjmpAreDropped(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saNoDefer, 0)
	g.m.regs.RBX = 1
	g.kill(syscall.SIGUSR1)
	outer := g.m.regs.RSP
	g.kill(syscall.SIGUSR1)
	g.m.regs.RSP = outer // the inner handler jumps out
	g.sigreturn()
	if g.m.regs.RBX != 1 || len(g.p.current.frames) != 0 {
		t.Errorf("RBX %d, %d frames", g.m.regs.RBX, len(g.p.current.frames))
	}
}

func TestAForgedSigreturnEndsTheProcess(t *testing.T) {
	g := newGuest(t)
	if out := g.sigreturn(); out.Kind != Killed || out.Signal != syscall.SIGSEGV {
		t.Errorf("without a frame: %+v", out)
	}
	g = newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	g.kill(syscall.SIGUSR1)
	g.m.regs.RSP += 16
	if out := g.sigreturn(); out.Kind != Killed || out.Signal != syscall.SIGSEGV {
		t.Errorf("from another place: %+v", out)
	}
}

func TestTheAlternateStackIsUsedOnceAndOnlyIfAskedFor(t *testing.T) {
	g := newGuest(t)
	stack := g.mmap(4 * page)
	set := g.bytes(words(stack, 0, 4*page))
	old := g.alloc(24)
	g.want(0, unix.SYS_SIGALTSTACK, set, old)
	if got := g.word(old + 8); got != ssDisable {
		t.Errorf("before there was a stack, its flags are %#x", got)
	}
	g.handle(syscall.SIGUSR1, saNoDefer, 0)
	g.kill(syscall.SIGUSR1)
	if sp := g.m.regs.RSP; sp < g.l.Stack.Lo || sp > g.l.Stack.Hi {
		t.Errorf("a handler without SA_ONSTACK runs at %#x", sp)
	}
	g.handle(syscall.SIGUSR1, saNoDefer|saOnStack, 0)
	g.kill(syscall.SIGUSR1)
	first := g.m.regs.RSP
	if first < stack || first >= stack+4*page {
		t.Fatalf("the handler runs at %#x", first)
	}
	g.refused(syscall.EPERM, unix.SYS_SIGALTSTACK, set, 0)
	g.want(0, unix.SYS_SIGALTSTACK, 0, old)
	if g.word(old+8) != ssOnStack || g.word(old) != stack {
		t.Errorf("on the stack, flags are %#x", g.word(old+8))
	}
	g.kill(syscall.SIGUSR1)
	if sp := g.m.regs.RSP; sp >= first || sp < stack {
		t.Errorf("a nested handler starts the stack anew: %#x", sp)
	}
	g.sigreturn()
	g.sigreturn()
	g.sigreturn()
	g.refused(syscall.ENOMEM, unix.SYS_SIGALTSTACK, g.bytes(words(stack, 0, minAltStack-1)), 0)
	g.refused(syscall.EINVAL, unix.SYS_SIGALTSTACK, g.bytes(words(stack, 4, 4*page)), 0)
	g.want(0, unix.SYS_SIGALTSTACK, g.bytes(words(0, ssDisable, 0)), 0)
}

func TestAHandlerThatCannotBeEnteredEndsTheProcess(t *testing.T) {
	for name, prepare := range map[string]func(*guest){
		"no stack":        func(g *guest) { g.m.regs.RSP = g.l.Stack.Lo },
		"stack in text":   func(g *guest) { g.m.regs.RSP = g.l.Exe.Lo + page },
		"stack at zero":   func(g *guest) { g.m.regs.RSP = 0 },
		"alternate stack": func(g *guest) { g.p.current.alt = AltStack{SP: ^uint64(0) - 100, Size: 1 << 20} },
		"no restorer":     func(g *guest) { g.p.sig.actions[syscall.SIGUSR1].Flags = saOnStack },
		"failing machine": func(g *guest) {
			g.m.script = nil
			g.p.cpu = brokenSave{g.m}
		},
	} {
		g := newGuest(t)
		g.handle(syscall.SIGUSR1, saOnStack, 0)
		prepare(g)
		if out := g.kill(syscall.SIGUSR1); out.Kind != Killed || out.Signal != syscall.SIGUSR1 {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// brokenSave is a machine whose state cannot be saved.
type brokenSave struct{ *fakeMachine }

func (brokenSave) Save(*platform.Context) error { return errors.New("no state") }

func TestDefaultActions(t *testing.T) {
	for n := syscall.Signal(1); n < maxSignal; n++ {
		g := newGuest(t)
		out := g.kill(n)
		want := Killed
		if ignoredByDefault(n) {
			want = Stopped
		}
		if out.Kind != want || want == Killed && out.Signal != n {
			t.Errorf("signal %d: %+v", n, out)
		}
		if want == Killed && n != syscall.SIGKILL {
			g = newGuest(t)
			g.must(unix.SYS_RT_SIGACTION, uint64(n), g.bytes(words(sigIgn, 0, 0, 0)), 0, 8)
			if out := g.kill(n); out.Kind != Stopped {
				t.Errorf("signal %d, ignored: %+v", n, out)
			}
		}
	}
}

func TestBlockedSignalsWait(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saResethnd, 0)
	set, old := g.bytes(words(^uint64(0))), g.alloc(8)
	g.want(0, unix.SYS_RT_SIGPROCMASK, 2, set, old, 8)
	g.want(0, unix.SYS_RT_SIGPROCMASK, 0, 0, old, 8)
	if got := g.word(old); got != ^uint64(0)&^unblockable {
		t.Errorf("mask %#x", got)
	}
	g.kill(syscall.SIGUSR1)
	g.want(0, unix.SYS_RT_SIGPENDING, old, 8)
	if got := g.word(old); got != bit(syscall.SIGUSR1) {
		t.Errorf("pending %#x", got)
	}
	g.run(call(unix.SYS_RT_SIGPROCMASK, 1, g.bytes(words(bit(syscall.SIGUSR1))), 0, 8))
	if g.m.regs.RIP != testHandler {
		t.Error("an unblocked signal was not delivered")
	}
	g.sigreturn()
	g.want(0, unix.SYS_RT_SIGPROCMASK, 1, set, 0, 8)
	if out := g.kill(syscall.SIGUSR1); out.Kind != Killed {
		t.Errorf("SA_RESETHAND was not obeyed: %+v", out)
	}
	g = newGuest(t)
	g.want(0, unix.SYS_RT_SIGPROCMASK, 2, g.bytes(words(^uint64(0))), 0, 8)
	if out := g.kill(syscall.SIGKILL); out.Kind != Killed || out.Signal != syscall.SIGKILL {
		t.Errorf("SIGKILL was blocked: %+v", out)
	}
}

func TestSignalCallsRefuseWhatCannotBe(t *testing.T) {
	g := newGuest(t)
	act, bad := g.bytes(words(sigIgn, 0, 0, 0)), g.l.Stack.Hi
	for _, tt := range []struct {
		want syscall.Errno
		nr   uint64
		a    [4]uint64
	}{
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{0, act, 0, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{65, act, 0, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{^uint64(0), 0, 0, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{2, act, 0, 4}},
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{9, act, 0, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGACTION, [4]uint64{19, act, 0, 8}},
		{syscall.EFAULT, unix.SYS_RT_SIGACTION, [4]uint64{2, bad, 0, 8}},
		{syscall.EFAULT, unix.SYS_RT_SIGACTION, [4]uint64{2, 0, bad, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGPROCMASK, [4]uint64{3, act, 0, 8}},
		{syscall.EINVAL, unix.SYS_RT_SIGPROCMASK, [4]uint64{0, act, 0, 16}},
		{syscall.EINVAL, unix.SYS_KILL, [4]uint64{processID, 65}},
		{syscall.ESRCH, unix.SYS_KILL, [4]uint64{1, 9}},
		{syscall.ESRCH, unix.SYS_TKILL, [4]uint64{1, 9}},
		{syscall.ESRCH, unix.SYS_TGKILL, [4]uint64{1, processID, 9}},
		{syscall.ESRCH, unix.SYS_TGKILL, [4]uint64{processID, 1, 9}},
		{0, unix.SYS_KILL, [4]uint64{processID, 0}},
		{0, unix.SYS_TGKILL, [4]uint64{processID, processID, 0}},
	} {
		if got := g.call(tt.nr, tt.a[:]...); got != result(tt.want) {
			t.Errorf("call %d%#x = %s, want %v", tt.nr, tt.a, answerText(got), tt.want)
		}
	}
}

func TestFaultsBecomeSignals(t *testing.T) {
	for vector, want := range map[uint8]syscall.Signal{
		0: syscall.SIGFPE, 1: syscall.SIGTRAP, 3: syscall.SIGTRAP, 6: syscall.SIGILL, 13: syscall.SIGSEGV,
		14: syscall.SIGSEGV, 16: syscall.SIGFPE, 17: syscall.SIGBUS, 19: syscall.SIGFPE, 255: syscall.SIGSEGV,
	} {
		g := newGuest(t)
		if out := g.run(faultStep(vector, 0x1234)); out.Kind != Killed || out.Signal != want || !out.Fault {
			t.Errorf("vector %d: %+v", vector, out)
		}
		g = newGuest(t)
		g.handle(want, saSiginfo, 0)
		g.run(faultStep(vector, 0x1234))
		if g.m.regs.RIP != testHandler || g.m.regs.RDI != uint64(want) {
			t.Errorf("vector %d: the handler was not entered", vector)
		}
		if out := g.run(faultStep(vector, 0)); out.Kind != Killed {
			t.Errorf("vector %d: a fault in its own handler: %+v", vector, out)
		}
	}
}

func TestAShutdownIsTheGuestsOwnDeath(t *testing.T) {
	g := newGuest(t)
	out := g.run(func(*fakeMachine) platform.Exit { return platform.Exit{Kind: platform.Shutdown, Addr: 5} })
	if out.Kind != Killed || out.Signal != syscall.SIGSEGV || out.Addr != 5 {
		t.Errorf("outcome %+v", out)
	}
}

func TestInterruptIsSIGINT(t *testing.T) {
	g := newGuest(t)
	g.p.Interrupt()
	if out := g.run(call(unix.SYS_GETPID)); out.Kind != Killed || out.Signal != syscall.SIGINT {
		t.Errorf("without a handler: %+v", out)
	}
	g = newGuest(t)
	g.handle(syscall.SIGINT, 0, 0)
	ts, rem := g.bytes(words(1000, 0)), g.alloc(16)
	for _, c := range [][]uint64{
		{unix.SYS_NANOSLEEP, ts, rem}, {unix.SYS_CLOCK_NANOSLEEP, clockMonotonic, 0, ts, rem},
		{unix.SYS_POLL, 0, 0, ^uint64(0)}, {unix.SYS_PPOLL, 0, 0, ts}, {unix.SYS_PPOLL, 0, 0, 0}, {unix.SYS_SELECT, 0, 0, 0, 0, ts},
		{unix.SYS_FUTEX, ts, futexWait, 1000, 0},
	} {
		g.during(g.p.Interrupt, c[0], c[1:]...)
		if g.m.regs.RIP != testHandler {
			t.Fatalf("call %d: the handler was not entered", c[0])
		}
		g.sigreturn()
		if got := g.m.regs.RAX; got != fail(syscall.EINTR) {
			t.Errorf("call %d = %s", c[0], answerText(got))
		}
	}
	if got := g.word(rem); got == 0 || got > 1000 {
		t.Errorf("%d seconds are left", got)
	}
}

func TestRunPassesOnFailuresOfTheMachine(t *testing.T) {
	g := newGuest(t)
	g.m.failure = platform.ErrMachine
	if _, err := g.p.Run(); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("error %v", err)
	}
	g.m.failure = nil
	g.m.script = []step{func(*fakeMachine) platform.Exit { return platform.Exit{Kind: 99} }}
	if _, err := g.p.Run(); !errors.Is(err, platform.ErrMachine) {
		t.Errorf("an unknown exit: %v", err)
	}
}
