package linux

import (
	"encoding/binary"
	"syscall"
)

// await makes attempts until one answers anything but EAGAIN: once if nothing
// is to block, for at most limit nanoseconds if that is not zero.
func (p *Process) await(f *description, nonblock bool, limit uint64, attempt func() uint64) uint64 {
	ret := attempt()
	if ret != tryAgain || nonblock {
		return ret
	}
	w := wait{file: f, restart: limit == 0, try: func() (uint64, bool) {
		ret := attempt()
		return ret, ret != tryAgain
	}}
	if limit != 0 {
		w.deadline, w.expired = p.after(limit), answers(syscall.EAGAIN)
	}
	return p.block(w)
}

// length is how many bytes iov is for.
func length(iov []iovec) uint64 {
	n := uint64(0)
	for _, v := range iov {
		n += v.n
	}
	return n
}

// gather copies guest memory into b, which is no longer than iov is.
func (p *Process) gather(b []byte, iov []iovec) bool {
	for _, v := range iov {
		n := min(v.n, uint64(len(b)))
		if !p.cpu.CopyIn(b[:n], v.addr) {
			return false
		}
		b = b[n:]
	}
	return true
}

// received is what a receiving call has got.
type received struct {
	n uint64
	// from is who sent it, if it has a name.
	from address
	// cut says that the message was longer, full how long it was.
	cut  bool
	full uint64
}

// receive makes one attempt.
func (p *Process) receive(s *socket, iov []iovec, peek bool) (received, syscall.Errno) {
	if s.kind == syscall.SOCK_STREAM {
		n, e := p.receiveStream(s, iov, peek)
		return received{n: n, full: n}, e
	}
	if len(s.messages) == 0 {
		return received{}, s.nothing()
	}
	m := s.messages[0]
	r := received{from: m.from, full: uint64(len(m.data))}
	b := m.data
	for _, v := range iov {
		n := min(v.n, uint64(len(b)))
		if !p.cpu.CopyOut(v.addr, b[:n]) {
			return received{}, syscall.EFAULT
		}
		b = b[n:]
		r.n += n
	}
	r.cut = len(b) > 0
	if !peek {
		s.dropMessage(p)
		s.received()
	}
	return r, 0
}

func (p *Process) receiveStream(s *socket, iov []iovec, peek bool) (uint64, syscall.Errno) {
	if s.n == 0 {
		if length(iov) == 0 {
			return 0, 0
		}
		return 0, s.nothing()
	}
	n, e := p.spread(&s.queue, iov)
	if n > 0 && !peek {
		s.drop(&p.fds.channels, n)
		s.received()
	}
	return uint64(n), e
}

// recv receives, waiting for something to arrive. tell, if not nil, passes on
// what else is known of it.
func (p *Process) recv(f *description, s *socket, iov []iovec, flags uint64, tell func(received) uint64) uint64 {
	if flags&syscall.MSG_OOB != 0 {
		return fail(syscall.EOPNOTSUPP)
	}
	nonblock := f.flags&syscall.O_NONBLOCK != 0 || flags&syscall.MSG_DONTWAIT != 0
	peek := flags&syscall.MSG_PEEK != 0
	if flags&syscall.MSG_WAITALL != 0 && s.kind == syscall.SOCK_STREAM && !peek {
		return p.recvAll(f, s, iov, nonblock, tell)
	}
	return p.await(f, nonblock, s.receiveTime, func() uint64 {
		r, e := p.receive(s, iov, peek)
		if e != 0 {
			return fail(e)
		}
		if tell != nil {
			if ret := tell(r); ret != 0 {
				return ret
			}
		}
		if flags&syscall.MSG_TRUNC != 0 && s.kind != syscall.SOCK_STREAM {
			return r.full
		}
		return r.n
	})
}

// recvAll receives all that iov is for, or what comes before the end.
func (p *Process) recvAll(f *description, s *socket, iov []iovec, nonblock bool, tell func(received) uint64) uint64 {
	total := uint64(0)
	// answer gives what there is, or e if there is nothing.
	answer := func(e syscall.Errno) uint64 {
		if total == 0 && e != 0 {
			return fail(e)
		}
		if tell != nil {
			if ret := tell(received{n: total}); ret != 0 {
				return ret
			}
		}
		return total
	}
	attempt := func() (uint64, bool) {
		n, e := p.receiveStream(s, iov, false)
		total += n
		iov = skip(iov, n)
		if e == 0 && n > 0 && len(iov) > 0 {
			e = syscall.EAGAIN
		}
		if e == syscall.EAGAIN && !nonblock {
			return 0, false
		}
		return answer(e), true
	}
	if ret, done := attempt(); done {
		return ret
	}
	w := wait{
		file: f, restart: s.receiveTime == 0, try: attempt,
		expired:   func() uint64 { return answer(syscall.EAGAIN) },
		signalled: func() uint64 { return answer(syscall.EINTR) },
	}
	if s.receiveTime != 0 {
		w.deadline = p.after(s.receiveTime)
	}
	return p.block(w)
}

