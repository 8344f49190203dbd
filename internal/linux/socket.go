package linux

import (
	"slices"
	"syscall"
)

const (
	// sendBuffer is how much a socket may have sent that was not received yet
	// (net.core.wmem_default), maxSendBuffer the most that it can be set to, and
	// minSendBuffer the least.
	sendBuffer    = 212992
	minSendBuffer = 4608
	maxSendBuffer = 2 * sendBuffer
	// maxMessages bounds the datagrams that wait at one socket.
	maxMessages = 256
	// maxPending bounds the connections that wait to be accepted, at one socket
	// and at all of them.
	maxBacklog, maxPending = 128, 1024
)

// socket is one end of a connection, or what waits for connections, inside the
// guest. Nothing here reaches the host's network.
type socket struct {
	node
	// family is AF_UNIX, AF_INET or AF_INET6, kind SOCK_STREAM, SOCK_DGRAM or
	// SOCK_SEQPACKET.
	family, kind int
	// name and peerName are told by getsockname and getpeername. bound says
	// that the name is its own and not that of what accepted it.
	name, peerName address
	bound          bool

	// peer gets what is sent. It stays when it is gone.
	peer *socket
	// What has arrived: bytes for a stream, messages otherwise, whose bytes are
	// counted by held.
	queue
	messages []message
	held     int

	// noRead and noWrite say that a direction is shut down, by whichever side,
	// and gone that the socket is closed.
	noRead, noWrite, gone bool
	// connecting says that the call to connect has not told its success yet.
	connecting bool
	// err is told once by whatever comes next, or by SO_ERROR.
	err syscall.Errno

	// A listening socket's connections that were not accepted yet.
	listening  bool
	backlog    []*socket
	maxBacklog int

	// limit is SO_SNDBUF; the times are in nanoseconds, zero for none.
	limit                     int
	receiveTime, transmitTime uint64
	options                   map[option]uint32
}

// message is a datagram, or a packet of SOCK_SEQPACKET.
type message struct {
	data []byte
	from address
}

// memory is how many chunks a message counts for.
func (m *message) memory() int { return max((len(m.data)+chunkSize-1)/chunkSize, 1) }

func (p *Process) newSocket(family, kind int) *socket {
	return &socket{node: p.newNode(syscall.S_IFSOCK | 0o777), family: family, kind: kind, limit: sendBuffer}
}

// connects says whether the kind of socket has connections.
func (s *socket) connects() bool { return s.kind != syscall.SOCK_DGRAM }

func (s *socket) takeError() syscall.Errno {
	e := s.err
	s.err = 0
	return e
}

// unread is how many bytes can be received: of a datagram socket, the next one's.
func (s *socket) unread() int {
	if s.kind == syscall.SOCK_DGRAM && len(s.messages) > 0 {
		return len(s.messages[0].data)
	}
	return s.n + s.held
}

// nothing says what a call answers that has nothing to receive: zero is the end.
func (s *socket) nothing() syscall.Errno {
	switch {
	case s.err != 0:
		return s.takeError()
	case s.noRead:
		return 0
	case s.connects() && s.peer == nil && s.family == syscall.AF_UNIX:
		return syscall.EINVAL
	case s.connects() && s.peer == nil:
		return syscall.ENOTCONN
	}
	return syscall.EAGAIN
}

// admit says whether n bytes can be sent to a peer now: a stream takes at least
// one of them, everything else all.
func (s *socket) admit(p *Process, to *socket, n int) syscall.Errno {
	switch {
	case s.err != 0:
		return s.takeError()
	case s.noWrite:
		return syscall.EPIPE
	case to == nil:
		return syscall.ENOTCONN
	case to.gone && !s.connects():
		return syscall.ECONNREFUSED
	case s.family == syscall.AF_UNIX && (to.gone || to.noRead):
		return syscall.EPIPE
	case s.kind != syscall.SOCK_STREAM && n > s.limit:
		return syscall.EMSGSIZE
	case s.kind == syscall.SOCK_STREAM && n > 0 && to.n >= s.limit,
		s.kind != syscall.SOCK_STREAM && (len(to.messages) >= maxMessages || to.held > 0 && to.held+n > s.limit):
		return syscall.EAGAIN
	}
	room := &to.queue
	if s.kind == syscall.SOCK_STREAM {
		n = min(n, 1)
	} else {
		room, n = new(queue), max(n, 1)
	}
	if !room.room(&p.fds.channels, n) {
		return syscall.ENOBUFS
	}
	return 0
}

// send puts b, or of a stream as much as there is room for, into a peer's
// queue. admit has let it.
func (s *socket) send(p *Process, to *socket, b []byte) int {
	if len(b) == 0 && s.kind == syscall.SOCK_STREAM {
		return 0
	}
	to.ins++
	if s.kind == syscall.SOCK_STREAM {
		if to.noRead { // TCP learns only by sending that the other side is gone
			s.noWrite = s.noWrite || to.gone
			return len(b)
		}
		return to.put(&p.fds.channels, b[:min(len(b), s.limit-to.n)])
	}
	m := message{slices.Clone(b), s.name}
	p.fds.channels.chunks += m.memory()
	to.messages = append(to.messages, m)
	to.held += len(b)
	return len(b)
}

// dropMessage takes the next message away.
func (s *socket) dropMessage(p *Process) {
	m := &s.messages[0]
	p.fds.channels.chunks -= m.memory()
	s.held -= len(m.data)
	s.messages = slices.Delete(s.messages, 0, 1)
}

// received tells whoever may have waited for room.
func (s *socket) received() {
	if s.peer != nil {
		s.peer.outs++
	}
}

// read is not how a socket is received from: see Process.recv.
func (*socket) read(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EINVAL }

