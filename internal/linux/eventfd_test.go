package linux

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAnEventfdCounts(t *testing.T) {
	g := newGuest(t)
	fd := g.must(unix.SYS_EVENTFD2, 3, syscall.O_NONBLOCK)
	buf := g.alloc(16)
	g.wantEvents(fd, pollReadable|pollWritable)
	g.want(8, unix.SYS_READ, fd, buf, 16)
	if got := g.word(buf); got != 3 {
		t.Errorf("counted %d", got)
	}
	g.wantEvents(fd, pollWritable)
	g.refused(syscall.EAGAIN, unix.SYS_READ, fd, buf, 8)
	g.refused(syscall.EINVAL, unix.SYS_READ, fd, buf, 7)
	g.refused(syscall.EINVAL, unix.SYS_WRITE, fd, buf, 7)
	g.refused(syscall.EINVAL, unix.SYS_WRITE, fd, g.bytes(words(^uint64(0))), 8)
	g.want(8, unix.SYS_WRITE, fd, g.bytes(words(5, 9)), 16)
	g.want(8, unix.SYS_WRITE, fd, g.bytes(words(maxCounter-5)), 8)
	g.wantEvents(fd, pollReadable)
	g.refused(syscall.EAGAIN, unix.SYS_WRITE, fd, g.bytes(words(1)), 8)
	g.want(8, unix.SYS_READ, fd, buf, 8)
	if got := g.word(buf); got != maxCounter {
		t.Errorf("counted %d", got)
	}
	g.refused(syscall.EINVAL, unix.SYS_EVENTFD2, 0, 2)
}

func TestASemaphoreIsTakenOneByOne(t *testing.T) {
	g := newGuest(t)
	fd := g.must(unix.SYS_EVENTFD2, 2, eventSemaphore|syscall.O_NONBLOCK)
	buf := g.alloc(8)
	for range 2 {
		g.want(8, unix.SYS_READ, fd, buf, 8)
		if got := g.word(buf); got != 1 {
			t.Errorf("took %d", got)
		}
	}
	g.refused(syscall.EAGAIN, unix.SYS_READ, fd, buf, 8)
}

func TestAnEventWakesAPoll(t *testing.T) {
	g := newGuest(t)
	fd := g.must(unix.SYS_EVENTFD, 0)
	set := g.bytes([]byte{byte(fd), 0, 0, 0, pollIn, 0, 0, 0})
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_POLL, set, 1, ^uint64(0))
	g.want(8, unix.SYS_WRITE, fd, g.bytes(words(1)), 8)
	if got := g.returned(a); got != 1 || g.get(set+6, 1)[0] != pollIn {
		t.Errorf("poll returned %s", answerText(got))
	}
}

// timer makes a timer that is set, in nanoseconds.
func (g *guest) timer(flags, interval, value uint64) uint64 {
	g.t.Helper()
	fd := g.must(unix.SYS_TIMERFD_CREATE, clockMonotonic, flags)
	g.want(0, unix.SYS_TIMERFD_SETTIME, fd, 0, g.bytes(append(timespec(interval), timespec(value)...)), 0)
	return fd
}

func TestATimerfdExpires(t *testing.T) {
	g := newGuest(t)
	fd := g.timer(syscall.O_NONBLOCK, 10e6, 50e6)
	buf := g.alloc(32)
	g.wantEvents(fd, 0)
	g.refused(syscall.EAGAIN, unix.SYS_READ, fd, buf, 8)
	g.want(0, unix.SYS_TIMERFD_GETTIME, fd, buf)
	if interval, left := g.word(buf+8), g.word(buf+24); interval != 10e6 || left != 50e6 {
		t.Errorf("interval %d, left %d", interval, left)
	}
	g.m.mono += 75e6
	g.wantEvents(fd, pollReadable)
	g.want(8, unix.SYS_READ, fd, buf, 8)
	if got := g.word(buf); got != 3 {
		t.Errorf("expired %d times", got)
	}
	stop := g.bytes(make([]byte, 32))
	g.want(0, unix.SYS_TIMERFD_SETTIME, fd, 0, stop, buf)
	if left := g.word(buf + 24); left != 5e6 {
		t.Errorf("left %d", left)
	}
	g.m.mono += 1e9
	g.refused(syscall.EAGAIN, unix.SYS_READ, fd, buf, 8)
	g.refused(syscall.EINVAL, unix.SYS_WRITE, fd, buf, 8)
	g.refused(syscall.EINVAL, unix.SYS_TIMERFD_CREATE, clockProcessCPU, 0)
	g.refused(syscall.EINVAL, unix.SYS_TIMERFD_GETTIME, 1, buf)
	g.wantEmpty()
}

func TestAThreadThatWaitsForATimerSleepsUntilThen(t *testing.T) {
	g := newGuest(t)
	fd := g.timer(0, 0, 7e6)
	g.p.deadlocked = func() { t.Error("a deadlock was told") }
	before := g.m.mono
	g.p.doze = func(at, _ uint64) bool {
		g.m.mono = at
		return true
	}
	buf := g.alloc(8)
	g.want(8, unix.SYS_READ, fd, buf, 8)
	if g.m.mono-before != 7e6 || g.word(buf) != 1 {
		t.Errorf("slept %d ns, expired %d times", g.m.mono-before, g.word(buf))
	}
}

func TestATimerThatIsWatchedForEdgesNeedNotBeRead(t *testing.T) {
	g := newGuest(t)
	fd, ep := g.timer(0, 1e6, 1e6), g.epoll()
	g.watch(ep, fd, pollIn|epollEdge)
	g.p.deadlocked = func() { t.Error("a deadlock was told") }
	g.p.doze = func(at, _ uint64) bool {
		if at == never {
			g.p.Stop()
			return false
		}
		g.m.mono = at
		return true
	}
	buf := g.alloc(epollEventSize)
	for range 3 {
		g.want(1, unix.SYS_EPOLL_WAIT, ep, buf, 1, ^uint64(0))
	}
}

func TestATimerOfTheWallClockIsToldAnAbsoluteTime(t *testing.T) {
	g := newGuest(t)
	fd := g.must(unix.SYS_TIMERFD_CREATE, clockRealtime, syscall.O_NONBLOCK)
	at := g.m.real + 2e9
	g.want(0, unix.SYS_TIMERFD_SETTIME, fd, timerFileAbstime, g.bytes(append(timespec(0), timespec(at)...)), 0)
	g.m.mono += 2e9 - 1
	g.wantEvents(fd, 0)
	g.m.mono++
	g.wantEvents(fd, pollReadable)
}

func TestAMemfdIsAFileWithoutAName(t *testing.T) {
	g := newGuest(t)
	fd := g.must(unix.SYS_MEMFD_CREATE, g.str("name"), memfdCloexec)
	g.send(fd, "content")
	st := g.alloc(144)
	g.want(0, unix.SYS_FSTAT, fd, st)
	if g.word(st+48) != 7 || binary.LittleEndian.Uint32(g.get(st+24, 4))&syscall.S_IFMT != syscall.S_IFREG {
		t.Error("it is no file of seven bytes")
	}
	g.want(0, unix.SYS_LSEEK, fd, 0, 0)
	if got := g.recv(fd, 20); got != "content" {
		t.Errorf("read %q", got)
	}
	g.want(0, unix.SYS_CLOSE, fd)
	if _, err := g.p.fs.Export(); err != nil {
		t.Error(err)
	}
	g.refused(syscall.EINVAL, unix.SYS_MEMFD_CREATE, g.str("x"), 4)
	g.refused(syscall.EFAULT, unix.SYS_MEMFD_CREATE, 8, 0)
}
