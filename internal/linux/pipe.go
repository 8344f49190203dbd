package linux

import (
	"math/bits"
	"syscall"
)

const (
	// pipeSize is what a pipe holds at first, maxPipeSize what it can be made to
	// hold (man 7 pipe).
	pipeSize    = 64 << 10
	maxPipeSize = 1 << 20
	// pipeBuf is PIPE_BUF: writes of no more bytes are all or nothing.
	pipeBuf = 4096
)

// pipe is what its two ends share.
type pipe struct {
	node
	queue
	size int
	// closed is set for each end that is gone, the one to read from first.
	closed [2]bool
}

// pipeEnd is one end of a pipe.
type pipeEnd struct {
	*pipe
	// end is 0 for the one to read from, 1 for the one to write to.
	end int
}

// read is not how bytes leave a pipe: see scatter.
func (*pipeEnd) read(*Process, []byte, int64) (int, syscall.Errno) { return 0, syscall.EINVAL }

func (e *pipeEnd) scatter(p *Process, iov []iovec) (uint64, syscall.Errno) {
	if e.n == 0 && !e.closed[1] && length(iov) > 0 {
		return 0, syscall.EAGAIN
	}
	n, err := p.spread(&e.queue, iov)
	if n > 0 {
		e.drop(&p.fds.channels, n)
		e.outs++
	}
	return uint64(n), err
}

func (e *pipeEnd) write(p *Process, b []byte, _ int64) (int, syscall.Errno) {
	room := e.size - e.n
	switch {
	case len(b) == 0:
		return 0, 0
	case e.closed[0]:
		return 0, syscall.EPIPE
	case room <= 0 || room < len(b) && len(b) <= pipeBuf:
		return 0, syscall.EAGAIN
	case len(b) <= pipeBuf && !e.room(&p.fds.channels, len(b)):
		return 0, syscall.ENOMEM
	}
	n := e.put(&p.fds.channels, b[:min(len(b), room)])
	if n == 0 {
		return 0, syscall.ENOMEM
	}
	e.ins++
	return n, 0
}

// record keeps what has to be all or nothing together.
func (e *pipeEnd) record(n uint64) int {
	if n > pipeBuf {
		return 0
	}
	return int(n)
}

func (e *pipeEnd) poll(*Process) uint16 {
	got := uint16(0)
	if e.end == 0 {
		if e.n > 0 {
			got |= pollReadable
		}
		if e.closed[1] {
			got |= pollHup
		}
		return got
	}
	if e.size-e.n >= pipeBuf {
		got |= pollWritable
	}
	if e.closed[0] {
		got |= pollErr
	}
	return got
}

func (e *pipeEnd) release(p *Process) {
	e.closed[e.end] = true
	e.ins++
	e.outs++
	if e.closed[0] {
		e.drop(&p.fds.channels, e.n) // nobody can read it any more
	}
}

// resize makes the pipe hold n bytes, rounded up as Linux does.
func (e *pipeEnd) resize(n uint64) uint64 {
	switch {
	case n > maxPipeSize:
		return fail(syscall.EPERM)
	case n == 0:
		return fail(syscall.EINVAL)
	}
	size := max(1<<bits.Len64(n-1), chunkSize)
	if size < e.n {
		return fail(syscall.EBUSY)
	}
	e.size = size
	e.outs++
	return uint64(size)
}

func sysPipe(p *Process, a *args) uint64 { return sysPipe2(p, &args{a[0], 0}) }

// sysPipe2 does not offer O_DIRECT, pipes that keep writes apart.
func sysPipe2(p *Process, a *args) uint64 {
	if a[1]&^(syscall.O_NONBLOCK|syscall.O_CLOEXEC) != 0 {
		return fail(syscall.EINVAL)
	}
	nonblock := int(a[1]) & syscall.O_NONBLOCK
	pp := &pipe{node: p.newNode(syscall.S_IFIFO | 0o600), size: pipeSize}
	return p.put2(a[0],
		&description{file: &pipeEnd{pp, 0}, flags: syscall.O_RDONLY | nonblock},
		&description{file: &pipeEnd{pp, 1}, flags: syscall.O_WRONLY | nonblock},
		a[1]&syscall.O_CLOEXEC != 0)
}
