package linux

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func (g *guest) epoll() uint64 { return g.must(unix.SYS_EPOLL_CREATE1, syscall.O_CLOEXEC) }

// event puts a struct epoll_event into guest memory.
func (g *guest) event(events uint32, data uint64) uint64 {
	return g.bytes(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, events), data))
}

// watch registers a descriptor, with its number as data.
func (g *guest) watch(ep, fd uint64, events uint32) {
	g.t.Helper()
	g.want(0, unix.SYS_EPOLL_CTL, ep, epollAdd, fd, g.event(events, fd))
}

// ready gives the events that there are now, by data.
func (g *guest) ready(ep uint64) map[uint64]uint32 {
	g.t.Helper()
	const most = 8
	buf := g.alloc(most * epollEventSize)
	got := map[uint64]uint32{}
	for i := range g.must(unix.SYS_EPOLL_WAIT, ep, buf, most, 0) {
		b := g.get(buf+i*epollEventSize, epollEventSize)
		got[binary.LittleEndian.Uint64(b[4:])] = binary.LittleEndian.Uint32(b)
	}
	return got
}

// wantReady sees to it that fd is the only one with events, zero for none.
func (g *guest) wantReady(ep, fd uint64, want uint32) {
	g.t.Helper()
	got := g.ready(ep)
	if got[fd] != want || want == 0 && len(got) != 0 || want != 0 && len(got) != 1 {
		g.t.Errorf("ready are %#v, want %d: %#x", got, fd, want)
	}
}

func TestEpollTellsALevelAsLongAsItHolds(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	r, w := g.pipe(0)
	g.watch(ep, r, pollIn)
	g.wantReady(ep, r, 0)
	g.wantEvents(ep, 0)
	g.send(w, "ab")
	g.wantReady(ep, r, pollIn)
	g.wantEvents(ep, pollReadable)
	g.recv(r, 1)
	g.wantReady(ep, r, pollIn)
	g.recv(r, 1)
	g.wantReady(ep, r, 0)
	g.want(0, unix.SYS_CLOSE, w)
	g.wantReady(ep, r, pollHup)
	g.want(0, unix.SYS_EPOLL_CTL, ep, epollDel, r, 0)
	g.wantReady(ep, r, 0)
	g.wantEmpty()
}

func TestEpollTellsAnEdgeOnce(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	a, b := g.socketpair(syscall.SOCK_STREAM)
	g.watch(ep, a, pollIn|pollOut|epollEdge)
	g.wantReady(ep, a, pollOut)
	g.wantReady(ep, a, 0)
	g.send(b, "x")
	g.wantReady(ep, a, pollIn|pollOut)
	g.wantReady(ep, a, 0)
	g.send(b, "y") // more is news, although the level is the same
	g.wantReady(ep, a, pollIn|pollOut)
	g.recv(a, 1)
	g.wantReady(ep, a, 0)
	g.want(0, unix.SYS_SHUTDOWN, b, syscall.SHUT_WR)
	g.wantReady(ep, a, pollIn|pollOut)
	g.want(0, unix.SYS_EPOLL_CTL, ep, epollMod, a, g.event(pollIn|pollRdHup|epollEdge, a))
	g.wantReady(ep, a, pollIn|pollRdHup)
	g.wantReady(ep, a, 0)

	e := g.must(unix.SYS_EVENTFD2, 0, 0)
	ep = g.epoll()
	g.watch(ep, e, pollIn|epollEdge)
	for range 2 { // as a waker does that never reads
		g.want(8, unix.SYS_WRITE, e, g.bytes(words(1)), 8)
		g.wantReady(ep, e, pollIn)
		g.wantReady(ep, e, 0)
	}
}

func TestEpollTellsRoomAsAnEdge(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	r, w := g.pipe(syscall.O_NONBLOCK)
	buf := g.alloc(pipeSize)
	g.want(pipeSize, unix.SYS_WRITE, w, buf, pipeSize)
	g.watch(ep, w, pollOut|epollEdge)
	g.wantReady(ep, w, 0)
	g.want(pipeSize, unix.SYS_READ, r, buf, pipeSize)
	g.wantReady(ep, w, pollOut)
	g.wantReady(ep, w, 0)
	g.want(0, unix.SYS_CLOSE, r)
	g.wantReady(ep, w, pollOut|pollErr)
}

func TestEpollOneshotIsDisabledUntilItIsChanged(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	r, w := g.pipe(0)
	g.watch(ep, r, pollIn|epollOneshot)
	g.send(w, "x")
	g.wantReady(ep, r, pollIn)
	g.send(w, "y")
	g.wantReady(ep, r, 0)
	g.want(0, unix.SYS_EPOLL_CTL, ep, epollMod, r, g.event(pollIn|epollOneshot, r))
	g.wantReady(ep, r, pollIn)
}

func TestEpollForgetsWhatIsClosed(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	r, w := g.pipe(0)
	g.send(w, "x")
	g.watch(ep, r, pollIn)
	dup := g.must(unix.SYS_DUP, r)
	g.want(0, unix.SYS_CLOSE, r)
	g.wantReady(ep, r, pollIn) // the open file lives on
	r2, w2 := g.pipe(0)
	if r2 != r {
		t.Fatalf("descriptor %d, not %d", r2, r)
	}
	g.watch(ep, r2, pollIn) // another file under the same number
	g.want(0, unix.SYS_CLOSE, dup)
	g.wantReady(ep, r, 0)
	g.send(w2, "y")
	g.wantReady(ep, r2, pollIn)
	g.wantEmpty()
}

