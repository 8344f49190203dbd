package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
)

const (
	// maxSockaddr is the size of struct sockaddr_storage.
	maxSockaddr = 128
	// maxSocketPath is the size of sockaddr_un.sun_path.
	maxSocketPath = 108
	// firstPort and lastPort are the ports that are given out (Linux,
	// ip_local_port_range), below firstOpen a user may have none.
	firstPort, lastPort, firstOpen = 32768, 60999, 1024
)

// address is a socket's name; the zero value is none.
type address struct {
	// unix is a path, or a name in the abstract namespace, which begins with a
	// NUL. inode is the path's, when the address is used to find a socket.
	unix  string
	inode *vfs.Inode
	// inet is an IP address and a port.
	inet netip.AddrPort
}

// encode gives a struct sockaddr, nothing for an address that is none.
func (a address) encode() []byte {
	le := binary.LittleEndian
	switch ip := a.inet.Addr(); {
	case ip.Is4():
		b := le.AppendUint16(nil, syscall.AF_INET)
		b = binary.BigEndian.AppendUint16(b, a.inet.Port())
		b = append(b, ip.AsSlice()...)
		return append(b, make([]byte, 8)...)
	case ip.Is6():
		b := le.AppendUint16(nil, syscall.AF_INET6)
		b = binary.BigEndian.AppendUint16(b, a.inet.Port())
		b = append(b, make([]byte, 4)...)
		b = append(b, ip.AsSlice()...)
		return append(b, make([]byte, 4)...)
	case a.unix == "":
		return nil
	}
	b := append(le.AppendUint16(nil, syscall.AF_UNIX), a.unix...)
	if a.unix[0] != 0 {
		b = append(b, 0)
	}
	return b
}

// named gives a struct sockaddr of a family even for no address.
func (a address) named(family int) []byte {
	if b := a.encode(); b != nil {
		return b
	}
	if family == syscall.AF_UNIX {
		return binary.LittleEndian.AppendUint16(nil, syscall.AF_UNIX)
	}
	return address{inet: netip.AddrPortFrom(unspecified(family), 0)}.encode()
}

func unspecified(family int) netip.Addr {
	if family == syscall.AF_INET6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func loopback(family int) netip.Addr {
	if family == syscall.AF_INET6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// addressArg copies a struct sockaddr. One of the family AF_UNSPEC is the zero
// address.
func (p *Process) addressArg(family int, addr, n uint64) (address, syscall.Errno) {
	if n < 2 || n > maxSockaddr {
		return address{}, syscall.EINVAL
	}
	b := make([]byte, n)
	if !p.cpu.CopyIn(b, addr) {
		return address{}, syscall.EFAULT
	}
	is := int(binary.LittleEndian.Uint16(b))
	switch {
	case is == syscall.AF_UNSPEC:
		return address{}, 0
	case is != family && family == syscall.AF_UNIX:
		return address{}, syscall.EINVAL
	case is != family:
		return address{}, syscall.EAFNOSUPPORT
	case is == syscall.AF_INET && n >= 16:
		ip, _ := netip.AddrFromSlice(b[4:8])
		return address{inet: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:]))}, 0
	case is == syscall.AF_INET6 && n >= 24:
		ip, _ := netip.AddrFromSlice(b[8:24])
		return address{inet: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:]))}, 0
	case is != syscall.AF_UNIX || n > 2+maxSocketPath:
		return address{}, syscall.EINVAL
	}
	b = b[2:]
	if len(b) > 0 && b[0] != 0 {
		b, _, _ = bytes.Cut(b, []byte{0})
	}
	return address{unix: string(b)}, 0
}

