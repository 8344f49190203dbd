package linux

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// Reserved descriptors: how the driver inside the guest talks to the host. The
// guest may use them too; whatever it says there is only a claim, and hurts
// nobody but itself.
const (
	reservedFD  = 1 << 20
	reservedFDs = 6
	// parkFD: preadv([header, source], status) ends the run with the status
	// and returns when the next request comes. It returns 0 when the run had an
	// interrupt: the driver is to take what is still on its way of it and to
	// park again.
	parkFD = reservedFD
	// ringFD: preadv([out, err]) tells where the output rings are.
	ringFD = reservedFD + 1
	// sourceFD: preadv([buffer], offset) reads the request's source text.
	sourceFD = reservedFD + 2
	// valueFD: write(repr) sets the value of the run.
	valueFD = reservedFD + 3
	// obeyFD: write() says that the program gave way to an interrupt and only
	// its traceback is still to be printed.
	obeyFD = reservedFD + 4
	// callFD: preadv([name, request, reply], number) calls the host (hostcall.go)
	// and write(number) drops the call.
	callFD = reservedFD + 5
)

// ringHeader is the size of what precedes a ring's bytes: a 32-bit count of
// the bytes that wait in it and, in the first ring, the 32-bit nonce that the
// driver confirmed last.
const ringHeader = 8

// maxRing bounds a ring that the driver may register.
const maxRing = 1 << 20

// ringSize reports whether a ring may have n bytes.
func ringSize(n uint64) bool { return n > ringHeader && n <= maxRing }

// ring is a buffer in guest memory in which output waits. The driver puts it
// there without a system call; the host takes it when the guest parks, writes
// to the same stream, or ends in whatever way.
type ring struct{ addr, size uint64 }

// mailbox is the driver's side door.
type mailbox struct {
	// request is where the parked driver wants the next request.
	request []iovec
	rings   [3]ring // by descriptor; 0 is unused
	source  []byte
	value   []byte
	// maxValue bounds value.
	maxValue int
	// interrupted says that this run has had an interrupt, and parking that its
	// driver was asked to park again: from then on the run gets none.
	interrupted, parking bool
}

// SavedMailbox is a mailbox in a form that can be kept in a file.
type SavedMailbox struct {
	Request [][2]uint64
	Rings   [3][2]uint64
}

func (m *mailbox) save() SavedMailbox {
	var s SavedMailbox
	for _, v := range m.request {
		s.Request = append(s.Request, [2]uint64{v.addr, v.n})
	}
	for i, r := range m.rings {
		s.Rings[i] = [2]uint64{r.addr, r.size}
	}
	return s
}

func (s *SavedMailbox) check() error {
	if len(s.Request) != 2 {
		return fmt.Errorf("%w: request", ErrState)
	}
	for _, r := range s.Rings {
		if n := r[1]; n != 0 && !ringSize(n) {
			return fmt.Errorf("%w: ring", ErrState)
		}
	}
	return nil
}

func (m *mailbox) restore(s SavedMailbox) error {
	if err := s.check(); err != nil {
		return err
	}
	m.request = m.request[:0]
	for _, v := range s.Request {
		m.request = append(m.request, iovec{v[0], v[1]})
	}
	for i, r := range s.Rings {
		m.rings[i] = ring{r[0], r[1]}
	}
	m.source, m.value = nil, nil
	m.interrupted, m.parking = false, false
	return nil
}

