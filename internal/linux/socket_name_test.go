package linux

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func (g *guest) socket(family, kind uint64) uint64 {
	g.t.Helper()
	return g.must(unix.SYS_SOCKET, family, kind, 0)
}

// sockaddr puts a name into guest memory: a path, an abstract name that begins
// with @, or an address and a port.
func (g *guest) sockaddr(name string) (addr, n uint64) {
	g.t.Helper()
	b := address{unix: name}.encode()
	if ap, err := netip.ParseAddrPort(name); err == nil {
		b = address{inet: ap}.encode()
	} else if name[0] == '@' {
		b = address{unix: "\x00" + name[1:]}.encode()
	}
	return g.bytes(b), uint64(len(b))
}

// nameOf gives what getsockname or getpeername says, as sockaddr takes it.
func (g *guest) nameOf(nr, fd uint64) string {
	g.t.Helper()
	out := g.bytes(make([]byte, maxSockaddr))
	size := g.bytes(words(maxSockaddr))
	g.want(0, nr, fd, out, size)
	b := g.get(out, int(binary.LittleEndian.Uint32(g.get(size, 4))))
	switch binary.LittleEndian.Uint16(b) {
	case syscall.AF_INET:
		ip, _ := netip.AddrFromSlice(b[4:8])
		return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:])).String()
	case syscall.AF_INET6:
		ip, _ := netip.AddrFromSlice(b[8:24])
		return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:])).String()
	}
	if b = b[2:]; len(b) > 0 && b[0] == 0 {
		return "@" + string(b[1:])
	}
	return string(b)
}

// on2 executes a call with a name as its last two arguments.
func (g *guest) withName(nr, fd uint64, name string) uint64 {
	g.t.Helper()
	addr, n := g.sockaddr(name)
	return g.call(nr, fd, addr, n)
}

// listen makes a socket that waits for connections.
func (g *guest) listen(family, kind uint64, name string) uint64 {
	g.t.Helper()
	l := g.socket(family, kind)
	if ret := g.withName(unix.SYS_BIND, l, name); ret != 0 {
		g.t.Fatalf("bind to %s: %s", name, answerText(ret))
	}
	g.want(0, unix.SYS_LISTEN, l, 5)
	return l
}

