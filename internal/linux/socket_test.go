package linux

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// socketpair makes two connected sockets.
func (g *guest) socketpair(kind uint64) (a, b uint64) {
	g.t.Helper()
	out := g.alloc(8)
	g.want(0, unix.SYS_SOCKETPAIR, syscall.AF_UNIX, kind, 0, out)
	return g.fds(out)
}

// option gives a socket option that is a number.
func (g *guest) option(fd, level, name uint64) int {
	g.t.Helper()
	at := g.bytes(words(0, 4))
	g.want(0, unix.SYS_GETSOCKOPT, fd, level, name, at, at+8)
	return int(int32(binary.LittleEndian.Uint32(g.get(at, 4))))
}

func TestASocketpairCarriesBytesBothWays(t *testing.T) {
	for _, kind := range []uint64{syscall.SOCK_STREAM, syscall.SOCK_SEQPACKET, syscall.SOCK_DGRAM} {
		g := newGuest(t)
		a, b := g.socketpair(kind | syscall.SOCK_NONBLOCK)
		g.wantEvents(a, pollWritable)
		g.send(a, "ping")
		g.send(b, "pong")
		g.wantEvents(a, pollReadable|pollWritable)
		if got := g.recv(a, 100) + g.recv(b, 100); got != "pongping" {
			t.Errorf("kind %d: got %q", kind, got)
		}
		g.refused(syscall.EAGAIN, unix.SYS_READ, a, g.alloc(1), 1)
		if got := g.option(a, syscall.SOL_SOCKET, syscall.SO_TYPE); got != int(kind) {
			t.Errorf("kind %d is told to be %d", kind, got)
		}
		g.wantEmpty()
	}
}

func TestMessagesStayApart(t *testing.T) {
	for _, kind := range []uint64{syscall.SOCK_SEQPACKET, syscall.SOCK_DGRAM} {
		g := newGuest(t)
		a, b := g.socketpair(kind | syscall.SOCK_NONBLOCK)
		buf := g.alloc(16)
		g.want(6, unix.SYS_WRITEV, a, g.iov(g.str("one"), 3, g.str("two"), 3), 2)
		g.send(a, "")
		g.send(a, "longer")
		if got := g.recv(b, 16); got != "onetwo" {
			t.Errorf("kind %d: got %q", kind, got)
		}
		g.want(0, unix.SYS_READ, b, buf, 16)
		g.want(6, unix.SYS_RECVFROM, b, buf, 2, syscall.MSG_PEEK|syscall.MSG_TRUNC, 0, 0)
		g.want(2, unix.SYS_RECVFROM, b, buf, 2, 0, 0, 0)
		g.refused(syscall.EAGAIN, unix.SYS_READ, b, buf, 16) // the rest is gone
		big := g.must(unix.SYS_MMAP, 0, 1<<20, 3, 0x22, ^uint64(0), 0)
		g.refused(syscall.EMSGSIZE, unix.SYS_WRITE, a, big, 1<<20)
		g.want(sendBuffer, unix.SYS_WRITE, a, big, sendBuffer)
		g.refused(syscall.EAGAIN, unix.SYS_WRITE, a, big, 1)
		g.wantEmpty()
	}
}

func TestTheNumberOfMessagesIsBounded(t *testing.T) {
	g := newGuest(t)
	a, b := g.socketpair(syscall.SOCK_DGRAM | syscall.SOCK_NONBLOCK)
	for range maxMessages {
		g.send(a, "")
	}
	g.refused(syscall.EAGAIN, unix.SYS_WRITE, a, g.alloc(1), 1)
	g.wantEvents(a, 0)
	g.recv(b, 1)
	g.wantEvents(a, pollWritable)
	g.wantEmpty()
}