func (s *socket) write(p *Process, b []byte, _ int64) (int, syscall.Errno) {
	if e := s.admit(p, s.peer, len(b)); e != 0 {
		return 0, e
	}
	return s.send(p, s.peer, b), 0
}

func (s *socket) poll(*Process) uint16 {
	got := uint16(0)
	if s.err != 0 {
		got |= pollErr
	}
	if s.noRead {
		got |= pollReadable | pollRdHup
		if s.noWrite {
			got |= pollHup
		}
	}
	if s.listening {
		if len(s.backlog) > 0 {
			got |= pollReadable
		}
		return got
	}
	if s.n > 0 || len(s.messages) > 0 {
		got |= pollReadable
	}
	if s.connects() && s.peer == nil {
		got |= pollHup
	}
	// As Linux does, room is told when there is plenty.
	if to := s.peer; to == nil || (to.n+to.held)*4 <= s.limit && len(to.messages) < maxMessages {
		got |= pollWritable
	}
	return got
}

// shut ends directions, and for the peer of a connection the opposite ones.
func (s *socket) shut(read, write bool) {
	s.noRead, s.noWrite = s.noRead || read, s.noWrite || write
	s.ins++
	s.outs++
	o := s.peer
	if o == nil || !s.connects() {
		return
	}
	// TCP does not tell the other side that nobody will read.
	o.noRead = o.noRead || write
	o.noWrite = o.noWrite || read && s.family == syscall.AF_UNIX
	o.ins++
	o.outs++
}

// release closes the socket, and the connections that nobody has accepted.
func (s *socket) release(p *Process) {
	unread := s.n > 0 || len(s.messages) > 0
	s.drop(&p.fds.channels, s.n)
	for len(s.messages) > 0 {
		s.dropMessage(p)
	}
	s.gone = true
	p.unbind(s)
	for _, c := range s.backlog {
		p.fds.channels.pending--
		other := c.peer
		c.release(p)
		other.err = syscall.ECONNRESET
	}
	s.backlog, s.listening = nil, false
	s.shut(true, true)
	if o := s.peer; o != nil && s.connects() {
		if unread {
			o.noWrite, o.err = true, syscall.ECONNRESET
		}
	} else if o != nil {
		o.outs++
	}
	// Whoever has it for a peer must not hold its own peer, and so on without
	// end.
	s.peer, s.options = nil, nil
}

// join makes two sockets each other's peer.
func join(a, b *socket) {
	a.peer, b.peer = b, a
	a.ins, b.ins = a.ins+1, b.ins+1
	a.outs, b.outs = a.outs+1, b.outs+1
}

const sockFlags = sockNonblock | sockCloexec

// socketKind takes the type argument apart.
func socketKind(v uint64) (kind, flags int, e syscall.Errno) {
	kind, flags = int(uint32(v))&^sockFlags, int(v)&sockFlags
	switch kind {
	case syscall.SOCK_STREAM, syscall.SOCK_DGRAM, syscall.SOCK_SEQPACKET:
		return kind, flags, 0
	case syscall.SOCK_RAW, syscall.SOCK_RDM, sockPacket:
		return 0, 0, syscall.ESOCKTNOSUPPORT
	}
	return 0, 0, syscall.EINVAL
}

func socketFile(s *socket, flags int) *description {
	return &description{file: s, flags: syscall.O_RDWR | flags&syscall.O_NONBLOCK}
}

// sysSocket offers what stays inside the guest: AF_UNIX, and TCP to its own
// loopback addresses. Anything else is refused by policy rather than unknown.
func sysSocket(p *Process, a *args) uint64 {
	family := int(int32(a[0]))
	kind, flags, e := socketKind(a[1])
	inet := family == syscall.AF_INET || family == syscall.AF_INET6
	switch proto := uint32(a[2]); {
	case !inet && family != syscall.AF_UNIX, inet && (e != 0 || kind != syscall.SOCK_STREAM):
		return fail(syscall.EPERM)
	case e != 0:
		return fail(e)
	case proto != 0 && (inet && proto != syscall.IPPROTO_TCP || !inet && proto != syscall.AF_UNIX):
		return fail(syscall.EPROTONOSUPPORT)
	}
	return p.put1(socketFile(p.newSocket(family, kind), flags), flags&sockCloexec != 0)
}

func sysSocketpair(p *Process, a *args) uint64 {
	kind, flags, e := socketKind(a[1])
	switch {
	case uint32(a[0]) != syscall.AF_UNIX:
		return fail(syscall.EOPNOTSUPP)
	case e != 0:
		return fail(e)
	case uint32(a[2]) > syscall.AF_UNIX:
		return fail(syscall.EPROTONOSUPPORT)
	}
	x, y := p.newSocket(syscall.AF_UNIX, kind), p.newSocket(syscall.AF_UNIX, kind)
	join(x, y)
	return p.put2(a[3], socketFile(x, flags), socketFile(y, flags), flags&sockCloexec != 0)
}

// socketArg gives the socket of a descriptor.
func (p *Process) socketArg(fd uint64) (*description, *socket, syscall.Errno) {
	f := p.fds.get(fd)
	if f == nil {
		return nil, nil, syscall.EBADF
	}
	s, ok := f.file.(*socket)
	if !ok {
		return nil, nil, syscall.ENOTSOCK
	}
	return f, s, 0
}

func sysShutdown(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	how := uint32(a[1])
	switch {
	case e != 0:
		return fail(e)
	case how > syscall.SHUT_RDWR:
		return fail(syscall.EINVAL)
	case s.family != syscall.AF_UNIX && s.peer == nil && !s.listening:
		return fail(syscall.ENOTCONN)
	}
	s.shut(how != syscall.SHUT_WR, how != syscall.SHUT_RD)
	return 0
}