func TestConnectionsInsideTheGuest(t *testing.T) {
	for _, c := range []struct {
		family, kind        uint64
		bind, connect, peer string
	}{
		{syscall.AF_UNIX, syscall.SOCK_STREAM, "@name", "@name", "@name"},
		{syscall.AF_UNIX, syscall.SOCK_SEQPACKET, "@name", "@name", "@name"},
		{syscall.AF_UNIX, syscall.SOCK_STREAM, "/tmp/sock", "/tmp/../tmp/sock", "/tmp/sock\x00"},
		{syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:8000", "127.0.0.1:8000", "127.0.0.1:8000"},
		{syscall.AF_INET, syscall.SOCK_STREAM, "0.0.0.0:8000", "127.0.0.1:8000", "127.0.0.1:8000"},
		{syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:0", "127.0.0.1:32768", "127.0.0.1:32768"},
		{syscall.AF_INET6, syscall.SOCK_STREAM, "[::1]:8000", "[::1]:8000", "[::1]:8000"},
		{syscall.AF_INET6, syscall.SOCK_STREAM, "[::]:8000", "[::]:8000", "[::1]:8000"},
	} {
		g := newGuest(t)
		l := g.listen(c.family, c.kind|syscall.SOCK_NONBLOCK, c.bind)
		g.wantEvents(l, 0)
		g.refused(syscall.EAGAIN, unix.SYS_ACCEPT, l, 0, 0)
		s := g.socket(c.family, c.kind)
		g.wantEvents(s, pollWritable|pollHup)
		if ret := g.withName(unix.SYS_CONNECT, s, c.connect); ret != 0 {
			t.Fatalf("%s: connect: %s", c.connect, answerText(ret))
		}
		g.wantEvents(l, pollReadable)
		out, size := g.alloc(32), g.bytes(words(32))
		n := g.must(unix.SYS_ACCEPT4, l, out, size, syscall.SOCK_CLOEXEC)
		if got := g.nameOf(unix.SYS_GETPEERNAME, s); got != c.peer {
			t.Errorf("%s: the peer is %q", c.connect, got)
		}
		if a, b := g.nameOf(unix.SYS_GETSOCKNAME, s), g.nameOf(unix.SYS_GETPEERNAME, n); a != b {
			t.Errorf("%s: the client is %q, the server sees %q", c.connect, a, b)
		}
		if a, b := g.nameOf(unix.SYS_GETSOCKNAME, n), g.nameOf(unix.SYS_GETPEERNAME, s); a != b {
			t.Errorf("%s: the server is %q, the client sees %q", c.connect, a, b)
		}
		g.send(s, "question")
		if got := g.recv(n, 20); got != "question" {
			t.Errorf("%s: got %q", c.connect, got)
		}
		g.send(n, "answer")
		if got := g.recv(s, 20); got != "answer" {
			t.Errorf("%s: got %q", c.connect, got)
		}
		if got := g.withName(unix.SYS_CONNECT, s, c.connect); got != fail(syscall.EISCONN) {
			t.Errorf("%s: connect again: %s", c.connect, answerText(got))
		}
		g.want(0, unix.SYS_CLOSE, n)
		g.want(0, unix.SYS_READ, s, out, 1)
		g.wantEmpty()
	}
}

func TestConnectionsThatAreRefused(t *testing.T) {
	g := newGuest(t)
	g.file("/tmp/file", "")
	g.listen(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, "@packets")
	g.must(unix.SYS_CLOSE, g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "/tmp/stale"))
	for _, c := range []struct {
		family uint64
		name   string
		e      syscall.Errno
	}{
		{syscall.AF_UNIX, "@nobody", syscall.ECONNREFUSED},
		{syscall.AF_UNIX, "@packets", syscall.EPROTOTYPE},
		{syscall.AF_UNIX, "/tmp/missing", syscall.ENOENT},
		{syscall.AF_UNIX, "/tmp/file", syscall.ECONNREFUSED},
		{syscall.AF_UNIX, "/tmp/stale", syscall.ECONNREFUSED},
		{syscall.AF_UNIX, "127.0.0.1:80", syscall.EINVAL},
		{syscall.AF_INET, "127.0.0.1:80", syscall.ECONNREFUSED},
		{syscall.AF_INET, "192.0.2.1:80", syscall.EPERM},
		{syscall.AF_INET, "[::1]:80", syscall.EAFNOSUPPORT},
		{syscall.AF_INET6, "[2001:db8::1]:80", syscall.EPERM},
		{syscall.AF_INET6, "[::ffff:192.0.2.1]:80", syscall.EPERM},
	} {
		s := g.socket(c.family, syscall.SOCK_STREAM)
		if got := g.withName(unix.SYS_CONNECT, s, c.name); got != fail(c.e) {
			t.Errorf("%s: %s, want %v", c.name, answerText(got), c.e)
		}
	}
	g.wantEmpty()
}

func TestNamesThatCannotBeHad(t *testing.T) {
	g := newGuest(t)
	g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "@taken")
	g.listen(syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:9000")
	g.listen(syscall.AF_INET6, syscall.SOCK_STREAM, "[::]:9000")
	g.file("/tmp/file", "")
	for _, c := range []struct {
		family uint64
		name   string
		e      syscall.Errno
	}{
		{syscall.AF_UNIX, "@taken", syscall.EADDRINUSE},
		{syscall.AF_UNIX, "/tmp/file", syscall.EADDRINUSE},
		{syscall.AF_UNIX, "/usr/sock", syscall.EROFS},
		{syscall.AF_UNIX, "/tmp/no/sock", syscall.ENOENT},
		{syscall.AF_INET, "0.0.0.0:9000", syscall.EADDRINUSE},
		{syscall.AF_INET, "127.0.0.1:80", syscall.EACCES},
		{syscall.AF_INET, "192.0.2.1:9001", syscall.EADDRNOTAVAIL},
		{syscall.AF_INET6, "[::1]:9000", syscall.EADDRINUSE},
	} {
		s := g.socket(c.family, syscall.SOCK_STREAM)
		if got := g.withName(unix.SYS_BIND, s, c.name); got != fail(c.e) {
			t.Errorf("%s: %s, want %v", c.name, answerText(got), c.e)
		}
	}
	s := g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM)
	g.refused(syscall.EINVAL, unix.SYS_LISTEN, s, 1)
	g.refused(syscall.EINVAL, unix.SYS_ACCEPT, s, 0, 0)
	g.refused(syscall.ENOTCONN, unix.SYS_GETPEERNAME, s, 8, 8)
	g.refused(syscall.EINVAL, unix.SYS_BIND, s, g.alloc(2), 1)
	g.refused(syscall.EINVAL, unix.SYS_BIND, s, g.alloc(2), 1<<31)
	if got := g.nameOf(unix.SYS_GETSOCKNAME, s); got != "" {
		t.Errorf("it is called %q", got)
	}
	// A name may be left open.
	g.want(0, unix.SYS_BIND, s, g.bytes([]byte{1, 0}), 2)
	if got := g.nameOf(unix.SYS_GETSOCKNAME, s); got != "@00000" {
		t.Errorf("it is called %q", got)
	}
	g.wantEmpty()
}

