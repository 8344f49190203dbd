package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Machine is the sandbox that a worker holds.
type Machine interface {
	Run(ctx context.Context, r engine.Request) (engine.Result, error)
	Reset(ctx context.Context) error
	Generation() string
	Close() error
}

// Opener makes the machine that a Start asks for and says what it is.
type Opener func(ctx context.Context, s wire.Start) (Machine, wire.Ready, error)

// Config is what a worker is made of.
type Config struct {
	// Open makes the machine.
	Open Opener
	// Seal, if set, gives up what the process does not need any more. It is
	// called once, when the machine is there, before any program has run in it;
	// an error ends the worker. Not later: from its first run on a machine has a
	// thread of the kernel's in this process (Linux 6.14), which takes no signals,
	// and in a build with cgo the jail would wait for it for ever.
	Seal func() error
}

// call is a frame that has arrived and what it asks for.
type call struct {
	number uint32
	kind   wire.Kind
	run    wire.Run
	ctx    context.Context
	cancel context.CancelFunc
}

// server serves one connection.
type server struct {
	r    *wire.Reader
	asks *asks

	out sync.Mutex // guards what follows: a frame is written whole
	w   *wire.Writer

	mu    sync.Mutex
	calls map[uint32]context.CancelFunc // that have arrived and are not done
}

// maxCalls bounds the calls that may be under way: the host queues on its side,
// and a call may only overlap the end of the one before.
const maxCalls = 2

// readAhead is what is read at once, in bytes: a small program with its frame.
const readAhead = 4 << 10