// putAddress writes a struct sockaddr where its length is in and out.
func (p *Process) putAddress(addr, size uint64, b []byte) uint64 {
	var n [4]byte
	if !p.cpu.CopyIn(n[:], size) {
		return fail(syscall.EFAULT)
	}
	room := int32(binary.LittleEndian.Uint32(n[:]))
	if room < 0 {
		return fail(syscall.EINVAL)
	}
	if !p.cpu.CopyOut(addr, b[:min(len(b), int(room))]) {
		return fail(syscall.EFAULT)
	}
	return p.putBytes(size, binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
}

// key is what finds the socket that is bound to an address.
func (p *Process) key(a address) (address, syscall.Errno) {
	if a.unix == "" || a.unix[0] == 0 {
		return a, 0
	}
	ino, e := p.fs.Resolve(p.cwd, a.unix, true)
	if e != 0 {
		return address{}, e
	}
	return address{inode: ino}, 0
}

// boundTo finds a bound socket.
func (p *Process) boundTo(a address) (*socket, syscall.Errno) {
	k, e := p.key(a)
	if e != 0 {
		return nil, e
	}
	s := p.fds.bound[k]
	if s == nil && a.inet.IsValid() {
		k.inet = netip.AddrPortFrom(anyOf(a.inet.Addr()), a.inet.Port())
		s = p.fds.bound[k]
	}
	if s == nil {
		return nil, syscall.ECONNREFUSED
	}
	return s, 0
}

func anyOf(ip netip.Addr) netip.Addr {
	if ip.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// partner finds the socket to send to or to connect with.
func (p *Process) partner(s *socket, a address) (*socket, syscall.Errno) {
	o, e := p.boundTo(a)
	switch {
	case e != 0:
		return nil, e
	case o.kind != s.kind:
		return nil, syscall.EPROTOTYPE
	case !s.connects() && o.peer != nil && o.peer != s:
		return nil, syscall.EPERM // it listens to another one only
	}
	return o, 0
}

func (p *Process) unbind(s *socket) {
	if !s.bound {
		return
	}
	for k, o := range p.fds.bound {
		if o == s {
			delete(p.fds.bound, k)
		}
	}
}

// bind gives a socket a name that is not taken.
func (p *Process) bind(s *socket, a address) syscall.Errno {
	key, e := p.place(s, &a)
	if e != 0 {
		return e
	}
	if p.fds.bound == nil {
		p.fds.bound = map[address]*socket{}
	}
	p.fds.bound[key] = s
	s.name, s.bound = a, true
	return 0
}

// place checks that a name is free, making up what it leaves open, and gives
// the key for it.
func (p *Process) place(s *socket, a *address) (address, syscall.Errno) {
	switch {
	case s.family != syscall.AF_UNIX:
		return p.placeInet(a)
	case a.unix == "":
		for a.unix == "" || p.fds.bound[*a] != nil {
			a.unix = fmt.Sprintf("\x00%05x", p.fds.lastName&0xfffff)
			p.fds.lastName++
		}
		return *a, 0
	case a.unix[0] == 0:
		if p.fds.bound[*a] != nil {
			return address{}, syscall.EADDRINUSE
		}
		return *a, 0
	}
	switch ino, e := p.fs.Mksock(p.cwd, a.unix, 0o777&^p.umask); e {
	case 0:
		return address{inode: ino}, 0
	case syscall.EEXIST:
		return address{}, syscall.EADDRINUSE
	default:
		return address{}, e
	}
}

func (p *Process) placeInet(a *address) (address, syscall.Errno) {
	ip, port := a.inet.Addr(), a.inet.Port()
	switch {
	case !ip.IsUnspecified() && !ip.IsLoopback() || ip.Is4In6():
		return address{}, syscall.EADDRNOTAVAIL
	case port != 0 && port < firstOpen:
		return address{}, syscall.EACCES
	}
	taken := map[uint16]bool{}
	for _, o := range p.fds.bound {
		if n := o.name.inet; n.IsValid() && n.Addr().Is4() == ip.Is4() && (port == 0 || n.Addr() == ip || n.Addr().IsUnspecified() || ip.IsUnspecified()) {
			taken[n.Port()] = true
		}
	}
	for port == 0 {
		if n := p.fds.madeUpPort(); !taken[n] {
			port = n
		}
	}
	if taken[port] {
		return address{}, syscall.EADDRINUSE
	}
	a.inet = netip.AddrPortFrom(ip, port)
	return *a, 0
}

// madeUpPort gives the next port that may be free.
func (c *channels) madeUpPort() uint16 {
	port := firstPort + c.lastPort
	c.lastPort = (c.lastPort + 1) % (lastPort - firstPort + 1)
	return uint16(port)
}

func sysBind(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	name, e := p.addressArg(s.family, a[1], uint64(uint32(a[2])))
	switch {
	case e != 0:
		return fail(e)
	case s.bound || s.name != (address{}), s.family != syscall.AF_UNIX && !name.inet.IsValid():
		return fail(syscall.EINVAL)
	}
	return result(p.bind(s, name))
}

func sysListen(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	switch {
	case e != 0:
		return fail(e)
	case !s.connects():
		return fail(syscall.EOPNOTSUPP)
	case s.peer != nil, !s.bound && s.family == syscall.AF_UNIX:
		return fail(syscall.EINVAL)
	case !s.bound:
		if e := p.bind(s, address{inet: netip.AddrPortFrom(unspecified(s.family), 0)}); e != 0 {
			return fail(e)
		}
	}
	s.listening = true
	s.maxBacklog = int(min(uint32(a[1]), maxBacklog))
	return 0
}

func sysAccept(p *Process, a *args) uint64 { return sysAccept4(p, &args{a[0], a[1], a[2], 0}) }

func sysAccept4(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	flags := int(uint32(a[3]))
	switch {
	case e != 0:
		return fail(e)
	case flags&^sockFlags != 0:
		return fail(syscall.EINVAL)
	case !s.connects():
		return fail(syscall.EOPNOTSUPP)
	}
	out, size := a[1], a[2]
	return p.await(f, f.flags&syscall.O_NONBLOCK != 0, s.receiveTime, func() uint64 {
		switch {
		case !s.listening || s.noRead:
			return fail(syscall.EINVAL)
		case p.fds.used >= maxDescriptors:
			return fail(syscall.EMFILE)
		case len(s.backlog) == 0:
			return tryAgain
		}
		n := s.backlog[0]
		s.backlog = slices.Delete(s.backlog, 0, 1)
		s.outs++
		p.fds.pending--
		fd := p.put1(socketFile(n, flags), flags&sockCloexec != 0)
		if errnoOf(fd) == 0 && out != 0 {
			if ret := p.putAddress(out, size, n.peerName.named(n.family)); ret != 0 {
				p.closeFD(fd)
				return ret
			}
		}
		return fd
	})
}

// sysConnect connects to what listens inside the guest. What is outside is
// refused by policy.
func sysConnect(p *Process, a *args) uint64 {
	f, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	name, e := p.addressArg(s.family, a[1], uint64(uint32(a[2])))
	if e != 0 {
		return fail(e)
	}
	inet := s.family != syscall.AF_UNIX
	switch {
	case inet && !name.inet.IsValid():
		return fail(syscall.EAFNOSUPPORT)
	case inet && name.inet.Addr().IsUnspecified():
		name.inet = netip.AddrPortFrom(loopback(s.family), name.inet.Port())
	case inet && !name.inet.Addr().IsLoopback():
		return fail(syscall.EPERM)
	}
	switch {
	case !s.connects():
		return result(p.connectDatagram(s, name))
	case s.connecting:
		s.connecting = false
		return result(s.takeError())
	}
	nonblock := f.flags&syscall.O_NONBLOCK != 0
	return p.await(f, nonblock, s.transmitTime, func() uint64 {
		e := p.connect(s, name)
		if e == 0 && inet && nonblock {
			// Nothing is in progress, but programs know that a handshake takes time.
			s.connecting, e = true, syscall.EINPROGRESS
		}
		return result(e)
	})
}

// connectDatagram says where messages go to and come from.
func (p *Process) connectDatagram(s *socket, name address) syscall.Errno {
	if name.unix == "" {
		s.peer, s.peerName = nil, address{}
		return 0
	}
	o, e := p.partner(s, name)
	if e == 0 {
		s.peer, s.peerName = o, o.name
	}
	return e
}

// connect makes one attempt to connect.
func (p *Process) connect(s *socket, name address) syscall.Errno {
	switch {
	case s.listening:
		return syscall.EINVAL
	case s.peer != nil:
		return syscall.EISCONN
	}
	l, e := p.partner(s, name)
	switch {
	case e != 0:
		return e
	case !l.listening || l.noRead || p.fds.pending >= maxPending:
		return syscall.ECONNREFUSED
	case len(l.backlog) > l.maxBacklog && s.family != syscall.AF_UNIX:
		return syscall.ECONNREFUSED // Linux would try for minutes
	case len(l.backlog) > l.maxBacklog:
		return syscall.EAGAIN
	}
	n := p.newSocket(s.family, s.kind)
	n.limit = l.limit
	if n.name = l.name; name.inet.IsValid() {
		n.name = name
		ip := loopback(s.family)
		if s.bound && !s.name.inet.Addr().IsUnspecified() {
			ip = s.name.inet.Addr()
		}
		port := s.name.inet.Port()
		if !s.bound {
			port = p.fds.madeUpPort()
		}
		s.name.inet = netip.AddrPortFrom(ip, port)
	}
	n.peerName, s.peerName = s.name, n.name
	join(s, n)
	l.backlog = append(l.backlog, n)
	l.ins++
	p.fds.pending++
	return 0
}
