package linux

import (
	"encoding/binary"
	"slices"
	"syscall"
)

// option is a socket option: a level and a name in it.
type option struct{ level, name uint32 }

// Numbers of Linux that package syscall lacks, some on other systems only
// (include/uapi/asm-generic/socket.h, include/linux/net.h, include/linux/tcp.h,
// include/uapi/linux/in6.h).
const (
	soProtocol = 38
	soDomain   = 39
	soPeercred = 17
	v6Only     = 26

	sockNonblock    = 0x800
	sockCloexec     = 0x80000
	sockPacket      = 10
	msgNoSignal     = 0x4000
	tcpCork         = 3
	tcpKeepIdle     = 4
	tcpKeepInterval = 5
	tcpKeepCount    = 6
	tcpQuickAck     = 12
)

// keptOptions are remembered and told again: they mean nothing inside one
// machine.
var keptOptions = []option{
	{syscall.SOL_SOCKET, syscall.SO_REUSEADDR}, {syscall.SOL_SOCKET, 15}, // SO_REUSEPORT
	{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}, {syscall.SOL_SOCKET, syscall.SO_BROADCAST},
	{syscall.SOL_SOCKET, syscall.SO_OOBINLINE}, {syscall.SOL_SOCKET, 12}, // SO_PRIORITY
	{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}, {syscall.IPPROTO_TCP, tcpCork},
	{syscall.IPPROTO_TCP, tcpKeepIdle}, {syscall.IPPROTO_TCP, tcpKeepInterval},
	{syscall.IPPROTO_TCP, tcpKeepCount}, {syscall.IPPROTO_TCP, tcpQuickAck},
	{syscall.IPPROTO_TCP, 18}, // TCP_USER_TIMEOUT
	{syscall.IPPROTO_IP, syscall.IP_TOS}, {syscall.IPPROTO_IP, syscall.IP_TTL},
}

func (s *socket) keeps(o option) bool {
	return slices.Contains(keptOptions, o) && (o.level == syscall.SOL_SOCKET || s.family != syscall.AF_UNIX)
}

func sysGetsockopt(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	b, e := s.option(option{uint32(a[1]), uint32(a[2])})
	if e != 0 {
		return fail(e)
	}
	ret := p.putOption(a[3], a[4], b)
	if ret == 0 && a[1] == syscall.SOL_SOCKET && a[2] == syscall.SO_ERROR {
		s.err = 0
	}
	return ret
}

// putOption writes what an option holds, cut to the room there is.
func (p *Process) putOption(addr, size uint64, b []byte) uint64 {
	var n [4]byte
	if !p.cpu.CopyIn(n[:], size) {
		return fail(syscall.EFAULT)
	}
	room := int32(binary.LittleEndian.Uint32(n[:]))
	if room < 0 {
		return fail(syscall.EINVAL)
	}
	b = b[:min(len(b), int(room))]
	if !p.cpu.CopyOut(addr, b) {
		return fail(syscall.EFAULT)
	}
	return p.putBytes(size, binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
}

// option gives what an option holds.
func (s *socket) option(o option) ([]byte, syscall.Errno) {
	le := binary.LittleEndian
	number := func(v int) ([]byte, syscall.Errno) { return le.AppendUint32(nil, uint32(v)), 0 }
	if s.keeps(o) {
		return number(int(s.options[o]))
	}
	switch o {
	case option{syscall.IPPROTO_IPV6, v6Only}:
		if s.family == syscall.AF_INET6 {
			return number(1)
		}
	case option{syscall.SOL_SOCKET, syscall.SO_TYPE}:
		return number(s.kind)
	case option{syscall.SOL_SOCKET, soDomain}:
		return number(s.family)
	case option{syscall.SOL_SOCKET, soProtocol}:
		if s.family == syscall.AF_UNIX {
			return number(0)
		}
		return number(syscall.IPPROTO_TCP)
	case option{syscall.SOL_SOCKET, syscall.SO_ERROR}:
		return number(int(s.err))
	case option{syscall.SOL_SOCKET, syscall.SO_SNDBUF}, option{syscall.SOL_SOCKET, syscall.SO_RCVBUF}:
		return number(s.limit)
	case option{syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN}:
		if s.listening {
			return number(1)
		}
		return number(0)
	case option{syscall.SOL_SOCKET, syscall.SO_LINGER}:
		return make([]byte, 8), 0
	case option{syscall.SOL_SOCKET, soPeercred}:
		b := le.AppendUint32(nil, processID)
		return le.AppendUint32(le.AppendUint32(b, userID), userID), 0
	case option{syscall.SOL_SOCKET, syscall.SO_RCVTIMEO}:
		return encodeTimeval(s.receiveTime), 0
	case option{syscall.SOL_SOCKET, syscall.SO_SNDTIMEO}:
		return encodeTimeval(s.transmitTime), 0
	}
	return nil, syscall.ENOPROTOOPT
}

func encodeTimeval(ns uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, ns/1e9)
	return binary.LittleEndian.AppendUint64(b, ns%1e9/1e3)
}

func sysSetsockopt(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	o := option{uint32(a[1]), uint32(a[2])}
	need := 4
	times := o.level == syscall.SOL_SOCKET && (o.name == syscall.SO_RCVTIMEO || o.name == syscall.SO_SNDTIMEO)
	if times {
		need = 16
	}
	if int32(a[4]) < int32(need) {
		return fail(syscall.EINVAL)
	}
	b := make([]byte, need)
	if !p.cpu.CopyIn(b, a[3]) {
		return fail(syscall.EFAULT)
	}
	if times {
		ns, ok := timeval(b)
		switch {
		case !ok:
			return fail(syscall.EDOM)
		case o.name == syscall.SO_RCVTIMEO:
			s.receiveTime = ns
		default:
			s.transmitTime = ns
		}
		return 0
	}
	return result(s.setOption(o, binary.LittleEndian.Uint32(b)))
}

func (s *socket) setOption(o option, v uint32) syscall.Errno {
	if s.keeps(o) {
		if s.options == nil {
			s.options = map[option]uint32{}
		}
		s.options[o] = v
		return 0
	}
	switch o {
	case option{syscall.SOL_SOCKET, syscall.SO_SNDBUF}:
		s.limit = max(2*int(min(v, maxSendBuffer/2)), minSendBuffer)
		s.outs++
		return 0
	case option{syscall.SOL_SOCKET, syscall.SO_RCVBUF}, option{syscall.SOL_SOCKET, syscall.SO_LINGER}:
		return 0 // what has been sent always arrives
	case option{syscall.IPPROTO_IPV6, v6Only}:
		if s.family == syscall.AF_INET6 && v != 0 {
			return 0
		}
		return syscall.EINVAL
	}
	return syscall.ENOPROTOOPT
}

func sysGetsockname(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	if e != 0 {
		return fail(e)
	}
	return p.putAddress(a[1], a[2], s.name.named(s.family))
}

func sysGetpeername(p *Process, a *args) uint64 {
	_, s, e := p.socketArg(a[0])
	if e == 0 && s.peer == nil {
		e = syscall.ENOTCONN
	}
	if e != 0 {
		return fail(e)
	}
	return p.putAddress(a[1], a[2], s.peerName.named(s.family))
}