func TestTheEndOfAStreamIsSeen(t *testing.T) {
	g := newGuest(t)
	a, b := g.socketpair(syscall.SOCK_STREAM)
	buf := g.alloc(8)
	g.send(a, "last")
	g.want(0, unix.SYS_SHUTDOWN, a, syscall.SHUT_WR)
	g.wantEvents(b, pollReadable|pollWritable|pollRdHup)
	if got := g.recv(b, 8); got != "last" {
		t.Errorf("got %q", got)
	}
	g.want(0, unix.SYS_READ, b, buf, 8)
	g.refused(syscall.EPIPE, unix.SYS_SENDTO, a, buf, 1, syscall.MSG_NOSIGNAL)
	g.send(b, "x") // the other way is open
	g.want(0, unix.SYS_CLOSE, a)
	g.wantEvents(b, pollReadable|pollWritable|pollRdHup|pollHup|pollErr)
	// What a had not read is lost, and b hears of it.
	if got := g.option(b, syscall.SOL_SOCKET, syscall.SO_ERROR); got != int(syscall.ECONNRESET) {
		t.Errorf("the error is %d", got)
	}
	g.wantEvents(b, pollReadable|pollWritable|pollRdHup|pollHup)
	g.want(0, unix.SYS_READ, b, buf, 8)
}

func TestAClosedPeerIsSeen(t *testing.T) {
	g := newGuest(t)
	a, b := g.socketpair(syscall.SOCK_STREAM)
	buf := g.alloc(8)
	g.want(0, unix.SYS_CLOSE, a)
	g.want(0, unix.SYS_READ, b, buf, 8)
	g.refused(syscall.EPIPE, unix.SYS_SENDTO, b, buf, 1, syscall.MSG_NOSIGNAL)
	if out := g.run(call(unix.SYS_WRITE, b, buf, 1)); out.Kind != Killed || out.Signal != syscall.SIGPIPE {
		t.Errorf("the run ended with %+v", out)
	}
	g = newGuest(t)
	a, b = g.socketpair(syscall.SOCK_DGRAM)
	g.want(0, unix.SYS_CLOSE, a)
	g.refused(syscall.ECONNREFUSED, unix.SYS_WRITE, b, g.alloc(1), 1)
}

func TestRecvWaitsForAllOrForTheEnd(t *testing.T) {
	g := newGuest(t)
	x, y := g.socketpair(syscall.SOCK_STREAM)
	buf := g.alloc(8)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_RECVFROM, x, buf, 8, syscall.MSG_WAITALL, 0, 0)
	g.send(y, "abc")
	g.run(call(unix.SYS_SCHED_YIELD))
	if g.p.current.id != processID {
		t.Fatal("three bytes of eight were enough")
	}
	g.send(y, "defgh")
	if got := g.returned(a); got != 8 || string(g.get(buf, 8)) != "abcdefgh" {
		t.Errorf("got %s", answerText(got))
	}
	g.block(unix.SYS_RECVFROM, x, buf, 8, syscall.MSG_WAITALL, 0, 0)
	g.send(y, "xy")
	g.want(0, unix.SYS_CLOSE, y)
	if got := g.returned(a); got != 2 {
		t.Errorf("at the end: %s", answerText(got))
	}
	g.want(0, unix.SYS_RECVFROM, x, buf, 8, syscall.MSG_WAITALL|syscall.MSG_DONTWAIT, 0, 0)
}

func TestAReceiveTimeLimitEndsInEAGAIN(t *testing.T) {
	g := newGuest(t)
	x, y := g.socketpair(syscall.SOCK_STREAM)
	g.p.doze = func(uint64, uint64) bool { return true }
	g.want(0, unix.SYS_SETSOCKOPT, x, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, g.bytes(words(0, 5000)), 16)
	buf := g.alloc(16)
	g.want(0, unix.SYS_GETSOCKOPT, x, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, buf, g.bytes(words(16)))
	if g.word(buf+8) != 5000 {
		t.Errorf("the limit is %d us", g.word(buf+8))
	}
	g.refused(syscall.EAGAIN, unix.SYS_READ, x, buf, 8)
	g.send(y, "part")
	g.want(4, unix.SYS_RECVFROM, x, buf, 8, syscall.MSG_WAITALL, 0, 0)
}

