package wire

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Line is a connection whose reads look for data a moment before they sleep.
// The other side of a short call answers in less time than it takes to wake a
// sleeping thread on an idle processor, 40 microseconds on a virtual machine.
//
// Looking costs processor time, so it is done where it has paid off lately, and
// never by so many at once that those who are waited for find no processor. One
// goroutine may read.
type Line struct {
	net.Conn
	raw    syscall.RawConn
	budget time.Duration
	// skip is how many reads are to sleep at once, of the last that were told
	// to: each vain look doubles it.
	skip, last int
}

// maxSkip bounds how long a line that has not paid off goes without a look.
const maxSkip = 64

// looking counts the lines of this process that look.
var looking atomic.Int32

// NewLine makes a line of a socket. Reads look for data at most so long.
func NewLine(c net.Conn, budget time.Duration) *Line {
	l := &Line{Conn: c, budget: budget}
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
		n, failed = receive(int(fd), b)
		if looked || !errors.Is(failed, unix.EAGAIN) {
			return !errors.Is(failed, unix.EAGAIN)
		}
		looked = true
		if !l.mayLook() {
			return false
		}
		defer looking.Add(-1)
		for start := time.Now(); time.Since(start) < l.budget; {
			if n, failed = receive(int(fd), b); !errors.Is(failed, unix.EAGAIN) {
				l.skip, l.last = 0, 0
				return true
			}
		}
		l.last = min(max(1, 2*l.last), maxSkip)
		l.skip = l.last
		return false
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// mayLook says whether to look, and counts it.
func (l *Line) mayLook() bool {
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

// receive reads without waiting.
func receive(fd int, b []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