// Serve serves a connection until it ends or breaks the protocol. It returns
// nil when the other side has closed it between two calls.
func Serve(conn io.ReadWriter, c Config) error {
	s := &server{
		r: wire.NewReader(bufio.NewReaderSize(conn, readAhead), wire.MaxPayload), w: wire.NewWriter(conn),
		asks: newAsks(), calls: map[uint32]context.CancelFunc{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, err := s.start(ctx, c)
	if err != nil {
		return err
	}
	incoming, failed := make(chan *call, maxCalls), make(chan error, 1)
	go func() {
		failed <- s.read(ctx, incoming)
		cancel() // whatever runs for nobody is cut short
		s.asks.end()
		close(incoming)
	}()
	for k := range incoming {
		if err := s.answer(m, k); err != nil {
			// Nobody hears any more; the reader ends with the connection.
			return errors.Join(err, m.Close())
		}
	}
	err = <-failed
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, m.Close())
}

// start answers the first frame.
func (s *server) start(ctx context.Context, c Config) (Machine, error) {
	f, err := s.r.Next()
	if err != nil {
		return nil, fmt.Errorf("first frame: %w", err)
	}
	var st wire.Start
	if f.Kind != wire.KindStart {
		return nil, fmt.Errorf("%w: the first frame is of kind %d", wire.ErrProtocol, f.Kind)
	}
	if err := wire.Decode(f.Payload, &st); err != nil {
		return nil, err
	}
	m, ready, err := c.Open(ctx, st)
	if err != nil {
		return nil, errors.Join(err, s.done(0, failure(err)))
	}
	if c.Seal != nil {
		err = c.Seal()
	}
	if err == nil && st.Warm {
		err = warm(ctx, m)
	}
	if err != nil {
		return nil, errors.Join(err, s.done(0, failure(err)), m.Close())
	}
	ready.Generation = m.Generation()
	return m, errors.Join(s.send(wire.KindReady, 0, ready))
}

// sample is what nearly every program does.
const sample = "def f(x):\n    return x + 1\nprint(f(41), [1, 2.5], {'a': 'b'})\n"

// warm makes the machine touch what every program needs.
func warm(ctx context.Context, m Machine) error {
	if _, err := m.Run(ctx, engine.Request{Code: []byte(sample)}); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	if err := m.Reset(ctx); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	return nil
}

// read takes calls in until the connection ends.
func (s *server) read(ctx context.Context, incoming chan<- *call) error {
	for {
		f, err := s.r.Next()
		if err != nil {
			return err
		}
		k := &call{number: f.Call, kind: f.Kind}
		switch f.Kind {
		case wire.KindInterrupt:
			s.interrupt(f.Call)
			continue
		case wire.KindAnswer:
			var a wire.Answer
			if err := wire.Decode(f.Payload, &a); err != nil {
				return err
			}
			if !s.asks.answer(a) {
				return fmt.Errorf("%w: an answer to %d, which was not asked", wire.ErrProtocol, a.ID)
			}
			continue
		case wire.KindRun:
			if err := wire.Decode(f.Payload, &k.run); err != nil {
				return err
			}
			if k.run.Timeout <= 0 {
				return fmt.Errorf("%w: a time limit of %v", wire.ErrProtocol, k.run.Timeout)
			}
		case wire.KindReset:
			if len(f.Payload) != 0 {
				return fmt.Errorf("%w: a reset with a payload", wire.ErrProtocol)
			}
		default:
			return fmt.Errorf("%w: a frame of kind %d from the host", wire.ErrProtocol, f.Kind)
		}
		k.ctx, k.cancel = context.WithCancel(ctx)
		if !s.register(k) {
			k.cancel()
			return fmt.Errorf("%w: call %d while others are under way", wire.ErrProtocol, k.number)
		}
		incoming <- k
	}
}

func (s *server) register(k *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.calls[k.number]; taken || len(s.calls) >= maxCalls {
		return false
	}
	s.calls[k.number] = k.cancel
	return true
}

// interrupt cancels a call; one that is done already is not there.
func (s *server) interrupt(number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[number]; cancel != nil {
		cancel()
	}
}

// answer does what a call asks for.
func (s *server) answer(m Machine, k *call) error {
	defer k.cancel()
	var d wire.Done
	var sent error
	if k.kind == wire.KindReset {
		d = failure(m.Reset(k.ctx))
	} else {
		out, errs := &pipe{s, wire.KindStdout, k, nil}, &pipe{s, wire.KindStderr, k, nil}
		req := engine.Request{
			Code: k.run.Code, Filename: k.run.Filename, Timeout: k.run.Timeout, MaxOutput: k.run.MaxOutput,
			MaxCode: engine.MaxCodeBytes, Echo: k.run.Echo, Live: k.run.Live, Stdout: out, Stderr: errs,
		}
		if k.run.Host {
			req.Host = s.ask(k.number)
		}
		res, err := m.Run(k.ctx, req)
		d = failure(err)
		d.ExitCode, d.Exited, d.Value, d.Duration = res.ExitCode, res.Exited, res.Value, res.Duration
		d.Usable = d.Usable && !res.Exited
		sent = errors.Join(out.err, errs.err)
	}
	s.mu.Lock()
	delete(s.calls, k.number)
	s.mu.Unlock()
	if sent != nil {
		return sent
	}
	d.Generation = m.Generation()
	return s.done(k.number, d)
}

// failure describes an error; nil is none.
func failure(err error) wire.Done {
	if err == nil {
		return wire.Done{Usable: true}
	}
	var e *engine.Error
	if errors.As(err, &e) {
		return wire.Done{Kind: string(e.Kind), Message: words(e), Usable: e.Usable}
	}
	return wire.Done{Kind: string(engine.KindInternal), Message: err.Error()}
}

// words are the message and its cause, unless that is the end of a context,
// which the message says in better words.
func words(e *engine.Error) string {
	if errors.Is(e, context.DeadlineExceeded) || errors.Is(e, context.Canceled) {
		return e.Message
	}
	return e.Error()
}

func (s *server) done(number uint32, d wire.Done) error { return s.send(wire.KindDone, number, d) }

func (s *server) send(kind wire.Kind, number uint32, v any) error {
	b, err := wire.Encode(v)
	if err != nil {
		return err
	}
	return s.write(wire.Frame{Kind: kind, Call: number, Payload: b})
}

func (s *server) write(f wire.Frame) error {
	s.out.Lock()
	defer s.out.Unlock()
	return s.w.Write(f)
}

// pipe sends a program's output on as it arrives.
type pipe struct {
	s    *server
	kind wire.Kind
	call *call
	err  error
}

// Write implements io.Writer. When nobody listens any more the call is
// cancelled.
func (p *pipe) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && p.err == nil {
		piece := b[:min(len(b), wire.MaxOutputPayload)]
		if p.err = p.s.write(wire.Frame{Kind: p.kind, Call: p.call.number, Payload: piece}); p.err != nil {
			p.call.cancel()
		}
		b = b[len(piece):]
	}
	return n, p.err
}