// transmit sends. to, if not nil, is somebody else than the peer.
func (p *Process) transmit(f *description, s *socket, to *socket, iov []iovec, flags uint64) uint64 {
	if flags&syscall.MSG_OOB != 0 {
		return fail(syscall.EOPNOTSUPP)
	}
	nonblock := f.flags&syscall.O_NONBLOCK != 0 || flags&syscall.MSG_DONTWAIT != 0
	if s.kind == syscall.SOCK_STREAM {
		return p.writeAll(f, iov, -1, nonblock, flags&msgNoSignal != 0)
	}
	n := int(min(length(iov), maxBuffer))
	return p.await(f, nonblock, s.transmitTime, func() uint64 {
		to := to
		if to == nil {
			to = s.peer
		}
		if e := s.admit(p, to, n); e != 0 {
			return fail(e)
		}
		b := p.buffer(n)
		if !p.gather(b, iov) {
			return fail(syscall.EFAULT)
		}
		return uint64(s.send(p, to, b))
	})
}

// destination finds whom a message with an address is for: nil for the peer.
func (p *Process) destination(s *socket, addr, n uint64) (*socket, syscall.Errno) {
	if addr == 0 || n == 0 || s.family != syscall.AF_UNIX && s.peer != nil {
		return nil, 0
	}
	switch {
	case s.connects() && s.peer != nil:
		return nil, syscall.EISCONN
	case s.family != syscall.AF_UNIX:
		return nil, syscall.EPIPE
	case s.connects():
		return nil, syscall.EOPNOTSUPP
	}
	name, e := p.addressArg(s.family, addr, n)
	if e != 0 {
		return nil, e
	}
	return p.partner(s, name)
}

func sysSendto(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	to, e := p.destination(s, a[4], uint64(uint32(a[5])))
	if e != 0 {
		return fail(e)
	}
	return p.transmit(f, s, to, oneIOV(a[1], a[2]), a[3])
}

func sysRecvfrom(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	out, size := a[4], a[5]
	return p.recv(f, s, oneIOV(a[1], a[2]), a[3], func(r received) uint64 {
		if out == 0 {
			return 0
		}
		return p.putAddress(out, size, r.from.encode())
	})
}

// messageHeader is struct msghdr.
type messageHeader struct {
	name, nameSize, control, controlSize uint64
	iov                                  []iovec
}

const messageHeaderSize = 56

func (p *Process) messageArg(addr uint64) (messageHeader, syscall.Errno) {
	var b [messageHeaderSize]byte
	if !p.cpu.CopyIn(b[:], addr) {
		return messageHeader{}, syscall.EFAULT
	}
	le := binary.LittleEndian
	h := messageHeader{
		name: le.Uint64(b[0:]), nameSize: uint64(le.Uint32(b[8:])),
		control: le.Uint64(b[32:]), controlSize: le.Uint64(b[40:]),
	}
	count := le.Uint64(b[24:])
	if count > maxIOV {
		return h, syscall.EMSGSIZE
	}
	iov, e := p.iovecs(le.Uint64(b[16:]), count)
	h.iov = iov
	return h, e
}

// sysSendmsg passes no control messages: descriptors have nowhere else to go.
func sysSendmsg(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	h, e := p.messageArg(a[1])
	if e != 0 {
		return fail(e)
	}
	if h.control != 0 && h.controlSize != 0 {
		return fail(syscall.EINVAL)
	}
	to, e := p.destination(s, h.name, h.nameSize)
	if e != 0 {
		return fail(e)
	}
	return p.transmit(f, s, to, h.iov, a[2])
}

func sysRecvmsg(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	h, e := p.messageArg(a[1])
	if e != 0 {
		return fail(e)
	}
	at := a[1]
	return p.recv(f, s, h.iov, a[2], func(r received) uint64 {
		flags := uint32(0)
		if r.cut {
			flags |= syscall.MSG_TRUNC
		}
		name := r.from.encode()
		le := binary.LittleEndian
		ok := h.name == 0 || p.cpu.CopyOut(h.name, name[:min(uint64(len(name)), h.nameSize)]) &&
			p.cpu.CopyOut(at+8, le.AppendUint32(nil, uint32(len(name))))
		ok = ok && p.putU64(at+40, 0) && p.cpu.CopyOut(at+48, le.AppendUint32(nil, flags))
		if !ok {
			return fail(syscall.EFAULT)
		}
		return 0
	})
}