func TestASocketOfTheTreeIsAFileOfItsKind(t *testing.T) {
	g := newGuest(t)
	l := g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "/tmp/sock")
	path, st := g.str("/tmp/sock"), g.alloc(144)
	g.want(0, unix.SYS_STAT, path, st)
	if mode := binary.LittleEndian.Uint32(g.get(st+24, 4)); mode != syscall.S_IFSOCK|0o755 {
		t.Errorf("mode %#o", mode)
	}
	g.refused(syscall.ENXIO, unix.SYS_OPEN, path, 0)
	g.refused(syscall.EINVAL, unix.SYS_TRUNCATE, path, 0)
	// Its name is a file's: it can be renamed, and the socket with it.
	g.want(0, unix.SYS_RENAME, path, g.str("/tmp/other"))
	if ret := g.withName(unix.SYS_CONNECT, g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM), "/tmp/other"); ret != 0 {
		t.Errorf("connect: %s", answerText(ret))
	}
	g.want(0, unix.SYS_UNLINK, g.str("/tmp/other"))
	g.want(0, unix.SYS_CLOSE, l)
	g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "/tmp/sock")
	g.wantEmpty()
	saved, err := g.p.fs.Export()
	if err != nil || len(saved) != 2 {
		t.Errorf("saved: %d entries, %v", len(saved), err)
	}
}

func TestTheBacklogIsBounded(t *testing.T) {
	g := newGuest(t)
	l := g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "@l")
	g.want(0, unix.SYS_LISTEN, l, 1)
	connect := func() uint64 {
		return g.withName(unix.SYS_CONNECT, g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK), "@l")
	}
	for i, want := range []uint64{0, 0, tryAgain} {
		if got := connect(); got != want {
			t.Errorf("connection %d: %s", i, answerText(got))
		}
	}
	// One that waits gets in when another one was accepted.
	a, s := g.spawn(), g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM)
	addr, n := g.sockaddr("@l")
	g.on(a)
	g.block(unix.SYS_CONNECT, s, addr, n)
	g.must(unix.SYS_ACCEPT, l, 0, 0)
	if got := g.returned(a); got != 0 {
		t.Errorf("the connection that waited: %s", answerText(got))
	}
	g.want(0, unix.SYS_CLOSE, l)
	if got := g.option(s, syscall.SOL_SOCKET, syscall.SO_ERROR); got != int(syscall.ECONNRESET) {
		t.Errorf("the listener is gone, and the error is %d", got)
	}
	g.wantEmpty()
}

func TestAllPendingConnectionsAreBounded(t *testing.T) {
	g := newGuest(t)
	for i := range 9 {
		l := g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, fmt.Sprintf("@%d", i))
		g.want(0, unix.SYS_LISTEN, l, ^uint64(0))
	}
	refused := 0
	for i := range 9 * (maxBacklog + 1) {
		s := g.socket(syscall.AF_UNIX, syscall.SOCK_STREAM)
		g.arena -= 16 // the name is not needed again
		if g.withName(unix.SYS_CONNECT, s, fmt.Sprintf("@%d", i%9)) != 0 {
			refused++
		}
		g.want(0, unix.SYS_CLOSE, s)
	}
	if g.p.fds.pending != maxPending || refused != 9*(maxBacklog+1)-maxPending {
		t.Errorf("%d are pending, %d were refused", g.p.fds.pending, refused)
	}
	g.wantEmpty()
}

func TestConnectingWithoutWaitingIsInProgress(t *testing.T) {
	g := newGuest(t)
	g.listen(syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:8000")
	s := g.socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK)
	for _, want := range []uint64{fail(syscall.EINPROGRESS), 0, fail(syscall.EISCONN)} {
		if got := g.withName(unix.SYS_CONNECT, s, "127.0.0.1:8000"); got != want {
			t.Errorf("connect: %s, want %s", answerText(got), answerText(want))
		}
	}
	g.wantEvents(s, pollWritable)
	g.wantEmpty()
}