// mailboxRead answers preadv on a reserved descriptor.
func (p *Process) mailboxRead(fd uint64, iov []iovec, off int64) uint64 {
	m := &p.mailbox
	switch fd {
	case parkFD:
		if len(iov) != 2 || off < 0 {
			return fail(syscall.EINVAL)
		}
		if m.interrupted && !m.parking {
			m.parking = true
			p.withdrawInterrupt()
			return 0
		}
		m.request = append(m.request[:0], iov...)
		p.end(Outcome{Kind: Parked, Status: off})
		return 0
	case ringFD:
		if len(iov) != 2 {
			return fail(syscall.EINVAL)
		}
		if m.rings[1].size != 0 { // the driver has been here
			return fail(syscall.EPERM)
		}
		// Both or none: half a pair would count as the driver's.
		if !ringSize(iov[0].n) || !ringSize(iov[1].n) {
			return fail(syscall.EINVAL)
		}
		for i, v := range iov {
			m.rings[i+1] = ring{v.addr, v.n}
		}
		return 0
	case sourceFD:
		if len(iov) != 1 || off < 0 || off > int64(len(m.source)) {
			return fail(syscall.EINVAL)
		}
		b := m.source[off:]
		b = b[:min(uint64(len(b)), iov[0].n)]
		if !p.cpu.CopyOut(iov[0].addr, b) {
			return fail(syscall.EFAULT)
		}
		return uint64(len(b))
	case callFD:
		if off < 0 {
			return fail(syscall.EINVAL)
		}
		return p.hostCall(iov, uint64(off))
	}
	return fail(syscall.EBADF)
}

// mailboxWrite answers write on a reserved descriptor.
func (p *Process) mailboxWrite(fd, addr, n uint64) uint64 {
	if fd == obeyFD && p.obeyed != nil {
		p.obeyed()
		return 0
	}
	if fd == callFD {
		return p.dropHostCall(addr, n)
	}
	if fd != valueFD {
		return fail(syscall.EBADF)
	}
	n = min(n, uint64(p.mailbox.maxValue))
	b := make([]byte, n)
	if !p.cpu.CopyIn(b, addr) {
		return fail(syscall.EFAULT)
	}
	p.mailbox.value = b
	return n
}

// Resume gives the parked driver its next request: a header, and source text
// of which the driver fetches what does not fit its buffer. The text must not
// change until the run ends. It reports false when the driver's buffers are
// not where it said; the process is then of no use.
func (p *Process) Resume(header, source []byte, maxValue int) bool {
	m := &p.mailbox
	if len(m.request) != 2 || uint64(len(header)) > m.request[0].n {
		return false
	}
	first := source[:min(uint64(len(source)), m.request[1].n)]
	if !p.cpu.CopyOut(m.request[0].addr, header) || !p.cpu.CopyOut(m.request[1].addr, first) {
		return false
	}
	m.request = m.request[:0]
	m.source, m.value, m.maxValue = source, nil, maxValue
	m.interrupted, m.parking = false, false
	p.cpu.Regs().RAX = uint64(len(header) + len(first))
	p.mem.denied = 0
	return true
}

// Drain passes on the output that waits in the rings.
func (p *Process) Drain() {
	p.drain(1)
	p.drain(2)
}

func (p *Process) drain(fd int) {
	r := p.mailbox.rings[fd]
	if r.size == 0 {
		return
	}
	var count [4]byte
	if !p.cpu.CopyIn(count[:], r.addr) {
		return
	}
	n := uint64(binary.LittleEndian.Uint32(count[:]))
	if n == 0 {
		return
	}
	n = min(n, r.size-ringHeader)
	b := make([]byte, n)
	if !p.cpu.CopyIn(b, r.addr+ringHeader) {
		return
	}
	if p.cpu.CopyOut(r.addr, make([]byte, 4)) {
		p.output(fd, b)
	}
}

// Confirmed reports whether the driver has confirmed a nonce. No program of the
// user's runs before it does, so whatever leaves the guest afterwards comes
// later.
func (p *Process) Confirmed(nonce uint32) bool {
	var b [4]byte
	r := p.mailbox.rings[1]
	return r.size >= ringHeader && p.cpu.CopyIn(b[:], r.addr+4) && binary.LittleEndian.Uint32(b[:]) == nonce
}

// Value is what the driver gave as the value of the run.
func (p *Process) Value() []byte { return p.mailbox.value }

// MemoryDenied says whether the guest asked for memory it could not have since
// the last Resume.
func (p *Process) MemoryDenied() bool { return p.mem.denied > 0 }