func TestASendBufferFillsUpAndEmpties(t *testing.T) {
	g := newGuest(t)
	a, b := g.socketpair(syscall.SOCK_STREAM | syscall.SOCK_NONBLOCK)
	g.want(0, unix.SYS_SETSOCKOPT, a, syscall.SOL_SOCKET, syscall.SO_SNDBUF, g.bytes(words(4096)), 4)
	if got := g.option(a, syscall.SOL_SOCKET, syscall.SO_SNDBUF); got != 8192 {
		t.Errorf("send buffer %d", got)
	}
	buf, n := g.alloc(10_000), g.alloc(4)
	g.want(8192, unix.SYS_WRITE, a, buf, 10_000)
	g.refused(syscall.EAGAIN, unix.SYS_WRITE, a, buf, 1)
	g.wantEvents(a, 0)
	g.want(0, unix.SYS_IOCTL, b, ioUnread, n)
	if got := binary.LittleEndian.Uint32(g.get(n, 4)); got != 8192 {
		t.Errorf("%d bytes to read", got)
	}
	g.want(5000, unix.SYS_RECVFROM, b, buf, 5000, syscall.MSG_PEEK, 0, 0)
	g.wantEvents(a, 0)
	g.want(8192, unix.SYS_READ, b, buf, 10_000)
	g.wantEvents(a, pollWritable)
	g.wantEmpty()
}

func TestNothingIsLostWhenTheBufferIsBad(t *testing.T) {
	g := newGuest(t)
	for _, kind := range []uint64{syscall.SOCK_STREAM, syscall.SOCK_DGRAM} {
		a, b := g.socketpair(kind | syscall.SOCK_NONBLOCK)
		g.refused(syscall.EFAULT, unix.SYS_WRITE, a, 8, 4)
		g.send(a, "kept")
		g.refused(syscall.EFAULT, unix.SYS_READ, b, 8, 4)
		if got := g.recv(b, 10); got != "kept" {
			t.Errorf("got %q", got)
		}
	}
	g.wantEmpty()
}

// message makes a struct msghdr.
func (g *guest) message(name, nameSize, iov, count, control, controlSize uint64) uint64 {
	return g.bytes(words(name, nameSize, iov, count, control, controlSize, 0))
}

func TestMessagesWithHeaders(t *testing.T) {
	g := newGuest(t)
	a, b := g.socketpair(syscall.SOCK_DGRAM | syscall.SOCK_NONBLOCK)
	g.want(6, unix.SYS_SENDMSG, a, g.message(0, 0, g.iov(g.str("one"), 3, g.str("two"), 3), 2, 0, 0), 0)
	buf, name := g.alloc(16), g.alloc(16)
	m := g.message(name, 16, g.iov(buf, 2, buf+2, 2), 2, buf, 16)
	g.want(4, unix.SYS_RECVMSG, b, m, 0)
	if string(g.get(buf, 4)) != "onet" || g.word(m+48) != syscall.MSG_TRUNC || g.word(m+40) != 0 || g.word(m+8) != 0 {
		t.Errorf("got %q, header % x", g.get(buf, 4), g.get(m, 56))
	}
	g.refused(syscall.EINVAL, unix.SYS_SENDMSG, a, g.message(0, 0, g.iov(buf, 1), 1, buf, 16), 0)
	g.refused(syscall.EMSGSIZE, unix.SYS_SENDMSG, a, g.message(0, 0, buf, maxIOV+1, 0, 0), 0)
	g.refused(syscall.EFAULT, unix.SYS_SENDMSG, a, 8, 0)
	g.refused(syscall.EFAULT, unix.SYS_RECVMSG, b, 8, 0)
	g.refused(syscall.EOPNOTSUPP, unix.SYS_SENDTO, a, buf, 1, syscall.MSG_OOB)
	g.wantEmpty()
}

