package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

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

// Calls is the line on which the host makes calls, one after the other, and a
// worker answers them.
type Calls interface {
	io.ReadWriter
	// Stop ends a Read under way, and those to come.
	Stop()
}

// call is what a frame asks for.
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
	// over is the call that was done last: of it nothing more may be said.
	over uint32

	mu sync.Mutex // guards what follows
	// current is the call under way, or the last, and cancel its.
	current uint32
	cancel  context.CancelFunc
	// interrupted is the highest number of a call that was interrupted before it
	// arrived.
	interrupted uint32
}

// readAhead is what is read at once, in bytes: a small program with its frame.
const readAhead = 4 << 10

// Serve serves a connection until it ends or breaks the protocol: calls, and a
// side line for what the host says during a call. It returns nil when the other
// side has closed it between two calls.
//
// The calls are read by the very thread that runs the machine. Handing each from
// one thread to another would cost a switch, and a kernel before 6.13 waits for
// all its processors when a virtual one changes its thread.
func Serve(calls Calls, side io.Reader, c Config) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &server{
		r: wire.NewReader(bufio.NewReaderSize(calls, readAhead), wire.MaxPayload), w: wire.NewWriter(calls), asks: newAsks(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, err := s.start(ctx, c)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		failed <- s.listen(wire.NewReader(bufio.NewReaderSize(side, readAhead), wire.MaxPayload))
		// Whatever runs for nobody is cut short.
		cancel()
		s.asks.end()
		calls.Stop()
	}()
	err = s.serve(ctx, m)
	s.silence() // the line may be closed when this returns
	select {
	case why := <-failed:
		if why != nil {
			err = why // and the rest follows from it
		}
	default:
	}
	return errors.Join(err, m.Close())
}

// serve answers calls until the line ends.
func (s *server) serve(ctx context.Context, m Machine) error {
	for {
		f, err := s.r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		k := &call{number: f.Call, kind: f.Kind}
		switch {
		case f.Kind == wire.KindRun:
			if err := wire.Decode(f.Payload, &k.run); err != nil {
				return err
			}
			if k.run.Timeout <= 0 {
				return fmt.Errorf("%w: a time limit of %v", wire.ErrProtocol, k.run.Timeout)
			}
		case f.Kind != wire.KindReset:
			return fmt.Errorf("%w: a frame of kind %d from the host", wire.ErrProtocol, f.Kind)
		case len(f.Payload) != 0:
			return fmt.Errorf("%w: a reset with a payload", wire.ErrProtocol)
		}
		if err := s.begin(ctx, k); err != nil {
			return err
		}
		err = s.answer(m, k)
		k.cancel()
		if err != nil {
			return err
		}
	}
}

// begin makes a call the one under way.
func (s *server) begin(ctx context.Context, k *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.number <= s.current {
		return fmt.Errorf("%w: call %d after call %d", wire.ErrProtocol, k.number, s.current)
	}
	k.ctx, k.cancel = context.WithCancel(ctx)
	s.current, s.cancel = k.number, k.cancel
	if s.interrupted >= k.number {
		k.cancel()
	}
	return nil
}

// listen hears what the host says on the side line until that ends.
func (s *server) listen(r *wire.Reader) error {
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch f.Kind {
		case wire.KindInterrupt:
			s.interrupt(f.Call)
		case wire.KindAnswer:
			var a wire.Answer
			if err := wire.Decode(f.Payload, &a); err != nil {
				return err
			}
			if !s.asks.answer(a) {
				return fmt.Errorf("%w: an answer to %d, which was not asked", wire.ErrProtocol, a.ID)
			}
		default:
			return fmt.Errorf("%w: a frame of kind %d on the side line", wire.ErrProtocol, f.Kind)
		}
	}
}

// interrupt cancels a call: the one under way, or one that is still to come. One
// that is done has a lower number, or is cancelled for nothing.
func (s *server) interrupt(number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case number == s.current && s.cancel != nil:
		s.cancel()
	case number > s.current:
		s.interrupted = max(s.interrupted, number)
	}
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

// warm makes machine and worker touch what every program needs: the second run
// takes the way of a call, to nobody.
func warm(ctx context.Context, m Machine) error {
	if _, err := m.Run(ctx, engine.Request{Code: []byte(sample)}); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	b, err := wire.Encode(wire.Run{Code: []byte(sample), Timeout: time.Minute})
	if err != nil {
		return err
	}
	k := &call{kind: wire.KindRun, ctx: ctx, cancel: func() {}}
	if err := wire.Decode(b, &k.run); err != nil {
		return err
	}
	nobody := &server{w: wire.NewWriter(io.Discard), asks: newAsks()}
	if err := nobody.answer(m, k); err != nil {
		return err
	}
	if err := m.Reset(ctx); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	return nil
}

// answer does what a call asks for.
func (s *server) answer(m Machine, k *call) error {
	var d wire.Done
	var sent error
	if k.kind == wire.KindReset {
		d = failure(m.Reset(k.ctx))
	} else {
		out, errs := &pipe{s, wire.KindStdout, k, nil}, &pipe{s, wire.KindStderr, k, nil}
		req := engine.Request{
			Code: k.run.Code, Filename: k.run.Filename, Argv: k.run.Argv, Timeout: k.run.Timeout, MaxOutput: k.run.MaxOutput,
			MaxCode: engine.MaxCodeBytes, Echo: k.run.Echo, Live: k.run.Live, Stdout: out, Stderr: errs,
		}
		if k.run.Host {
			req.Ask = s.ask(k.number)
		}
		res, err := m.Run(k.ctx, req)
		d = failure(err)
		d.ExitCode, d.Exited, d.Value, d.Duration = res.ExitCode, res.Exited, res.Value, res.Duration
		d.Usable = d.Usable && !res.Exited
		sent = errors.Join(out.err, errs.err)
	}
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

// done ends a call.
func (s *server) done(number uint32, d wire.Done) error { return s.send(wire.KindDone, number, d) }

func (s *server) send(kind wire.Kind, number uint32, v any) error {
	b, err := wire.Encode(v)
	if err != nil {
		return err
	}
	return s.write(wire.Frame{Kind: kind, Call: number, Payload: b})
}

// silence has nothing more withdrawn.
func (s *server) silence() {
	s.out.Lock()
	defer s.out.Unlock()
	s.over = math.MaxUint32
}

func (s *server) write(f wire.Frame) error {
	s.out.Lock()
	defer s.out.Unlock()
	switch f.Kind {
	case wire.KindDone:
		s.over = f.Call
	case wire.KindWithdraw:
		if f.Call <= s.over {
			return nil // the host has withdrawn it with the call
		}
	}
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