func TestEpollRefuses(t *testing.T) {
	g := newGuest(t)
	ep, other := g.epoll(), g.epoll()
	r, _ := g.pipe(0)
	file := g.open("/tmp/file", syscall.O_CREAT|syscall.O_RDWR)
	ev := g.event(pollIn, 0)
	g.watch(ep, r, pollIn|epollExclusive)
	for _, c := range []struct {
		e  syscall.Errno
		nr uint64
		a  []uint64
	}{
		{syscall.EPERM, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, file, ev}},
		{syscall.EPERM, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, 0, ev}},
		{syscall.ELOOP, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, other, ev}},
		{syscall.EINVAL, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, ep, ev}},
		{syscall.EINVAL, unix.SYS_EPOLL_CTL, []uint64{r, epollAdd, r + 1, ev}},
		{syscall.EBADF, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, 77, ev}},
		{syscall.EBADF, unix.SYS_EPOLL_CTL, []uint64{77, epollAdd, r, ev}},
		{syscall.EFAULT, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, r, 8}},
		{syscall.EEXIST, unix.SYS_EPOLL_CTL, []uint64{ep, epollAdd, r, ev}},
		{syscall.EINVAL, unix.SYS_EPOLL_CTL, []uint64{ep, epollMod, r, ev}},
		{syscall.EINVAL, unix.SYS_EPOLL_CTL, []uint64{ep, 9, r, ev}},
		{syscall.ENOENT, unix.SYS_EPOLL_CTL, []uint64{ep, epollDel, r + 1, ev}},
		{syscall.EINVAL, unix.SYS_EPOLL_WAIT, []uint64{ep, ev, 0, 0}},
		{syscall.EINVAL, unix.SYS_EPOLL_WAIT, []uint64{ep, ev, 1 << 31, 0}},
		{syscall.EINVAL, unix.SYS_EPOLL_WAIT, []uint64{r, ev, 1, 0}},
		{syscall.EBADF, unix.SYS_EPOLL_WAIT, []uint64{77, ev, 1, 0}},
		{syscall.EINVAL, unix.SYS_EPOLL_PWAIT, []uint64{ep, ev, 1, 0, ev, 4}},
		{syscall.EINVAL, unix.SYS_EPOLL_CREATE, []uint64{0}},
		{syscall.EINVAL, unix.SYS_EPOLL_CREATE1, []uint64{1}},
		{syscall.EINVAL, unix.SYS_READ, []uint64{ep, ev, 8}},
	} {
		g.refused(c.e, c.nr, c.a...)
	}
	g.wantEmpty()
}

func TestEpollGivesEverybodyATurn(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	for range 5 {
		g.watch(ep, g.must(unix.SYS_EVENTFD2, 1, 0), pollIn)
	}
	buf, seen := g.alloc(2*epollEventSize), map[uint64]bool{}
	for range 5 {
		g.want(2, unix.SYS_EPOLL_WAIT, ep, buf, 2, 0)
		seen[g.word(buf+4)], seen[g.word(buf+epollEventSize+4)] = true, true
	}
	if len(seen) != 5 {
		t.Errorf("seen are %v", seen)
	}
}

func TestEpollKeepsAnEventThatCannotBeTold(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	e := g.must(unix.SYS_EVENTFD2, 1, 0)
	g.watch(ep, e, pollIn|epollEdge)
	g.refused(syscall.EFAULT, unix.SYS_EPOLL_WAIT, ep, 8, 1, 0)
	g.wantReady(ep, e, pollIn)
}

func TestEpollWaits(t *testing.T) {
	g := newGuest(t)
	ep := g.epoll()
	r, w := g.pipe(0)
	g.watch(ep, r, pollIn)
	buf := g.alloc(epollEventSize)
	g.p.doze = func(uint64, uint64) bool { return true }
	g.want(0, unix.SYS_EPOLL_WAIT, ep, buf, 1, 5)
	g.want(0, unix.SYS_EPOLL_PWAIT2, ep, buf, 1, g.bytes(words(0, 1e6)), 0)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_EPOLL_WAIT, ep, buf, 1, ^uint64(0))
	g.send(w, "x")
	if got := g.returned(a); got != 1 || g.word(buf+4) != r {
		t.Errorf("the wait returned %s", answerText(got))
	}
}

func TestRegistrationsAreBounded(t *testing.T) {
	g := newGuest(t)
	e := g.must(unix.SYS_EVENTFD2, 0, 0)
	ev := g.event(pollIn, 0)
	full := uint64(0)
	for full == 0 {
		ep := g.epoll()
		for fd := uint64(100); fd < 1000 && full == 0; fd++ {
			if g.p.fds.get(fd) == nil {
				g.must(unix.SYS_DUP2, e, fd)
			}
			full = g.call(unix.SYS_EPOLL_CTL, ep, epollAdd, fd, ev)
		}
	}
	if full != fail(syscall.ENOSPC) || g.p.fds.watches != maxAllWatches {
		t.Errorf("%s with %d registrations", answerText(full), g.p.fds.watches)
	}
	g.wantEmpty()
}
