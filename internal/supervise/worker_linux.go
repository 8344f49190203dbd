package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Worker is a worker process that was acquired.
type Worker struct {
	// ID is its number, which the supervisor never uses again.
	ID uint64
	// PID is its process, for people; 0 when it is not known. It may belong to
	// another process once Done is closed.
	PID int
	// Ready is what it serves.
	Ready wire.Ready
	// Conn leads to it; it speaks package wire. Side is the side line, for what is
	// said during a call. Release closes both.
	Conn, Side net.Conn

	supervisor *Supervisor
	pidfd      *os.File

	mu        sync.Mutex
	releasing bool
	cause     error
	problem   error         // the last that kept it from being confirmed
	done      chan struct{} // closed when the process has ended
	confirmed chan struct{} // closed when nothing of it is left
}

// newWorker takes over the files that came with a grant: sockets and pidfd.
func newWorker(s *Supervisor, m message, files []*os.File) (*Worker, error) {
	if len(files) != maxFiles {
		return nil, fmt.Errorf("connection of a worker: %w", unix.EMFILE)
	}
	conn, err := connection(files[0])
	if err != nil {
		closeAll(files[1:])
		return nil, err
	}
	side, err := connection(files[1])
	if err != nil {
		_ = conn.Close()
		closeAll(files[2:])
		return nil, err
	}
	return &Worker{
		ID: m.Worker, PID: pidOf(files[2]), Ready: *m.Ready, Conn: conn, Side: side, supervisor: s, pidfd: files[2],
		done: make(chan struct{}), confirmed: make(chan struct{}),
	}, nil
}

// connection takes over a socket.
func connection(f *os.File) (net.Conn, error) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("connection of a worker: %w", err)
	}
	return c, nil
}

// pidOf is the process of a pidfd as /proc tells it (proc_pid_fdinfo(5)), and 0
// when it does not. Such a number can be used again by another process: nothing
// is ever done with it.
func pidOf(pidfd *os.File) int {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd.Fd()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		if text, found := strings.CutPrefix(line, "Pid:"); found {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				return 0
			}
			return max(0, pid)
		}
	}
	return 0
}

// Done is closed when the process has ended, for whatever reason.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Cause says, when Done is closed, why: a *GoneError, ErrReleased, or
// ErrSupervisor if it was killed because nobody watched it any more.
func (w *Worker) Cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Release ends the worker, if it has not ended yet, and waits until nothing of
// it is left. When the context ends first the error is ErrUnconfirmed; it is
// tried further, and Release can be called again.
func (w *Worker) Release(ctx context.Context) error {
	w.abandon()
	select {
	case <-w.confirmed:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return errors.Join(fmt.Errorf("worker %d: %w: %w", w.ID, ErrUnconfirmed, ctx.Err()), w.problem)
	}
}

// abandon begins to release.
func (w *Worker) abandon() {
	w.mu.Lock()
	first := !w.releasing
	w.releasing = true
	w.mu.Unlock()
	if first {
		closeBoth(w.Conn, w.Side)
		w.supervisor.send(message{Kind: kindRelease, Worker: w.ID})
	}
}

// Ended says whether the process has ended, told or not.
func (w *Worker) Ended() bool {
	select {
	case <-w.done:
		return true
	default:
	}
	raw, err := w.pidfd.SyscallConn() // which knows of a Close meanwhile
	if err != nil {
		return true
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // a failure is no end
	})
	return err != nil || n > 0
}

// end notes why the process has ended; the first reason counts.
func (w *Worker) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return
	}
	if w.cause = why; w.releasing {
		w.cause = ErrReleased
	}
	close(w.done)
}

func (w *Worker) trouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = err
}

// confirm notes that nothing is left. It is called once.
func (w *Worker) confirm() {
	_ = w.pidfd.Close()
	close(w.confirmed)
}

// killed kills the process, whose supervisor is gone, and waits for its end.
func (w *Worker) killed() {
	closeBoth(w.Conn, w.Side)
	fd := int(w.pidfd.Fd())
	// A process that has ended already cannot be told, which is all right.
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	w.end(ErrSupervisor)
	w.confirm()
}

func closeBoth(a, b net.Conn) {
	_ = a.Close()
	_ = b.Close()
}
