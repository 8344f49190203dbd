package linux

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

const testTLS = 0x7ff000

// stack is where the stack of a test's threads begins: below the arena.
func (g *guest) stack() uint64 { return g.l.Stack.Lo + 32<<10 }

// spawn makes a thread, which waits for its turn, and gives its id.
func (g *guest) spawn() uint64 {
	g.t.Helper()
	return g.must(unix.SYS_CLONE, cloneShared, g.stack(), 0, 0, 0)
}

// on makes a thread the current one.
func (g *guest) on(id uint64) {
	g.t.Helper()
	for range maxThreads {
		if g.p.current.id == id {
			return
		}
		g.run(call(unix.SYS_SCHED_YIELD))
	}
	g.t.Fatalf("thread %d does not run", id)
}

// block executes a system call that has to wait, and lets another thread run.
func (g *guest) block(nr uint64, a ...uint64) {
	g.t.Helper()
	t := g.p.current
	g.run(call(nr, a...), func(*fakeMachine) platform.Exit { return platform.Exit{Kind: platform.Interrupted} })
	if !t.waiting || g.p.current == t {
		g.t.Fatalf("call %d does not wait", nr)
	}
}

// returned gives what a thread's system call returned, and makes that thread the
// current one.
func (g *guest) returned(id uint64) uint64 {
	g.t.Helper()
	g.on(id)
	return g.m.regs.RAX
}

func TestAThreadStartsBehindCloneOnItsOwnStack(t *testing.T) {
	g := newGuest(t)
	tids := g.alloc(16)
	g.m.regs.RBX, g.m.regs.RSP, g.m.xsave[5] = 7, g.l.Stack.Hi-512, 9
	id := g.must(unix.SYS_CLONE, cloneShared|cloneSetTLS|cloneParentSetTID|cloneChildSetTID|cloneChildClear, g.stack(), tids, tids+8, testTLS)
	if id == processID || g.p.current.id != processID || g.m.regs.RSP != g.l.Stack.Hi-512 {
		t.Fatalf("the parent does not go on: thread %d, %+v", g.p.current.id, g.m.regs)
	}
	le := binary.LittleEndian
	if b := g.get(tids, 12); uint64(le.Uint32(b)) != id || uint64(le.Uint32(b[8:])) != id {
		t.Errorf("thread ids % x", b)
	}
	g.m.xsave[5] = 1
	g.on(id)
	if r := g.m.regs; r.RAX != 0 || r.RSP != g.stack() || r.RBX != 7 || g.m.fs != testTLS || g.m.xsave[5] != 9 {
		t.Errorf("the thread starts with %+v, FS %#x", r, g.m.fs)
	}
	g.want(id, unix.SYS_GETTID)
	g.want(processID, unix.SYS_GETPID)
	g.on(processID)
	if g.m.xsave[5] != 1 || g.m.fs == testTLS {
		t.Error("the parent has the thread's state")
	}
}

func TestClone3MakesAThreadToo(t *testing.T) {
	g := newGuest(t)
	tids := g.alloc(16)
	flags := uint64(cloneShared | cloneSetTLS | cloneParentSetTID | cloneChildSetTID)
	good := words(flags, 0, tids+8, tids, 0, g.stack()-4096, 4096, testTLS, 0, 0, 0)
	id := g.must(unix.SYS_CLONE3, g.bytes(good), 88)
	g.on(id)
	if g.m.regs.RSP != g.stack() || g.m.fs != testTLS || g.m.regs.RAX != 0 {
		t.Errorf("the thread starts with %+v", g.m.regs)
	}
	if b := g.get(tids, 16); b[0] != b[8] || uint64(b[0]) != id {
		t.Errorf("thread ids % x", b)
	}
	g.refused(syscall.EINVAL, unix.SYS_CLONE3, g.bytes(good), 56)
	g.refused(syscall.E2BIG, unix.SYS_CLONE3, g.bytes(good), 1<<40)
	g.refused(syscall.EFAULT, unix.SYS_CLONE3, 8, 88)
	g.refused(syscall.EINVAL, unix.SYS_CLONE3, g.bytes(append(good[:72:72], words(1, 0)...)), 88)
}

