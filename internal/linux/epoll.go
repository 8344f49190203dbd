package linux

import (
	"encoding/binary"
	"slices"
	"syscall"
)

const (
	// maxWatches bounds the registrations of one epoll, maxAllWatches those of
	// all together.
	maxWatches, maxAllWatches = 2048, 8192
	// epollEventSize is the size of struct epoll_event, which is packed.
	epollEventSize = 12

	epollAdd = 1
	epollDel = 2
	epollMod = 3

	epollExclusive = 1 << 28
	epollWakeup    = 1 << 29
	epollOneshot   = 1 << 30
	epollEdge      = 1 << 31
	// epollEvents are the bits of an event that poll knows, too.
	epollEvents = 0xffff
)

// epoll watches other files. It keeps no list of the ready ones: whoever waits
// looks at all of them.
type epoll struct {
	node
	watches []*watch
	// next is where the next search begins, so that everybody gets a turn.
	next int
}

// watch is one registration. It belongs to a descriptor's number and to the
// open file that it had.
type watch struct {
	fd     uint64
	file   *description
	events uint32
	data   uint64
	// ins and outs are the file's edges when it was last reported; fresh says
	// that it was not yet, disabled that EPOLLONESHOT has had its event.
	ins, outs       uint64
	fresh, disabled bool
}

func (*epoll) read(*Process, []byte, int64) (int, syscall.Errno)  { return 0, syscall.EINVAL }
func (*epoll) write(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EINVAL }

func (e *epoll) poll(p *Process) uint16 {
	for _, w := range e.watches {
		if w.ready(p) != 0 {
			return pollReadable
		}
	}
	return 0
}

func (e *epoll) release(p *Process) {
	p.fds.watches -= len(e.watches)
	e.watches = nil
}

// ready gives the events to report.
func (w *watch) ready(p *Process) uint32 {
	if w.disabled || w.file.refs == 0 {
		return 0
	}
	got := uint32(w.file.poll(p)) & (w.events | pollAlways) & epollEvents
	if w.events&epollEdge == 0 || got == 0 || w.fresh {
		return got
	}
	ins, outs := w.edges()
	news := uint32(0)
	if ins != w.ins {
		news |= pollReadable | pollPri | pollRdHup | pollAlways
	}
	if outs != w.outs {
		news |= pollWritable | pollAlways
	}
	if got&news == 0 {
		return 0
	}
	return got
}

func (w *watch) edges() (ins, outs uint64) {
	if c, ok := w.file.file.(channel); ok {
		return c.edges()
	}
	return 0, 0
}

// noteTimer tells a timer that its edges count.
func (w *watch) noteTimer() {
	if t, ok := w.file.file.(*timerFile); ok && w.events&epollEdge != 0 {
		t.watched = true
	}
}

// reported notes that the events were told.
func (w *watch) reported() {
	w.ins, w.outs = w.edges()
	w.fresh = false
	w.disabled = w.events&epollOneshot != 0
}

// purge forgets files that were closed.
func (e *epoll) purge(p *Process) {
	n := len(e.watches)
	e.watches = slices.DeleteFunc(e.watches, func(w *watch) bool { return w.file.refs == 0 })
	p.fds.watches -= n - len(e.watches)
}

func (e *epoll) find(fd uint64, f *description) int {
	return slices.IndexFunc(e.watches, func(w *watch) bool { return w.fd == fd && w.file == f })
}

// collect writes at most limit events to addr and counts them.
func (e *epoll) collect(p *Process, addr, limit uint64) uint64 {
	e.purge(p)
	n := len(e.watches)
	start, count := e.next, uint64(0)
	for i := 0; i < n && count < limit; i++ {
		at := (start + i) % n
		w := e.watches[at]
		got := w.ready(p)
		if got == 0 {
			continue
		}
		b := binary.LittleEndian.AppendUint32(nil, got)
		if !p.cpu.CopyOut(addr+count*epollEventSize, binary.LittleEndian.AppendUint64(b, w.data)) {
			if count == 0 {
				return fail(syscall.EFAULT)
			}
			break
		}
		w.reported()
		e.next = at + 1
		count++
	}
	return count
}

