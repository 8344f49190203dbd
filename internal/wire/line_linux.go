package wire

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Line is a connection whose reads look for data a moment before they sleep.
// The other side of a short call answers in less time than it takes to wake a
// sleeping thread on an idle processor, 40 microseconds on a virtual machine.
// One goroutine may read.
type Line struct {
	net.Conn
	raw  syscall.RawConn
	look look
}

// NewLine makes a line of a socket. Reads look for data at most so long.
func NewLine(c net.Conn, budget time.Duration) *Line {
	l := &Line{Conn: c, look: look{budget: budget}}
	if s, ok := c.(syscall.Conn); ok {
		l.raw, _ = s.SyscallConn() // without it, reads are plain
	}
	return l
}

// Read implements io.Reader.
func (l *Line) Read(b []byte) (int, error) {
	if l.raw == nil || len(b) == 0 {
		return l.Conn.Read(b)
	}
	var n int
	var failed error
	looked := false
	err := l.raw.Read(func(fd uintptr) bool {
		if looked {
			n, failed = receive(int(fd), b, unix.MSG_DONTWAIT)
		} else {
			n, failed = l.look.receive(int(fd), b)
		}
		looked = true
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err != nil {
		return 0, err
	}
	return ended(n, failed)
}

// Stream is a blocking socket that a thread reads which does nothing else: it is
// woken without the help of another. Read and Write may be used at the same time.
type Stream struct {
	fd   int
	look look

	mu     sync.Mutex
	closed bool
}

// NewStream takes over a blocking socket. Reads look for data at most so long
// before they sleep.
func NewStream(fd int, budget time.Duration) (*Stream, error) {
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, err
	}
	return &Stream{fd: fd, look: look{budget: budget}}, nil
}

// Read implements io.Reader.
func (s *Stream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := s.look.receive(s.fd, b)
	if errors.Is(err, unix.EAGAIN) {
		n, err = receive(s.fd, b, 0)
	}
	return ended(n, err)
}

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	for at := 0; at < len(b); {
		n, err := unix.Write(s.fd, b[at:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return at, err
		default:
			at += n
		}
	}
	return len(b), nil
}

// Stop has reads and writes end, those under way too.
func (s *Stream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // a failure means that it has ended
	}
}

// Close closes the socket. Nobody may read or write any more.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return unix.Close(s.fd)
}

// look looks for data on a socket. It costs processor time, so it is done where
// it has paid off lately, and never by so many at once that those who are waited
// for find no processor.
type look struct {
	budget time.Duration
	// skip is how many reads are still to go without; each vain look doubles
	// how many are.
	skip, last int
}

// maxSkip bounds how long a line that has not paid off goes without a look.
const maxSkip = 64

// looking counts those of this process that look.
var looking atomic.Int32

// receive reads what is there or comes soon; EAGAIN if nothing does.
func (l *look) receive(fd int, b []byte) (int, error) {
	n, err := receive(fd, b, unix.MSG_DONTWAIT)
	if !errors.Is(err, unix.EAGAIN) || !l.may() {
		return n, err
	}
	defer looking.Add(-1)
	for start := time.Now(); time.Since(start) < l.budget; {
		if n, err = receive(fd, b, unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			l.skip, l.last = 0, 0
			return n, err
		}
	}
	l.last = min(max(1, 2*l.last), maxSkip)
	l.skip = l.last
	return n, err
}

// may says whether to look, and counts it.
func (l *look) may() bool {
	if l.skip > 0 {
		l.skip--
		return false
	}
	if looking.Add(1) > int32(runtime.GOMAXPROCS(0)/2) {
		looking.Add(-1)
		return false
	}
	return true
}

func receive(fd int, b []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, flags)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// ended is what a read gives.
func ended(n int, err error) (int, error) {
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