func TestCloneRefusesWhatIsNotAThread(t *testing.T) {
	g := newGuest(t)
	for name, c := range map[string]struct {
		e     syscall.Errno
		flags uint64
		tls   uint64
	}{
		"fork":                 {syscall.ENOSYS, uint64(syscall.SIGCHLD), 0},
		"vfork":                {syscall.ENOSYS, cloneVM | 0x4000, 0},
		"a thread of its own":  {syscall.EINVAL, cloneThread, 0},
		"files of its own":     {syscall.EINVAL, cloneShared &^ cloneFiles, 0},
		"a new user namespace": {syscall.EINVAL, cloneShared | 0x10000000, 0},
		"a wild thread area":   {syscall.EPERM, cloneShared | cloneSetTLS, 1 << 47},
	} {
		if got := g.call(unix.SYS_CLONE, c.flags, g.stack(), 0, 0, c.tls); got != fail(c.e) {
			t.Errorf("%s: %s, want %v", name, answerText(got), c.e)
		}
	}
	g.refused(syscall.EFAULT, unix.SYS_CLONE, cloneShared|cloneParentSetTID, g.stack(), 8)
	if len(g.p.threads) != 1 {
		t.Errorf("%d threads", len(g.p.threads))
	}
}

func TestThreadsAreBounded(t *testing.T) {
	g := newGuest(t)
	for range maxThreads - 1 {
		g.spawn()
	}
	g.refused(syscall.EAGAIN, unix.SYS_CLONE, cloneShared, g.stack())
}

func TestAnExitingThreadWakesWhoJoinsIt(t *testing.T) {
	g := newGuest(t)
	word := g.bytes(words(1))
	id := g.must(unix.SYS_CLONE, cloneShared|cloneChildClear, g.stack(), 0, word, 0)
	g.block(unix.SYS_FUTEX, word, futexWait, 1)
	if g.p.current.id != id {
		t.Fatalf("thread %d runs", g.p.current.id)
	}
	if out := g.run(call(unix.SYS_EXIT, 3)); out.Kind != Stopped || g.p.current.id != processID || g.m.regs.RAX != 0 {
		t.Errorf("%+v, thread %d, RAX %s", out, g.p.current.id, answerText(g.m.regs.RAX))
	}
	if g.word(word) != 0 {
		t.Error("the word was not cleared")
	}
	if out := g.run(call(unix.SYS_EXIT, 3)); out.Kind != Exited || out.Status != 3 {
		t.Errorf("the last thread's exit: %+v", out)
	}
}

func TestTheMainThreadMayExitFirst(t *testing.T) {
	g := newGuest(t)
	id := g.spawn()
	g.run(call(unix.SYS_EXIT, 0))
	g.want(id, unix.SYS_GETTID)
	g.handle(syscall.SIGUSR1, 0, 0)
	g.kill(syscall.SIGUSR1)
	if g.m.regs.RIP != testHandler {
		t.Error("the signal did not reach the thread that is left")
	}
	if out := g.run(call(unix.SYS_EXIT_GROUP, 4)); out.Kind != Exited || out.Status != 4 {
		t.Errorf("outcome %+v", out)
	}
}

func TestATickLetsTheOthersRunInTurn(t *testing.T) {
	g := newGuest(t)
	a, b := g.spawn(), g.spawn()
	for _, want := range []uint64{a, b, processID, a} {
		g.p.ctl.tick.Store(true)
		g.run(call(unix.SYS_GETTID))
		if g.m.regs.RAX != want {
			t.Errorf("thread %d runs, want %d", g.m.regs.RAX, want)
		}
	}
}

