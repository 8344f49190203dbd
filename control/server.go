package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/rundir"
)

// What can be wrong with a server.
var (
	// ErrConfig is the class of errors about a configuration.
	ErrConfig = errors.New("unusable control configuration")
	// ErrNotStarted: the server does not listen.
	ErrNotStarted = errors.New("control server is not started")
	// ErrUnsettled: operations or parts of an earlier life are left, or the
	// server is closing. Start again when they have ended.
	ErrUnsettled = errors.New("cannot restart: prior control operations or teardown remain")
)

// Bounds of a server.
const (
	// MaxSourceIDBytes bounds a host's name for itself.
	MaxSourceIDBytes = 1024
	// DefaultMaxConnections is the bound of a server that names none.
	DefaultMaxConnections = 512
	// maxHeaderBytes bounds the head of a request, to which net/http adds 4 KiB.
	maxHeaderBytes = 16 << 10
	// headerTime is what a client has to send the head of a request: a client
	// on the same machine needs none.
	headerTime = 2 * time.Second
	// idleTime is how long a connection may be kept without a request.
	idleTime = 30 * time.Second
	// drainTime is what clients have to take their answers when a server
	// closes.
	drainTime = 2 * time.Second
)

// ServerConfig is what a [Server] needs. Control and SourceID are required.
type ServerConfig struct {
	// Control is what the server offers.
	Control Control
	// SourceID is the host's name for itself, for operators.
	SourceID string
	// Directory is the discovery folder; RuntimeDirectory() when empty, which
	// is asked when the server is made.
	Directory string
	// DisposeTimeout is the longest time of one operation; zero means
	// DefaultTimeout, and more than MaxTimeout means that. Clients can ask for
	// less, not for more.
	DisposeTimeout time.Duration
	// Socket adds a Unix socket in the discovery folder, which only this user
	// can reach. Consoles that know it prefer it; the port stays.
	Socket bool
	// MaxConnections bounds the connections at one time, those of the port and
	// those of the socket each for themselves; zero means DefaultMaxConnections.
	MaxConnections int
	// Logger gets a line for every disposal, purge and failure; none when nil.
	Logger *slog.Logger
}

func (c *ServerConfig) validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Control == nil {
		bad("a control is needed")
	}
	if err := checkSourceID(c.SourceID); err != nil {
		problems = append(problems, err)
	}
	if c.DisposeTimeout < 0 {
		bad("dispose timeout must be positive: %v", c.DisposeTimeout)
	}
	if c.MaxConnections < 0 {
		bad("the bound of connections must be positive: %d", c.MaxConnections)
	}
	return errors.Join(problems...)
}

func checkSourceID(id string) error {
	if id == "" || len(id) > MaxSourceIDBytes {
		return fmt.Errorf("%w: source id must be a text of 1 to %d bytes, not of %d", ErrConfig, MaxSourceIDBytes, len(id))
	}
	return nil
}

// Server offers a [Control] on an ephemeral port of 127.0.0.1. Making one opens
// nothing. A closed server can be started again.
//
// Closing a server says nothing about disposals that were under way: the host
// waits for its own work before it closes router and backend.
type Server struct {
	config ServerConfig

	// mu is held through starting, so that two do not start at once.
	mu      sync.Mutex
	life    *life         // nil when not started; guarded by mu
	closing chan struct{} // closed at the end of a close under way, else nil; guarded by mu
	closed  error         // what the last close returned; guarded by mu
	// remains are the operations of the life before; guarded by mu
	remains *operations
}

// life is what a started server has.
type life struct {
	manifest   Manifest
	operations *operations
	gates      []*gate // of the listeners
	http       *http.Server
	serving    sync.WaitGroup
	listeners  []net.Listener
	dir        *rundir.Dir
	announced  *rundir.Announcement
}

// NewServer checks the configuration; all problems are reported at once and
// match [ErrConfig].
func NewServer(config ServerConfig) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Directory == "" {
		config.Directory = RuntimeDirectory()
	}
	config.DisposeTimeout = bounded(config.DisposeTimeout)
	if config.MaxConnections == 0 {
		config.MaxConnections = DefaultMaxConnections
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{config: config}, nil
}

