package linux

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestASignalOfTheProcessGoesToTheMainThreadIfThatTakesIt(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	a := g.spawn()
	g.on(a)
	g.kill(syscall.SIGUSR1)
	if g.p.current.id != processID || g.m.regs.RIP != testHandler {
		t.Fatalf("thread %d at %#x", g.p.current.id, g.m.regs.RIP)
	}
	g.sigreturn()
	g.must(unix.SYS_RT_SIGPROCMASK, 0, g.bytes(words(bit(syscall.SIGUSR1))), 0, 8)
	g.kill(syscall.SIGUSR1)
	if g.p.current.id != a || g.m.regs.RIP != testHandler {
		t.Errorf("blocked in the main thread: thread %d at %#x", g.p.current.id, g.m.regs.RIP)
	}
}

func TestASignalForAThreadIsHandledThere(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_PAUSE)
	g.refused(syscall.ESRCH, unix.SYS_TGKILL, processID, 4711, uint64(syscall.SIGUSR1))
	g.refused(syscall.EINVAL, unix.SYS_TGKILL, processID, a, maxSignal)
	g.run(call(unix.SYS_TGKILL, processID, a, uint64(syscall.SIGUSR1)))
	if g.p.current.id != a || g.m.regs.RIP != testHandler {
		t.Fatalf("thread %d at %#x", g.p.current.id, g.m.regs.RIP)
	}
	g.sigreturn()
	if g.m.regs.RAX != fail(syscall.EINTR) {
		t.Errorf("pause returned %s", answerText(g.m.regs.RAX))
	}
}

func TestAHandlerMayAskForTheCallToBeginAnew(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, saRestart, 0)
	word := g.bytes(words(5))
	a := g.spawn()
	g.on(a)
	g.m.regs.RIP = 0x401002 // behind SYSCALL
	g.block(unix.SYS_FUTEX, word, futexWait, 5)
	g.run(call(unix.SYS_TGKILL, processID, a, uint64(syscall.SIGUSR1)))
	g.sigreturn()
	if r := g.m.regs; r.RIP != 0x401000 || r.RAX != unix.SYS_FUTEX {
		t.Errorf("after the handler: %+v", r)
	}
}

func TestASignalThatIsWaitedForIsTakenWithoutItsHandler(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	set, info := g.bytes(words(bit(syscall.SIGUSR1))), g.alloc(128)
	g.must(unix.SYS_RT_SIGPROCMASK, 0, set, 0, 8)
	g.refused(syscall.EAGAIN, unix.SYS_RT_SIGTIMEDWAIT, set, info, g.bytes(words(0, 1e6)), 8)
	a := g.spawn()
	g.block(unix.SYS_RT_SIGTIMEDWAIT, set, info, 0, 8)
	g.run(call(unix.SYS_KILL, processID, uint64(syscall.SIGUSR1)))
	if got := g.returned(processID); got != uint64(syscall.SIGUSR1) || g.m.regs.RIP == testHandler {
		t.Errorf("sigwait returned %s at %#x", answerText(got), g.m.regs.RIP)
	}
	if n := binary.LittleEndian.Uint32(g.get(info, 4)); n != uint32(syscall.SIGUSR1) {
		t.Errorf("siginfo tells of signal %d", n)
	}
	g.must(unix.SYS_TKILL, processID, uint64(syscall.SIGUSR1))
	g.want(uint64(syscall.SIGUSR1), unix.SYS_RT_SIGTIMEDWAIT, set, 0, 0, 8)
	g.on(a)
	g.refused(syscall.EFAULT, unix.SYS_RT_SIGTIMEDWAIT, 8, 0, 0, 8)
}

func TestSigsuspendChangesTheMaskWhileItWaits(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	g.must(unix.SYS_RT_SIGPROCMASK, 2, g.bytes(words(bit(syscall.SIGUSR1)|bit(syscall.SIGUSR2))), 0, 8)
	g.kill(syscall.SIGUSR1)
	g.run(call(unix.SYS_RT_SIGSUSPEND, g.bytes(words(bit(syscall.SIGHUP))), 8))
	if g.m.regs.RIP != testHandler || g.p.current.mask != bit(syscall.SIGHUP)|bit(syscall.SIGUSR1) {
		t.Fatalf("at %#x with mask %#x", g.m.regs.RIP, g.p.current.mask)
	}
	g.sigreturn()
	if g.p.current.mask != bit(syscall.SIGUSR1)|bit(syscall.SIGUSR2) || g.m.regs.RAX != fail(syscall.EINTR) {
		t.Errorf("mask %#x, returned %s", g.p.current.mask, answerText(g.m.regs.RAX))
	}
}