func TestFutexWaitersAreWokenInTheOrderInWhichTheyCame(t *testing.T) {
	g := newGuest(t)
	word := g.bytes(words(5))
	a, b, c := g.spawn(), g.spawn(), g.spawn()
	for _, id := range []uint64{b, c, a} {
		g.on(id)
		g.block(unix.SYS_FUTEX, word, futexWaitBitset|128, 5, 0, 0, 1<<(id%8))
	}
	g.on(processID)
	g.want(0, unix.SYS_FUTEX, word, futexWakeBitset, 9, 0, 0, 1<<(processID%8))
	g.want(0, unix.SYS_FUTEX, word+4, futexWake, 9)
	g.want(0, unix.SYS_FUTEX, word, futexWake, 0)
	g.want(1, unix.SYS_FUTEX, word, futexWakeBitset, 9, 0, 0, 1<<(c%8))
	g.want(1, unix.SYS_FUTEX, word, futexWake, 1)
	if got := g.returned(b); got != 0 {
		t.Errorf("b's wait returned %s", answerText(got))
	}
	if got := g.returned(c); got != 0 {
		t.Errorf("c's wait returned %s", answerText(got))
	}
	if !g.p.find(a).waiting {
		t.Error("a does not wait any more")
	}
}

func TestFutexWaitersCanBeMoved(t *testing.T) {
	g := newGuest(t)
	word, other := g.bytes(words(5)), g.bytes(words(6))
	ids := []uint64{g.spawn(), g.spawn(), g.spawn()}
	for _, id := range ids {
		g.on(id)
		g.block(unix.SYS_FUTEX, word, futexWait, 5)
	}
	g.on(processID)
	g.refused(syscall.EAGAIN, unix.SYS_FUTEX, word, futexCmpRequeue, 1, 9, other, 4)
	g.refused(syscall.EINVAL, unix.SYS_FUTEX, word, futexRequeue, ^uint64(0), 9, other, 5)
	g.refused(syscall.EFAULT, unix.SYS_FUTEX, word, futexRequeue, 1, 9, 8, 5)
	g.want(2, unix.SYS_FUTEX, word, futexCmpRequeue, 1, 1, other, 5)
	g.want(1, unix.SYS_FUTEX, other, futexWake, 9)
	g.want(1, unix.SYS_FUTEX, word, futexWake, 9)
	for _, id := range ids {
		if got := g.returned(id); got != 0 {
			t.Errorf("thread %d's wait returned %s", id, answerText(got))
		}
	}
}

func TestFutexWakeOpChangesAWordAndWakesBoth(t *testing.T) {
	g := newGuest(t)
	word, other := g.bytes(words(5)), g.bytes(words(6))
	a, b := g.spawn(), g.spawn()
	g.on(a)
	g.block(unix.SYS_FUTEX, word, futexWait, 5)
	g.on(b)
	g.block(unix.SYS_FUTEX, other, futexWait, 6)
	g.on(processID)
	// word2 += 3, and wake there if it was greater than 5.
	g.want(2, unix.SYS_FUTEX, word, futexWakeOp, 9, 9, other, 1<<28|4<<24|3<<12|5)
	if got := g.word(other); got != 9 {
		t.Errorf("the word is %d", got)
	}
	for op, want := range map[uint64]uint64{
		0<<28 | 3<<12: 3, 2<<28 | 6<<12: 15, 3<<28 | 1<<12: 8, 4<<28 | 1<<12: 8, 8<<28 | 4<<12: 16,
	} {
		g.m.CopyOut(other, words(9))
		g.want(0, unix.SYS_FUTEX, word, futexWakeOp, 9, 9, other, op|1<<24|9)
		if got := g.word(other); got != want {
			t.Errorf("operation %#x made %d, want %d", op, got, want)
		}
	}
	g.refused(syscall.ENOSYS, unix.SYS_FUTEX, word, futexWakeOp, 9, 9, other, 7<<28)
	g.refused(syscall.ENOSYS, unix.SYS_FUTEX, word, futexWakeOp, 9, 9, other, 9<<24)
	g.refused(syscall.EFAULT, unix.SYS_FUTEX, word, futexWakeOp, 9, 9, g.l.Exe.Lo, 0)
}

