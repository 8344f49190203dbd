package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Worker is a worker process that was acquired.
type Worker struct {
	// ID is its number, which the supervisor never uses again.
	ID uint64
	// Ready is what it serves.
	Ready wire.Ready
	// Conn leads to it; it speaks package wire. Release closes it.
	Conn net.Conn

	supervisor *Supervisor
	pidfd      *os.File

	mu        sync.Mutex
	releasing bool
	cause     error
	problem   error         // the last that kept it from being confirmed
	done      chan struct{} // closed when the process has ended
	confirmed chan struct{} // closed when nothing of it is left
}

// newWorker takes over the files that came with a grant: socket and pidfd.
func newWorker(s *Supervisor, m message, files []*os.File) (*Worker, error) {
	if len(files) != maxFiles {
		return nil, fmt.Errorf("connection of a worker: %w", unix.EMFILE)
	}
	conn, err := net.FileConn(files[0])
	_ = files[0].Close()
	if err != nil {
		_ = files[1].Close()
		return nil, fmt.Errorf("connection of a worker: %w", err)
	}
	return &Worker{
		ID: m.Worker, Ready: *m.Ready, Conn: conn, supervisor: s, pidfd: files[1],
		done: make(chan struct{}), confirmed: make(chan struct{}),
	}, nil
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
		_ = w.Conn.Close()
		w.supervisor.send(message{Kind: kindRelease, Worker: w.ID})
	}
}

// ended says whether the process has ended, told or not.
func (w *Worker) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.pidfd.Fd()), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
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
	_ = w.Conn.Close()
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