func sysEpollCreate(p *Process, a *args) uint64 {
	if int32(a[0]) <= 0 {
		return fail(syscall.EINVAL)
	}
	return sysEpollCreate1(p, &args{})
}

func sysEpollCreate1(p *Process, a *args) uint64 {
	if a[0]&^syscall.O_CLOEXEC != 0 {
		return fail(syscall.EINVAL)
	}
	return p.put1(&description{file: &epoll{node: p.newNode(0o600)}, flags: syscall.O_RDWR}, a[0] != 0)
}

func sysEpollCtl(p *Process, a *args) uint64 {
	var b [epollEventSize]byte
	if op := uint32(a[1]); op != epollDel && !p.cpu.CopyIn(b[:], a[3]) {
		return fail(syscall.EFAULT)
	}
	ep, f := p.fds.get(a[0]), p.fds.get(a[2])
	if ep == nil || f == nil {
		return fail(syscall.EBADF)
	}
	if _, ok := f.file.(channel); !ok {
		return fail(syscall.EPERM)
	}
	e, ok := ep.file.(*epoll)
	if !ok || f == ep {
		return fail(syscall.EINVAL)
	}
	if _, ok := f.file.(*epoll); ok {
		return fail(syscall.ELOOP) // none watches another one here
	}
	w := &watch{
		fd: a[2], file: f, fresh: true,
		events: binary.LittleEndian.Uint32(b[:]), data: binary.LittleEndian.Uint64(b[4:]),
	}
	return result(e.control(p, uint32(a[1]), w))
}

// control adds, changes or removes a registration.
func (e *epoll) control(p *Process, op uint32, w *watch) syscall.Errno {
	i := e.find(w.fd, w.file)
	switch {
	case op != epollAdd && op != epollDel && op != epollMod:
		return syscall.EINVAL
	case op == epollAdd && i >= 0:
		return syscall.EEXIST
	case op != epollAdd && i < 0:
		return syscall.ENOENT
	}
	switch op {
	case epollDel:
		e.watches = slices.Delete(e.watches, i, i+1)
		p.fds.watches--
		return 0
	case epollMod:
		if (e.watches[i].events|w.events)&epollExclusive != 0 {
			return syscall.EINVAL
		}
		e.watches[i] = w
		w.noteTimer()
		return 0
	}
	e.purge(p)
	if len(e.watches) >= maxWatches || p.fds.watches >= maxAllWatches {
		return syscall.ENOSPC
	}
	e.watches = append(e.watches, w)
	p.fds.watches++
	w.noteTimer()
	return 0
}

func sysEpollWait(p *Process, a *args) uint64 { return p.epollWait(a, milliseconds(a[3]), nil) }

func sysEpollPwait(p *Process, a *args) uint64 {
	mask, e := p.waitMask(a[4], a[5])
	if e != 0 {
		return fail(e)
	}
	return p.epollWait(a, milliseconds(a[3]), mask)
}

func sysEpollPwait2(p *Process, a *args) uint64 {
	ns, e := p.timeout(a[3])
	if e != 0 {
		return fail(e)
	}
	mask, e := p.waitMask(a[4], a[5])
	if e != 0 {
		return fail(e)
	}
	return p.epollWait(a, ns, mask)
}

func (p *Process) epollWait(a *args, ns uint64, mask *uint64) uint64 {
	const most = 1<<31 - 1
	limit := uint64(uint32(a[2]))
	if limit == 0 || limit > most/epollEventSize {
		return fail(syscall.EINVAL)
	}
	f := p.fds.get(a[0])
	if f == nil {
		return fail(syscall.EBADF)
	}
	e, ok := f.file.(*epoll)
	if !ok {
		return fail(syscall.EINVAL)
	}
	addr := a[1]
	return p.waitReady(func() uint64 { return e.collect(p, addr, limit) }, ns, mask, nil, f)
}
