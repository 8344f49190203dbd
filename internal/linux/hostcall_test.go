package linux

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// fakeHost hears calls and answers those that it is told to at once.
type fakeHost struct {
	heard     []string
	calls     []*HostCall
	cancelled int
	// answer, if set, answers a call at once.
	answer func(c *HostCall)
	full   bool
}

// listen makes a host for a guest.
func listen(g *guest, answer func(c *HostCall)) *fakeHost {
	h := &fakeHost{answer: answer}
	g.p.host.begin = func(c *HostCall) (func(), syscall.Errno) {
		if h.full {
			return nil, syscall.EAGAIN
		}
		name, request, ok := c.Take()
		if !ok {
			return nil, syscall.EFAULT
		}
		h.heard, h.calls = append(h.heard, name+" "+string(request)), append(h.calls, c)
		if h.answer != nil {
			h.answer(c)
		}
		return func() { h.cancelled++ }, 0
	}
	return h
}

// callRoom is where a call's reply goes, and how much of it.
const callRoom = 16

// hostArgs are the arguments of a call to the host and where its reply will be.
func (g *guest) hostArgs(name, request string, number uint64) (args []uint64, reply uint64) {
	reply = g.alloc(callRoom)
	iov := g.iov(g.str(name), uint64(len(name)), g.str(request), uint64(len(request)), reply, callRoom)
	return []uint64{callFD, iov, 3, number}, reply
}

// leave makes a call to the host that a signal ends before the host answers.
func (g *guest) leave(args ...uint64) {
	g.t.Helper()
	g.handle(syscall.SIGINT, 0, 0)
	g.during(g.p.Interrupt, unix.SYS_PREADV, args...)
	g.sigreturn()
	if got := g.m.regs.RAX; got != fail(syscall.EINTR) {
		g.t.Fatalf("the call gives %s", answerText(got))
	}
}

func says(reply string, failed bool) func(*HostCall) {
	return func(c *HostCall) { c.Answer([]byte(reply), failed) }
}

func TestACallToTheHostBringsItsReply(t *testing.T) {
	g := newGuest(t)
	h := listen(g, says("reply", false))
	args, reply := g.hostArgs("name", "request", 1)
	g.want(5, unix.SYS_PREADV, args...)
	if got := string(g.get(reply, 6)); got != "reply\x00" {
		t.Errorf("the guest has %q", got)
	}
	if len(h.heard) != 1 || h.heard[0] != "name request" {
		t.Errorf("the host heard %q", h.heard)
	}
	if h.cancelled != 1 || len(g.p.host.calls) != 0 {
		t.Errorf("%d cancelled, %d calls are left", h.cancelled, len(g.p.host.calls))
	}
	h.answer = says("no", true)
	g.want(hostFailed|2, unix.SYS_PREADV, args...)
	if got := string(g.get(reply, 3)); got != "nop" {
		t.Errorf("the guest has %q", got)
	}
	h.answer = func(c *HostCall) { c.Refuse(syscall.EPERM) }
	g.refused(syscall.EPERM, unix.SYS_PREADV, args...)
	if len(h.heard) != 3 {
		t.Errorf("the host heard %q", h.heard)
	}
}