func TestPpollChangesTheMaskWhileItWaits(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGUSR1, 0, 0)
	blocked := bit(syscall.SIGUSR1)
	g.must(unix.SYS_RT_SIGPROCMASK, 2, g.bytes(words(blocked)), 0, 8)
	none := g.bytes(words(0))
	g.want(0, unix.SYS_PPOLL, 0, 0, g.bytes(words(0, 1e6)), none, 8)
	if g.p.current.mask != blocked {
		t.Errorf("mask %#x after the time limit", g.p.current.mask)
	}
	g.kill(syscall.SIGUSR1)
	g.run(call(unix.SYS_PPOLL, 0, 0, 0, none, 8))
	if g.m.regs.RIP != testHandler {
		t.Fatal("the handler did not run")
	}
	g.sigreturn()
	if g.p.current.mask != blocked || g.m.regs.RAX != fail(syscall.EINTR) {
		t.Errorf("mask %#x, returned %s", g.p.current.mask, answerText(g.m.regs.RAX))
	}
}

func TestTheAlarmRings(t *testing.T) {
	g := newGuest(t)
	g.handle(syscall.SIGALRM, 0, 0)
	g.want(0, unix.SYS_ALARM, 100)
	g.want(100, unix.SYS_ALARM, 0)
	g.want(0, unix.SYS_SETITIMER, itimerReal, g.bytes(words(5, 7, 0, 1000)), 0)
	got := g.alloc(32)
	g.want(0, unix.SYS_GETITIMER, itimerReal, got)
	if g.word(got) != 5 || g.word(got+8) != 7 || g.word(got+24) != 1000 {
		t.Errorf("getitimer tells % x", g.get(got, 32))
	}
	g.run(call(unix.SYS_PAUSE))
	if g.m.regs.RIP != testHandler || g.m.regs.RDI != uint64(syscall.SIGALRM) {
		t.Fatalf("at %#x", g.m.regs.RIP)
	}
	if g.p.alarm.at == never || g.p.alarm.interval != 5_000_007_000 {
		t.Errorf("the next ring: %+v", g.p.alarm)
	}
	g.want(0, unix.SYS_SETITIMER, itimerReal, g.bytes(words(0, 0, 0, 0)), got)
	if g.word(got+16) == 0 || g.p.alarm.at != never {
		t.Error("the timer was not stopped")
	}
	g.refused(syscall.EINVAL, unix.SYS_SETITIMER, 1, got, 0)
	g.refused(syscall.EINVAL, unix.SYS_SETITIMER, itimerReal, g.bytes(words(0, 1e6, 0, 0)), 0)
	g.refused(syscall.EFAULT, unix.SYS_SETITIMER, itimerReal, 8, 0)
}

func TestSelectTellsWhatIsReady(t *testing.T) {
	g := newGuest(t)
	fd := g.open("/work/f", syscall.O_CREAT|syscall.O_RDWR)
	in, out := g.bytes(words(1<<fd|1<<1)), g.bytes(words(1<<1))
	g.want(2, unix.SYS_SELECT, fd+1, in, out, 0, 0)
	if g.word(in) != 1<<fd || g.word(out) != 1<<1 {
		t.Errorf("ready %#x %#x", g.word(in), g.word(out))
	}
	// Standard output is never to be read from.
	in = g.bytes(words(1 << 1))
	g.want(0, unix.SYS_SELECT, 2, in, 0, 0, g.bytes(words(0, 1000)))
	if g.word(in) != 0 {
		t.Error("the set was not cleared")
	}
	g.refused(syscall.EBADF, unix.SYS_SELECT, 64, g.bytes(words(1<<40)), 0, 0, 0)
	g.refused(syscall.EINVAL, unix.SYS_SELECT, ^uint64(0), 0, 0, 0, 0)
	g.refused(syscall.EFAULT, unix.SYS_SELECT, 64, 8, 0, 0, 0)
}
