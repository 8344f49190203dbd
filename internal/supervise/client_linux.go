package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// MaxSpare bounds Config.Spare.
	MaxSpare = 128
	// DefaultStartTimeout is used where Config has none.
	DefaultStartTimeout = 30 * time.Second

	runtimeVariable = "XDG_RUNTIME_DIR"
)

// Config says what a supervisor is to keep.
type Config struct {
	// Path is the program of the helpers, absolute; empty for this program.
	Path string
	// Lock is the open file of the owner's lock. The supervisor has a copy until
	// it ends.
	Lock *os.File
	// Role is the name of the helper that is a worker.
	Role string
	// Start is what each worker is told.
	Start wire.Start
	// Spare is how many workers are kept ready, 0 to MaxSpare.
	Spare int
	// Limits bound each worker.
	Limits Limits
	// StartTimeout bounds how long a worker may take to be ready.
	StartTimeout time.Duration
}

func (c *Config) check() error {
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	switch {
	case c.Path != "" && !filepath.IsAbs(c.Path):
		return fmt.Errorf("%w: the program %q is not absolute", ErrConfig, c.Path)
	case c.Lock == nil:
		return fmt.Errorf("%w: no lock", ErrConfig)
	case c.Role == "" || c.Role == Role:
		return fmt.Errorf("%w: the role %q", ErrConfig, c.Role)
	case c.Spare < 0 || c.Spare > MaxSpare:
		return fmt.Errorf("%w: %d spare workers; 0 to %d", ErrConfig, c.Spare, MaxSpare)
	case c.StartTimeout < 0:
		return fmt.Errorf("%w: a start time-out of %v", ErrConfig, c.StartTimeout)
	}
	return c.Limits.check()
}

// Supervisor is the host's hold on a supervisor process. Its methods may be
// called from any goroutine.
type Supervisor struct {
	control *channel
	cmd     *exec.Cmd
	said    *head
	out     *outbox

	// mu comes before the locks of outbox and Worker.
	mu      sync.Mutex
	pool    pool
	workers map[uint64]*Worker
	lost    bool

	done chan struct{}
	err  error // set when done is closed
}

// Start starts a supervisor. It does not wait for workers: what keeps them from
// starting is what Acquire returns.
func Start(c Config) (*Supervisor, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ours, theirs, err := pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	s := &Supervisor{said: new(head), pool: pool{spare: c.Spare}, workers: map[uint64]*Worker{}, done: make(chan struct{})}
	if s.control, err = newChannel(ours); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		_ = s.control.conn.Close()
		return nil, fmt.Errorf("pidfd (Linux 5.3): %w", err)
	}
	self := os.NewFile(uintptr(pidfd), "pidfd")
	defer func() { _ = self.Close() }()
	s.cmd = helper.Command(Role, c.Path, theirs, c.Lock, self)
	s.cmd.Stderr, s.cmd.WaitDelay = s.said, stderrDelay
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Where systemd's user manager is found. Workers are not told.
	if v, set := os.LookupEnv(runtimeVariable); set {
		s.cmd.Env = append(s.cmd.Env, runtimeVariable+"="+v)
	}
	if err := s.cmd.Start(); err != nil {
		_ = s.control.conn.Close()
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	s.out = newOutbox(s.control)
	s.send(message{Kind: kindConfigure, Settings: &settings{
		Role: c.Role, Start: c.Start, Limits: c.Limits, StartTimeout: c.StartTimeout,
	}})
	s.mu.Lock()
	s.adjust()
	s.mu.Unlock()
	go s.listen()
	return s, nil
}

// send has a message sent. If it cannot be, the supervisor is gone, which listen
// finds out.
func (s *Supervisor) send(m message) { s.out.put(parcel{message: m}) }

// Done is closed when the supervisor's process has ended and all workers that
// it gave are gone.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

// Err says, when Done is closed, how the supervisor ended: ErrSupervisor, with
// what it has said.
func (s *Supervisor) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends all workers and the supervisor and waits for it. The error is
// ErrUnconfirmed if the context ends first; it can be called again.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	for _, w := range s.pool.idle {
		w.abandon()
	}
	s.pool.idle, s.pool.closed = nil, true
	s.mu.Unlock()
	s.send(message{Kind: kindEnd})
	select {
	case <-s.done:
		if s.cmd.ProcessState.Success() {
			return nil
		}
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("supervisor: %w: %w", ErrUnconfirmed, ctx.Err())
	}
}

// listen receives what the supervisor says until it is gone.
func (s *Supervisor) listen() {
	for {
		m, files, err := s.control.receive()
		if err != nil {
			break
		}
		if m.Kind == kindGranted {
			s.granted(m, files)
			continue
		}
		s.handle(m)
	}
	// The supervisor has ended, or broken the rules. Its workers have no one who
	// watches them any more.
	_ = s.control.conn.Close()
	s.out.close() // in no time: what is left fails
	s.mu.Lock()
	s.lost = true
	workers := s.workers
	s.workers = map[uint64]*Worker{}
	waiting := s.pool.abandon()
	s.mu.Unlock()
	for _, w := range workers {
		w.killed()
	}
	// One that closed the socket of its own accord ends by itself, when its
	// workers have; that is waited for, however long it takes.
	_ = s.cmd.Wait()
	s.err = fmt.Errorf("%w: %v%s", ErrSupervisor, s.cmd.ProcessState, last(s.said.String()))
	close(s.done)
	for _, got := range waiting {
		got <- answer{err: s.err}
	}
}

func (s *Supervisor) handle(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[m.Worker]
	switch {
	case m.Kind == kindRefused:
		s.refused(m.Call, m.Failure)
	case w == nil:
	case m.Kind == kindGone:
		w.end(m.Gone)
		s.unusable(w)
	case m.Kind == kindReleased:
		delete(s.workers, m.Worker)
		w.end(ErrReleased)
		w.confirm()
	case m.Kind == kindTrouble:
		w.trouble(errors.New(m.Text))
	}
}