// Manifest is how the started server is announced.
func (s *Server) Manifest() (Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		return Manifest{}, ErrNotStarted
	}
	return s.life.manifest, nil
}

// Start listens and then announces the server. Starting a started server does
// nothing. After an error nothing listens and nothing is announced.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing != nil:
		return ErrUnsettled
	case s.life != nil:
		return nil
	case s.remains != nil && s.remains.unsettled() > 0:
		return fmt.Errorf("%w: %d operations", ErrUnsettled, s.remains.unsettled())
	}
	s.remains = nil
	// Only operations that outlive their requests can be more than there are
	// connections, at the port and at the socket.
	l := &life{operations: newOperations(4 * s.config.MaxConnections)}
	if err := s.open(l); err != nil {
		s.remains = l.operations
		return errors.Join(fmt.Errorf("start the control server: %w", err), l.close())
	}
	s.life = l
	return nil
}

// open listens, serves and announces, in this order: what is announced answers.
func (s *Server) open(l *life) error {
	port, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.listeners = append(l.listeners, port)
	authority := port.Addr().String()
	l.manifest = Manifest{SourceID: s.config.SourceID, Endpoint: "http://" + authority, ProcessID: os.Getpid()}
	if l.dir, err = rundir.Create(s.config.Directory); err != nil {
		return err
	}
	l.dir.Sweep(isOurs)
	stem := rundir.NewStem()
	if s.config.Socket {
		l.manifest.Socket = filepath.Join(l.dir.Path(), stem+rundir.SocketSuffix)
		socket, err := listenPrivate(l.manifest.Socket)
		if err != nil {
			return err
		}
		l.listeners = append(l.listeners, socket)
	}
	l.http = &http.Server{
		Handler: &handler{
			control: s.config.Control, sourceID: s.config.SourceID, longest: s.config.DisposeTimeout,
			authority: authority, writeTime: writeTime, operations: l.operations, log: s.config.Logger,
		},
		ConnContext:                  withConn,
		ConnState:                    noteIdle,
		ErrorLog:                     slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               maxHeaderBytes,
		ReadHeaderTimeout:            headerTime,
		ReadTimeout:                  s.config.DisposeTimeout + headerTime,
		IdleTimeout:                  idleTime,
	}
	for _, listener := range l.listeners {
		gate := newGate(s.config.MaxConnections)
		l.gates = append(l.gates, gate)
		l.serving.Go(func() { _ = l.http.Serve(gateListener{listener, gate}) })
	}
	if l.announced, err = l.dir.Announce(stem, l.manifest.marshal()); err != nil {
		return err
	}
	l.manifest.Announcement = filepath.Join(l.dir.Path(), l.announced.Name())
	return nil
}

// listenPrivate listens on a socket that this user alone can connect to: its
// folder is private, and so is the socket itself.
func listenPrivate(path string) (net.Listener, error) {
	socket, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket (its path has %d bytes; systems allow about 100, and a shorter discovery folder leaves room): %w", len(path), err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, nil
}

// Close withdraws the announcement, refuses new operations, ends those that are
// running, lets clients take their answers and stops listening. All of it is
// done even if a part fails. It can be called at any time, also twice or by
// several callers, who all wait for the end.
func (s *Server) Close() error {
	s.mu.Lock()
	if under := s.closing; under != nil {
		s.mu.Unlock()
		<-under
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed
	}
	l := s.life
	if l == nil {
		s.mu.Unlock()
		return nil
	}
	s.closing = make(chan struct{})
	s.mu.Unlock()

	err := l.close()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.remains, s.closed = nil, l.operations, err
	close(s.closing)
	s.closing = nil
	return err
}

// close ends a life, also one that never began whole.
func (l *life) close() error {
	var problems []error
	if l.announced != nil {
		problems = append(problems, l.announced.Withdraw())
	}
	for _, listener := range l.listeners {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	l.operations.close()
	for _, gate := range l.gates {
		gate.close()
	}
	if l.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		err := l.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			// A client that does not take its answer goes without.
			err = l.http.Close()
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	l.serving.Wait()
	if l.dir != nil {
		problems = append(problems, l.dir.Close())
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("close the control server: %w", err)
	}
	return nil
}