func TestAReplyThatDoesNotFitIsKeptAndHeardOnce(t *testing.T) {
	g := newGuest(t)
	long := strings.Repeat("r", callRoom+1)
	h := listen(g, says(long, false))
	args, reply := g.hostArgs("n", "", 1)
	for range 2 {
		g.want(callRoom+1, unix.SYS_PREADV, args...)
	}
	if !zeros(g.get(reply, callRoom)) {
		t.Error("a part of the reply was written")
	}
	big := g.alloc(2 * callRoom)
	g.want(callRoom+1, unix.SYS_PREADV, callFD, g.iov(0, 0, 0, 0, big, 2*callRoom), 3, 1)
	if got := string(g.get(big, callRoom+1)); got != long {
		t.Errorf("the guest has %q", got)
	}
	if len(h.heard) != 1 {
		t.Errorf("the host heard %q", h.heard)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	g := newGuest(t)
	h := listen(g, func(c *HostCall) { c.Answer(make([]byte, MaxHostBytes), false) })
	args, reply := g.hostArgs("n", "", 1)
	g.want(MaxHostBytes, unix.SYS_PREADV, args...)
	h.answer = func(c *HostCall) { c.Answer(make([]byte, MaxHostBytes+1), false) }
	args[3] = 2
	const words = "the host's reply is too large"
	g.want(hostFailed|uint64(len(words)), unix.SYS_PREADV, args...)
	h.answer = func(c *HostCall) { c.Answer(bytes.Repeat([]byte("w"), MaxHostText+1), true) }
	args[3] = 3
	g.want(hostFailed|MaxHostText, unix.SYS_PREADV, args...)
	_ = reply
}

func TestCallsThatCannotBeAreRefused(t *testing.T) {
	g := newGuest(t)
	h := listen(g, says("r", false))
	buf := g.alloc(1024)
	text := g.l.Exe.Lo
	for name, c := range map[string]struct {
		e      syscall.Errno
		iov    uint64
		n      uint64
		number uint64
	}{
		"two buffers":                 {syscall.EINVAL, g.iov(buf, 1, buf, 1), 2, 1},
		"a negative number":           {syscall.EINVAL, g.iov(buf, 1, buf, 1, buf, 8), 3, 1 << 63},
		"a long name":                 {syscall.EINVAL, g.iov(buf, MaxHostName+1, buf, 1, buf, 8), 3, 1},
		"a large request":             {syscall.EMSGSIZE, g.iov(buf, 1, buf, MaxHostBytes+1, buf, 8), 3, 1},
		"a name that is not there":    {syscall.EFAULT, g.iov(8, 1, buf, 1, buf, 8), 3, 1},
		"a request that is not there": {syscall.EFAULT, g.iov(buf, 1, g.l.Stack.Hi-8, 16, buf, 8), 3, 1},
		"a reply into text":           {syscall.EFAULT, g.iov(buf, 1, buf, 1, text, 8), 3, 1},
	} {
		if got := g.call(unix.SYS_PREADV, callFD, c.iov, c.n, c.number); got != fail(c.e) {
			t.Errorf("%s: %s, want %v", name, answerText(got), c.e)
		}
	}
	if len(g.p.host.calls) != 0 {
		t.Errorf("%d calls are left", len(g.p.host.calls))
	}
	if len(h.heard) != 1 { // the one whose reply could not be written
		t.Errorf("the host heard %q", h.heard)
	}
	g.refused(syscall.EINVAL, unix.SYS_WRITE, callFD, buf, 7)
	g.refused(syscall.EFAULT, unix.SYS_WRITE, callFD, 8, 8)
	g.p.host.begin = nil
	g.refused(syscall.ENOSYS, unix.SYS_PREADV, callFD, g.iov(buf, 1, buf, 1, buf, 8), 3, 1)
}

func TestOnlyTheCallingThreadWaitsAndThatIsNoDeadlock(t *testing.T) {
	g := newGuest(t)
	deadlocks := 0
	g.p.deadlocked = func() { deadlocks++ }
	h := listen(g, nil)
	args, reply := g.hostArgs("n", "", 1)
	other := g.spawn()
	g.block(unix.SYS_PREADV, args...)
	if g.p.current.id != other {
		t.Fatalf("thread %d runs", g.p.current.id)
	}
	h.calls[0].Answer([]byte("late"), false)
	if got := g.returned(processID); got != 4 || string(g.get(reply, 4)) != "late" {
		t.Errorf("%s, %q", answerText(got), g.get(reply, 4))
	}
	// The last thread that runs waits as well: another goroutine answers.
	args, _ = g.hostArgs("n", "", 2)
	g.p.doze = func(at, ns uint64) bool {
		go func() {
			h.calls[1].Answer([]byte("x"), false)
			g.p.Look()
		}()
		return g.p.sleepUntilWoken(at, ns)
	}
	g.on(other)
	g.must(unix.SYS_EXIT)
	g.want(1, unix.SYS_PREADV, args...)
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
	// What a call waits for without the host is one.
	g.p.doze = func(uint64, uint64) bool { g.p.Stop(); return false }
	g.call(unix.SYS_PAUSE)
	if deadlocks != 1 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

func TestACallThatASignalInterruptsGoesOnWhenItIsMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		flags uint64
		want  uint64
	}{
		"interrupted": {0, fail(syscall.EINTR)},
		"restarted":   {saRestart, unix.SYS_PREADV},
	} {
		g := newGuest(t)
		h := listen(g, nil)
		g.handle(syscall.SIGINT, c.flags, 0)
		args, _ := g.hostArgs("n", "", 1)
		g.during(g.p.Interrupt, unix.SYS_PREADV, args...)
		if g.m.regs.RIP != testHandler {
			t.Fatalf("%s: the handler does not run", name)
		}
		h.answer = says("again", false)
		g.sigreturn()
		if got := g.m.regs.RAX; got != c.want {
			t.Errorf("%s: %s, want %s", name, answerText(got), answerText(c.want))
		}
		h.calls[0].Answer([]byte("first"), false)
		g.want(5, unix.SYS_PREADV, args...)
		if len(h.heard) != 1 {
			t.Errorf("%s: the host heard %q", name, h.heard)
		}
	}
}

