package linux

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
)

const (
	// MaxHostName bounds the name of a call to the host, in bytes.
	MaxHostName = 255
	// MaxHostBytes bounds a request and a reply, in bytes: 8 MiB and what is told
	// about them.
	MaxHostBytes = 8<<20 + 68<<10
	// MaxHostText bounds the words of a failure, in bytes.
	MaxHostText = 4 << 10
	// maxHostCalls bounds the calls that a guest has begun and not ended; a further
	// one waits.
	maxHostCalls = 16
	// hostFailed is set in the length of a reply that is the words of a failure.
	hostFailed = 1 << 40
)

// HostFunc begins a call to the host and returns at once. It gives zero when it
// has taken the call and will see to an answer, EAGAIN when there is no room for
// it now (Look makes the process ask again), and anything else is what the guest
// hears. Cancel, if not nil, is called once when nobody waits for the answer any
// more, also after it has been given. It is called on the goroutine that runs the
// process.
type HostFunc func(c *HostCall) (cancel func(), e syscall.Errno)

// HostCall is a call of the guest to the host.
type HostCall struct {
	p             *Process
	of            *thread // which made it
	name, request iovec
	cancel        func()
	answer        atomic.Pointer[hostAnswer]
}

type hostAnswer struct {
	reply  []byte
	failed bool
	errno  syscall.Errno
}

// Size is how many bytes the request has, at most MaxHostBytes.
func (c *HostCall) Size() int { return int(c.request.n) }

// Take copies name and request from the guest's memory. Only the HostFunc may call
// it; it reports false, for which EFAULT is the answer, when they are not there.
func (c *HostCall) Take() (name string, request []byte, ok bool) {
	b, request := make([]byte, c.name.n), make([]byte, c.request.n)
	if !c.p.cpu.CopyIn(b, c.name.addr) || !c.p.cpu.CopyIn(request, c.request.addr) {
		return "", nil, false
	}
	return string(b), request, true
}

// Answer ends the call with a reply, or with the words of a failure. What is too
// long is a failure, or cut. Only the first answer counts, and none after the
// guest has dropped the call. It may be called from any goroutine; the process
// takes notice at its next Look.
func (c *HostCall) Answer(reply []byte, failed bool) {
	switch {
	case failed:
		reply = reply[:min(len(reply), MaxHostText)]
	case len(reply) > MaxHostBytes:
		reply, failed = []byte("the host's reply is too large"), true
	}
	c.finish(&hostAnswer{reply: reply, failed: failed})
}

// Refuse ends the call with an error. It is otherwise like Answer.
func (c *HostCall) Refuse(e syscall.Errno) { c.finish(&hostAnswer{errno: e}) }

func (c *HostCall) finish(a *hostAnswer) { c.answer.CompareAndSwap(nil, a) }

// drop makes sure that the call is over: whoever waits for it hears e.
func (c *HostCall) drop(e syscall.Errno) {
	c.Refuse(e)
	if c.cancel != nil {
		c.cancel()
	}
}

// hostCalls are the guest's calls to the host.
type hostCalls struct {
	begin HostFunc
	// calls by the number that the guest gave them. A call of a number that is
	// there waits for the same answer, so that one which a signal interrupted can
	// be made again without the host hearing it twice.
	calls map[uint64]*HostCall
}

// Look makes the process look again at what its threads wait for. It may be
// called from any goroutine.
func (p *Process) Look() {
	p.ctl.tick.Store(true)
	select {
	case p.ctl.wake <- struct{}{}:
	default:
	}
	// Who is not in the machine sees the tick before it is the next time; another
	// exit would only cost time.
	if p.ctl.running.Load() {
		p.cpu.Interrupt()
	}
}

// hostAwaited reports whether a thread waits for the host.
func (p *Process) hostAwaited() bool {
	for _, t := range p.threads {
		if t.waiting && t.wait.host {
			return true
		}
	}
	return false
}