func TestTCPLearnsBySendingThatItsPeerIsGone(t *testing.T) {
	g := newGuest(t)
	l := g.listen(syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:8000")
	s := g.socket(syscall.AF_INET, syscall.SOCK_STREAM)
	g.withName(unix.SYS_CONNECT, s, "127.0.0.1:8000")
	g.want(0, unix.SYS_CLOSE, g.must(unix.SYS_ACCEPT, l, 0, 0))
	buf := g.alloc(8)
	g.want(8, unix.SYS_SENDTO, s, buf, 8, syscall.MSG_NOSIGNAL)
	g.refused(syscall.EPIPE, unix.SYS_SENDTO, s, buf, 8, syscall.MSG_NOSIGNAL)
	g.wantEmpty()
}

func TestAcceptWaitsAndAShutdownEndsIt(t *testing.T) {
	g := newGuest(t)
	l := g.listen(syscall.AF_INET, syscall.SOCK_STREAM, "127.0.0.1:0")
	a := g.spawn()
	g.on(a)
	g.block(unix.SYS_ACCEPT, l, 0, 0)
	s := g.socket(syscall.AF_INET, syscall.SOCK_STREAM)
	if ret := g.withName(unix.SYS_CONNECT, s, g.nameOf(unix.SYS_GETSOCKNAME, l)); ret != 0 {
		t.Fatalf("connect: %s", answerText(ret))
	}
	if got := g.returned(a); errnoOf(got) != 0 {
		t.Errorf("accept returned %s", answerText(got))
	}
	g.block(unix.SYS_ACCEPT, l, 0, 0)
	g.want(0, unix.SYS_SHUTDOWN, l, syscall.SHUT_RDWR)
	if got := g.returned(a); got != fail(syscall.EINVAL) {
		t.Errorf("accept returned %s", answerText(got))
	}
}

func TestDatagramsTellWhoSentThem(t *testing.T) {
	g := newGuest(t)
	a, b := g.socket(syscall.AF_UNIX, syscall.SOCK_DGRAM), g.socket(syscall.AF_UNIX, syscall.SOCK_DGRAM)
	g.withName(unix.SYS_BIND, a, "@a")
	g.withName(unix.SYS_BIND, b, "@b")
	to, n := g.sockaddr("@b")
	g.want(2, unix.SYS_SENDTO, a, g.str("hi"), 2, 0, to, n)
	buf, from, size := g.alloc(8), g.alloc(16), g.bytes(words(16))
	g.want(2, unix.SYS_RECVFROM, b, buf, 8, 0, from, size)
	if got := string(g.get(from, int(g.word(size)))); got != "\x01\x00\x00a" {
		t.Errorf("the sender is %q", got)
	}
	g.refused(syscall.ENOTCONN, unix.SYS_WRITE, a, buf, 1)
	nobody, n := g.sockaddr("@nobody")
	g.refused(syscall.ECONNREFUSED, unix.SYS_SENDTO, a, buf, 1, 0, nobody, n)
	// Who is connected hears one only.
	if ret := g.withName(unix.SYS_CONNECT, b, "@b"); ret != 0 {
		t.Errorf("connect: %s", answerText(ret))
	}
	to, n = g.sockaddr("@b")
	g.refused(syscall.EPERM, unix.SYS_SENDTO, a, buf, 1, 0, to, n)
	g.want(0, unix.SYS_CONNECT, b, g.alloc(2), 2)
	g.want(1, unix.SYS_SENDTO, a, buf, 1, 0, to, n)
	g.refused(syscall.EOPNOTSUPP, unix.SYS_LISTEN, a, 1)
	g.wantEmpty()
}

func TestNoNameSurvivesARestore(t *testing.T) {
	g, s := parked(t)
	g.p.Resume(nil, nil, 0)
	g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "@name")
	_, w := g.pipe(0)
	g.send(w, "left over")
	g.timer(0, 0, 1e9)
	if _, err := g.p.Save(); err == nil {
		t.Error("a template with open files was taken")
	}
	if err := g.restore(s, testMemory); err != nil {
		t.Fatal(err)
	}
	g.wantEmpty()
	g.p.fds.init()
	g.p.Resume(nil, nil, 0)
	g.listen(syscall.AF_UNIX, syscall.SOCK_STREAM, "@name")
}