func TestADroppedCallIsCancelledAndItsAnswerForgotten(t *testing.T) {
	g := newGuest(t)
	h := listen(g, nil)
	args, reply := g.hostArgs("n", "", 7)
	g.leave(args...)
	number := g.bytes(words(7))
	g.want(8, unix.SYS_WRITE, callFD, number, 8)
	g.want(8, unix.SYS_WRITE, callFD, number, 8)
	if h.cancelled != 1 {
		t.Errorf("cancelled %d times", h.cancelled)
	}
	h.calls[0].Answer([]byte("late"), false)
	h.answer = says("new", false)
	g.want(3, unix.SYS_PREADV, args...)
	if got := string(g.get(reply, 4)); got != "new\x00" || len(h.heard) != 2 {
		t.Errorf("the guest has %q, the host heard %q", got, h.heard)
	}
}

func TestACallWaitsUntilThereIsRoom(t *testing.T) {
	g := newGuest(t)
	h := listen(g, says("r", false))
	h.full = true
	args, _ := g.hostArgs("n", "", 1)
	g.p.doze = func(at, ns uint64) bool {
		h.full = false
		g.p.Look()
		return g.p.sleepUntilWoken(at, ns)
	}
	g.want(1, unix.SYS_PREADV, args...)
	if len(h.heard) != 1 {
		t.Errorf("the host heard %q", h.heard)
	}
	// Calls that the guest never asks about again take up room as well.
	h.answer = nil
	for i := range uint64(maxHostCalls) {
		args[3] = i + 2
		g.leave(args...)
	}
	args[3] = maxHostCalls + 2
	g.leave(args...)
	if n := len(h.heard); n != 1+maxHostCalls || len(g.p.host.calls) != maxHostCalls {
		t.Errorf("the host heard %d calls, %d are kept", n, len(g.p.host.calls))
	}
}

func TestOneOfTwoThreadsGetsTheAnswerOfTheirOneCall(t *testing.T) {
	g := newGuest(t)
	h := listen(g, nil)
	args, _ := g.hostArgs("n", "", 1)
	other, third := g.spawn(), g.spawn()
	g.block(unix.SYS_PREADV, args...)
	g.on(other)
	g.block(unix.SYS_PREADV, args...)
	g.on(third)
	h.calls[0].Answer([]byte("r"), false)
	a, b := g.returned(processID), g.returned(other)
	if a+b != 1+fail(syscall.EBUSY) {
		t.Errorf("%s and %s", answerText(a), answerText(b))
	}
}

func TestWhoWaitsWhenCallsAreDroppedHearsIt(t *testing.T) {
	g := newGuest(t)
	h := listen(g, nil)
	args, reply := g.hostArgs("n", "", 1)
	g.spawn()
	g.block(unix.SYS_PREADV, args...)
	g.p.DropHostCalls()
	h.calls[0].Answer([]byte("late"), false)
	if got := g.returned(processID); got != fail(syscall.ECANCELED) || !zeros(g.get(reply, callRoom)) {
		t.Errorf("%s, %q", answerText(got), g.get(reply, callRoom))
	}
	if h.cancelled != 1 {
		t.Errorf("cancelled %d times", h.cancelled)
	}
}

func TestARestoredProcessHasNoCalls(t *testing.T) {
	g, s := parked(t)
	h := listen(g, nil)
	g.p.Resume(nil, nil, 0)
	args, _ := g.hostArgs("n", "", 1)
	g.leave(args...)
	g.park(8, 8, 0)
	if _, err := g.p.Save(); err == nil {
		t.Error("a process that calls the host was saved")
	}
	if err := g.restore(copyOf(t, s), testMemory); err != nil {
		t.Fatal(err)
	}
	if len(g.p.host.calls) != 0 || h.cancelled != 1 {
		t.Errorf("%d calls, %d cancelled", len(g.p.host.calls), h.cancelled)
	}
}

func TestLookInterruptsOnlyAMachineThatRuns(t *testing.T) {
	g := newGuest(t)
	g.p.Look()
	if g.m.interrupted.Load() {
		t.Error("a process that does not run was interrupted")
	}
	g.p.Clear()
	g.run(func(m *fakeMachine) platform.Exit {
		g.p.Look()
		if !m.interrupted.Load() {
			t.Error("the machine runs on")
		}
		return platform.Exit{Kind: platform.Interrupted}
	})
	// One that comes just before the machine runs is not lost.
	tick := false
	g.spawn()
	g.p.tickIn = func(time.Duration) {
		g.p.tickIn = func(time.Duration) {}
		g.p.Look()
	}
	g.run(func(*fakeMachine) platform.Exit {
		tick = g.p.ctl.tick.Load()
		return platform.Exit{Kind: platform.Interrupted}
	})
	if tick {
		t.Error("the machine ran without a look")
	}
}