func TestSocketsThatAreNotOffered(t *testing.T) {
	g := newGuest(t)
	out := g.alloc(8)
	for _, c := range []struct {
		e syscall.Errno
		a []uint64
	}{
		{syscall.EPERM, []uint64{unix.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_DGRAM, 0}},
		{syscall.EPERM, []uint64{unix.SYS_SOCKET, syscall.AF_INET6, syscall.SOCK_RAW, 1}},
		{syscall.EPERM, []uint64{unix.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW, 0}},
		{syscall.EPERM, []uint64{unix.SYS_SOCKET, syscall.AF_PACKET, syscall.SOCK_RAW, 0}},
		{syscall.EPERM, []uint64{unix.SYS_SOCKET, 40, syscall.SOCK_STREAM, 0}}, // AF_VSOCK
		{syscall.EPROTONOSUPPORT, []uint64{unix.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_STREAM, 132}},
		{syscall.EINVAL, []uint64{unix.SYS_SOCKET, syscall.AF_UNIX, 0, 0}},
		{syscall.ESOCKTNOSUPPORT, []uint64{unix.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_RAW, 0}},
		{syscall.EOPNOTSUPP, []uint64{unix.SYS_SOCKETPAIR, syscall.AF_INET, syscall.SOCK_STREAM, 0, out}},
		{syscall.EFAULT, []uint64{unix.SYS_SOCKETPAIR, syscall.AF_UNIX, syscall.SOCK_STREAM, 0, 8}},
		{syscall.ENOTSOCK, []uint64{unix.SYS_SHUTDOWN, 1, 0}},
		{syscall.EBADF, []uint64{unix.SYS_SENDTO, 77, out, 1}},
		{syscall.ENOSYS, []uint64{unix.SYS_SENDMMSG, 1, out, 1}},
	} {
		g.refused(c.e, c.a[0], c.a[1:]...)
	}
	if g.p.fds.used != 3 {
		t.Errorf("%d descriptors are open", g.p.fds.used)
	}
}

func TestSocketOptions(t *testing.T) {
	g := newGuest(t)
	u, _ := g.socketpair(syscall.SOCK_STREAM)
	tcp := g.must(unix.SYS_SOCKET, syscall.AF_INET6, syscall.SOCK_STREAM, 0)
	one := g.bytes(words(1))
	for _, o := range []option{{syscall.SOL_SOCKET, syscall.SO_REUSEADDR}, {syscall.IPPROTO_TCP, syscall.TCP_NODELAY}} {
		g.want(0, unix.SYS_SETSOCKOPT, tcp, uint64(o.level), uint64(o.name), one, 4)
		if g.option(tcp, uint64(o.level), uint64(o.name)) != 1 {
			t.Errorf("option %v was forgotten", o)
		}
	}
	g.refused(syscall.ENOPROTOOPT, unix.SYS_SETSOCKOPT, u, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, one, 4)
	g.refused(syscall.EINVAL, unix.SYS_SETSOCKOPT, u, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, one, 3)
	g.refused(syscall.EINVAL, unix.SYS_SETSOCKOPT, tcp, syscall.IPPROTO_IPV6, v6Only, g.bytes(words(0)), 4)
	g.refused(syscall.ENOPROTOOPT, unix.SYS_GETSOCKOPT, u, syscall.SOL_SOCKET, 25, one, one) // SO_BINDTODEVICE
	if d, p := g.option(tcp, syscall.SOL_SOCKET, soDomain), g.option(tcp, syscall.SOL_SOCKET, soProtocol); d != syscall.AF_INET6 || p != syscall.IPPROTO_TCP {
		t.Errorf("domain %d, protocol %d", d, p)
	}
	if g.option(u, syscall.SOL_SOCKET, soPeercred) != processID {
		t.Error("the peer is another process")
	}
}

func TestAWaitKeepsItsFileOpen(t *testing.T) {
	g := newGuest(t)
	x, y := g.socketpair(syscall.SOCK_STREAM)
	buf := g.alloc(8)
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_READ, x, buf, 8)
	g.want(0, unix.SYS_CLOSE, x)
	g.send(y, "still")
	if got := g.returned(a); got != 5 {
		t.Errorf("the read returned %s", answerText(got))
	}
	g.run(func(*fakeMachine) platform.Exit { return platform.Exit{Kind: platform.Interrupted} })
	g.on(processID)
	g.refused(syscall.EPIPE, unix.SYS_SENDTO, y, g.str(strings.Repeat("x", 8)), 8, syscall.MSG_NOSIGNAL)
	g.wantEmpty()
}
