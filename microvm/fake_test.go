package microvm

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// fakeSystem has workers that do what a test wants, and no processes.
type fakeSystem struct {
	// serve is a worker's side of its connection.
	serve func(w *fakeWorker)
	// ownErr, launchErr and acquireErr keep things from working.
	ownErr, launchErr, acquireErr error
	// python is the version of every image.
	python string
	// boot and capture, if set, are called by what starts a worker and what looks
	// for an image.
	boot    func(ctx context.Context) error
	capture func(ctx context.Context, c Config) error

	mu       sync.Mutex
	launched int
	owned    int
	given    []*fakeWorker
}

func (s *fakeSystem) isolation(Engine) sandbox.Isolation { return sandbox.IsolationProcess }

func (s *fakeSystem) own(Config) (ownership, error) {
	if s.ownErr != nil {
		return nil, s.ownErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned++
	return fakeOwnership{s}, nil
}

type fakeOwnership struct{ s *fakeSystem }

func (fakeOwnership) Owns() bool { return true }
func (o fakeOwnership) Release() error {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.s.owned--
	return nil
}

func (s *fakeSystem) image(ctx context.Context, c Config, name, _ string) (string, error) {
	if s.capture != nil {
		return "/" + name, s.capture(ctx, c)
	}
	return "/" + name, nil
}

func (s *fakeSystem) facts(_ Config, name, id string) (sandbox.Facts, error) {
	return sandbox.Facts{ImageID: id, Python: s.python + name}, nil
}

func (s *fakeSystem) launch(Config, string, string, ownership) (supervisor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launched++
	return &fakeSupervisor{system: s, done: make(chan struct{})}, s.launchErr
}

type fakeSupervisor struct {
	system *fakeSystem
	done   chan struct{}
	once   sync.Once
}

func (s *fakeSupervisor) Acquire(ctx context.Context) (process, error) {
	if boot := s.system.boot; boot != nil {
		if err := boot(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.system.acquireErr; err != nil {
		var gone *goneError
		if errors.As(err, &gone) {
			s.once.Do(func() { close(s.done) })
		}
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	side, theirSide, err := socketPair()
	if err != nil {
		return nil, err
	}
	w := &fakeWorker{
		conn: ours, theirs: theirs, side: side, theirSide: theirSide, r: wire.NewReader(theirs, wire.MaxPayload), w: wire.NewWriter(theirs), done: make(chan struct{}),
	}
	if s.system.serve != nil {
		go s.system.serve(w)
	}
	s.system.mu.Lock()
	defer s.system.mu.Unlock()
	s.system.given = append(s.system.given, w)
	return w, nil
}

func (s *fakeSupervisor) Close(context.Context) error {
	s.once.Do(func() { close(s.done) })
	return nil
}
func (s *fakeSupervisor) Done() <-chan struct{} { return s.done }

// fakeWorker is both ends of a worker.
type fakeWorker struct {
	conn, theirs, side, theirSide net.Conn

	r   *wire.Reader
	out sync.Mutex // guards w
	w   *wire.Writer

	mu    sync.Mutex
	cause error
	done  chan struct{}
}

func (w *fakeWorker) Ready() wire.Ready     { return wire.Ready{Engine: "fake", Isolation: "microvm"} }
func (w *fakeWorker) Conn() net.Conn        { return w.conn }
func (w *fakeWorker) Side() net.Conn        { return w.side }
func (w *fakeWorker) Done() <-chan struct{} { return w.done }
func (w *fakeWorker) Ended() bool           { return w.Cause() != nil }
func (w *fakeWorker) PID() int              { return 4242 }
func (w *fakeWorker) Abandon()              { w.die(errors.New("abandoned")) }

func (w *fakeWorker) Cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

func (w *fakeWorker) Release(context.Context) error {
	w.Abandon()
	return nil
}

// die ends the worker; the first cause counts.
func (w *fakeWorker) die(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return
	}
	w.cause = cause
	for _, c := range []net.Conn{w.theirs, w.conn, w.side, w.theirSide} {
		_ = c.Close()
	}
	close(w.done)
}

// answers has a worker answer every frame, of both lines, with what reply writes.
func answers(reply func(w *fakeWorker, f wire.Frame)) func(*fakeWorker) {
	hear := func(w *fakeWorker, r *wire.Reader) {
		for {
			f, err := r.Next()
			if err != nil {
				return
			}
			reply(w, f)
		}
	}
	return func(w *fakeWorker) {
		go hear(w, wire.NewReader(w.theirSide, wire.MaxPayload))
		hear(w, w.r)
	}
}

// send writes a frame; a host that is gone does not hear it.
func (w *fakeWorker) send(kind wire.Kind, call uint32, v any) {
	b, ok := v.([]byte)
	if !ok {
		b, _ = wire.Encode(v)
	}
	w.out.Lock()
	defer w.out.Unlock()
	_ = w.w.Write(wire.Frame{Kind: kind, Call: call, Payload: b})
}

// good answers as a worker should.
func good(w *fakeWorker, f wire.Frame) {
	if f.Kind == wire.KindRun {
		w.send(wire.KindStdout, f.Call, []byte("42\n"))
	}
	if f.Kind != wire.KindInterrupt {
		w.send(wire.KindDone, f.Call, wire.Done{Usable: true})
	}
}

func fakeBackend(t *testing.T, s *fakeSystem, c Config) *Backend {
	t.Helper()
	c.Private = true
	b, err := newBackend(c, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owned != 0 {
			t.Errorf("%d ownerships are left", s.owned)
		}
	})
	return b
}

func key() sandbox.Key { return sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"} }

// socketPair is two connected sockets.
func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	conns := make([]net.Conn, len(fds))
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, e := net.FileConn(f)
		_ = f.Close()
		conns[i], err = c, errors.Join(err, e)
	}
	return conns[0], conns[1], err
}

// holding answers nothing until the channel is closed.
func holding(hold <-chan struct{}) func(context.Context, string, []byte) wire.Answer {
	return func(context.Context, string, []byte) wire.Answer {
		<-hold
		return wire.Answer{Unknown: true}
	}
}