// DropHostCalls ends every call of the guest to the host. Threads that wait for
// one hear ECANCELED, once they are run.
func (p *Process) DropHostCalls() {
	for _, c := range p.host.calls {
		c.drop(syscall.ECANCELED)
	}
	clear(p.host.calls)
}

// dropHostCallsBeside ends the calls of every thread but the main one, which hear
// ECANCELED: an interrupt reaches the main thread alone, and it would wait in vain
// for those that wait for the host.
func (p *Process) dropHostCallsBeside() {
	for number, c := range p.host.calls {
		if c.of.id != processID {
			delete(p.host.calls, number)
			c.drop(syscall.ECANCELED)
		}
	}
}

// hostCall answers preadv([name, request, reply], number) on callFD: it waits for
// the host's reply and gives its length, with hostFailed when it is the words of a
// failure. A reply that does not fit is kept for a second call of the number.
func (p *Process) hostCall(iov []iovec, number uint64) uint64 {
	if len(iov) != 3 || iov[0].n > MaxHostName {
		return fail(syscall.EINVAL)
	}
	if iov[1].n > MaxHostBytes {
		return fail(syscall.EMSGSIZE)
	}
	c, t := p.host.calls[number], p.current
	attempt := func() uint64 {
		if c == nil {
			begun, e := p.beginHostCall(t, iov[0], iov[1], number)
			if e != 0 {
				return fail(e)
			}
			c = begun
		}
		return p.endHostCall(c, iov[2], number)
	}
	ret := attempt()
	if ret != tryAgain {
		return ret
	}
	return p.block(wait{host: true, restart: true, try: func() (uint64, bool) {
		ret := attempt()
		return ret, ret != tryAgain
	}})
}

// beginHostCall hands a thread's call to the host.
func (p *Process) beginHostCall(t *thread, name, request iovec, number uint64) (*HostCall, syscall.Errno) {
	h := &p.host
	switch {
	case h.begin == nil:
		return nil, syscall.ENOSYS
	case h.calls[number] != nil:
		return nil, syscall.EBUSY // another thread was first
	case len(h.calls) >= maxHostCalls:
		return nil, syscall.EAGAIN
	}
	c := &HostCall{p: p, of: t, name: name, request: request}
	var e syscall.Errno
	if c.cancel, e = h.begin(c); e != 0 {
		return nil, e
	}
	if h.calls == nil {
		h.calls = map[uint64]*HostCall{}
	}
	h.calls[number] = c
	return c, 0
}

// endHostCall gives the guest the answer to a call, if there is one.
func (p *Process) endHostCall(c *HostCall, to iovec, number uint64) uint64 {
	a := c.answer.Load()
	if a == nil {
		return tryAgain
	}
	ret := uint64(len(a.reply))
	if a.failed {
		ret |= hostFailed
	}
	switch {
	case a.errno != 0:
		ret = fail(a.errno)
	case uint64(len(a.reply)) > to.n:
		return ret
	case !p.cpu.CopyOut(to.addr, a.reply):
		ret = fail(syscall.EFAULT)
	}
	if p.host.calls[number] == c {
		delete(p.host.calls, number)
		// Another thread may wait for the same call.
		c.answer.Store(&hostAnswer{errno: syscall.EBUSY})
		c.drop(syscall.EBUSY)
	}
	return ret
}

// dropHostCall answers write(number) on callFD, eight bytes, little endian: the
// guest does not want the answer any more.
func (p *Process) dropHostCall(addr, n uint64) uint64 {
	var b [8]byte
	if n != uint64(len(b)) {
		return fail(syscall.EINVAL)
	}
	if !p.cpu.CopyIn(b[:], addr) {
		return fail(syscall.EFAULT)
	}
	number := binary.LittleEndian.Uint64(b[:])
	if c := p.host.calls[number]; c != nil {
		delete(p.host.calls, number)
		c.drop(syscall.ECANCELED)
	}
	return n
}