func TestSleepersWakeWhenTheirTimeHasCome(t *testing.T) {
	g := newGuest(t)
	a := g.spawn()
	late, early := g.bytes(words(0, 3e6)), g.bytes(words(0, 1e6))
	g.on(a)
	g.block(unix.SYS_NANOSLEEP, late, 0)
	g.want(0, unix.SYS_NANOSLEEP, early, 0)
	if g.p.current.id != processID {
		t.Error("the longer sleep ended first")
	}
	g.p.current.waiting, g.p.current.wait = true, wait{deadline: never}
	g.run(call(unix.SYS_GETTID))
	if g.m.regs.RAX != a {
		t.Error("the longer sleep did not end")
	}
}

func TestADeadlockIsToldAndAnInterruptEndsIt(t *testing.T) {
	g := newGuest(t)
	told := 0
	g.p.deadlocked = func() {
		told++
		g.p.Interrupt()
	}
	g.handle(syscall.SIGINT, 0, 0)
	word := g.bytes(words(5))
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_FUTEX, word, futexWait, 5)
	g.run(call(unix.SYS_FUTEX, word, futexWait, 5))
	if told != 1 || g.p.current.id != processID || g.m.regs.RIP != testHandler {
		t.Errorf("told %d times, thread %d at %#x", told, g.p.current.id, g.m.regs.RIP)
	}
	g.sigreturn()
	if g.m.regs.RAX != fail(syscall.EINTR) {
		t.Errorf("the wait returned %s", answerText(g.m.regs.RAX))
	}
}

func TestATimeLimitIsNoDeadlock(t *testing.T) {
	g := newGuest(t)
	g.p.deadlocked = func() { t.Error("a deadlock was told") }
	word := g.bytes(words(5))
	g.spawn()
	g.block(unix.SYS_FUTEX, word, futexWait, 5, g.bytes(words(0, 1e6)))
	g.run(call(unix.SYS_FUTEX, word+4, futexWait, 0))
	if g.p.current.id != processID || g.m.regs.RAX != fail(syscall.ETIMEDOUT) {
		t.Errorf("thread %d: %s", g.p.current.id, answerText(g.m.regs.RAX))
	}
}

func TestThreadsMustBeGoneBeforeATemplateIsTaken(t *testing.T) {
	g, s := parked(t)
	g.p.Resume(nil, nil, 0)
	g.spawn()
	g.park(8, 8, 0)
	if _, err := g.p.Save(); !errors.Is(err, ErrState) {
		t.Errorf("a template with two threads: %v", err)
	}
	if err := g.p.Restore(s, g.p.fs, testMemory); err != nil {
		t.Fatal(err)
	}
	if len(g.p.threads) != 1 || g.p.current.id != processID {
		t.Error("a thread is left after a restore")
	}
}

func TestEveryThreadHasItsOwnProcessorTime(t *testing.T) {
	g := newGuest(t)
	a := g.spawn()
	read := func(clock uint64) uint64 {
		v, ok := g.p.readClock(clock)
		if !ok {
			t.Fatalf("no clock %#x", clock)
		}
		return v
	}
	clockOf := func(id uint64) uint64 { return uint64(uint32(^id)<<3 | cpuClockThread | cpuClockSched) }
	g.m.mono += 5e6
	main := read(clockThreadCPU)
	g.on(a)
	if got := read(clockThreadCPU); got != 0 {
		t.Errorf("a new thread has used %d ns", got)
	}
	g.m.mono += 2e6
	if got := read(clockOf(a)); got != 2e6 || got != read(clockOf(0)) {
		t.Errorf("the thread has used %d ns", got)
	}
	if got := read(clockOf(processID)); got != main {
		t.Errorf("the main thread has used %d ns, was %d", got, main)
	}
	if got := read(clockProcessCPU); got != main+2e6 {
		t.Errorf("the process has used %d ns", got)
	}
	if _, ok := g.p.readClock(clockOf(4711)); ok {
		t.Error("a thread that does not exist has a clock")
	}
}
