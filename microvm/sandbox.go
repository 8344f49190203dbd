package microvm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/hosttool"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Sandbox is a micro-VM in a worker process.
type Sandbox struct {
	backend *Backend
	place   places.Place
	spec    sandbox.Spec
	worker  process
	network network
	// tools are what programs can call, nil for none; calls counts those that
	// have not ended.
	tools atomic.Pointer[hosttool.Set]
	calls *hosttool.Calls
	// quiet is closed when nothing works for a lost sandbox any more.
	quiet chan struct{}

	// turn holds one token while no operation runs. Waiting receivers are
	// served in the order in which they came.
	turn chan struct{}
	// link belongs to whoever has the turn.
	link *link

	// life ends when the sandbox is lost; its cause is a *loss.
	life context.Context
	end  context.CancelCauseFunc

	doing atomic.Uint32 // a liveness.State while the sandbox lives

	mu   sync.Mutex
	id   string // guarded by mu
	used bool   // something has run in this generation; guarded by mu
}

var _ sandbox.Sandbox = (*Sandbox)(nil)

// loss is why a sandbox is lost.
type loss struct {
	class error
	cause error
}

func (l *loss) Error() string { return l.class.Error() }

func newSandbox(b *Backend, place places.Place, spec sandbox.Spec, w process) (*Sandbox, error) {
	s := &Sandbox{
		backend: b, place: place, spec: spec.Clone(), worker: w, turn: make(chan struct{}, 1), id: newID(),
		quiet: make(chan struct{}), calls: b.calls.Part(),
	}
	s.turn <- struct{}{}
	s.doing.Store(uint32(liveness.Ready))
	s.life, s.end = context.WithCancelCause(context.Background())
	var err error
	if s.network, err = b.newNetwork(s); err != nil {
		return nil, err
	}
	var serve func(context.Context, string, []byte) wire.Answer
	if s.network.broker != nil || spec.HostTools != nil {
		serve = s.serve
	}
	s.offer(spec)
	s.link = newLink(w.Conn(), w.Side(), &b.budgets, serve)
	return s, nil
}

// newID is 32 hexadecimal digits, as the original's ids are. It is the host's:
// a worker has no say in it.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// ID implements sandbox.Sandbox.
func (s *Sandbox) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Fresh says whether nothing has run in this generation: what it holds is what
// its image holds, for certain.
func (s *Sandbox) Fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.used
}

// Info says what a sandbox runs on.
type Info struct {
	// Engine is the engine's short name, such as "kvm", Isolation the rung that
	// it reaches.
	Engine, Isolation string
	// Python is the version of the interpreter inside.
	Python string
	// Limits is how the kernel enforces the memory ceiling.
	Limits Enforcement
}

// Info says what the sandbox runs on.
func (s *Sandbox) Info() Info {
	r := s.worker.Ready()
	return Info{Engine: r.Engine, Isolation: r.Isolation, Python: r.Python, Limits: s.backend.config.Enforcement}
}

// alive says whether the sandbox can be used, as far as is known.
func (s *Sandbox) alive() bool {
	if s.worker.Ended() {
		// How, the supervisor tells in a moment.
		timer := time.NewTimer(deathWatch)
		defer timer.Stop()
		select {
		case <-s.worker.Done():
			s.lose(sandbox.ErrWorkerLost, s.worker.Cause())
		case <-timer.C:
			s.lose(sandbox.ErrWorkerLost, nil)
		case <-s.life.Done():
		}
	}
	return s.life.Err() == nil
}

// lose ends the sandbox and whatever runs in it; the first reason counts.
func (s *Sandbox) lose(class, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(class, cause)
}

// loseIf ends the sandbox if the generation, when one is named, is still this
// one. A reset cannot come between the two.
func (s *Sandbox) loseIf(id string, class error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" && id != s.id {
		return false
	}
	s.loseLocked(class, nil)
	return true
}

func (s *Sandbox) loseLocked(class, cause error) {
	if s.life.Err() == nil {
		s.end(&loss{class, cause})
		s.worker.Abandon()
		go func() { // it waits for requests, which end at once
			s.network.close()
			close(s.quiet)
		}()
	}
}

// release waits until nothing of a lost sandbox is left, at most the
// CleanupTimeout.
func (s *Sandbox) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.backend.config.CleanupTimeout)
	defer cancel()
	if err := s.worker.Release(ctx); err != nil {
		return err
	}
	select {
	case <-s.quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a request of the program has not ended yet: %w", ctx.Err())
	}
}

// renew gives a new generation, unless the sandbox was lost meanwhile.
func (s *Sandbox) renew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.id, s.used = newID(), false
	return true
}

func (s *Sandbox) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
}

// enter waits for the sandbox's turn.
func (s *Sandbox) enter(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return over(ctx, op, false)
	}
	select {
	case <-s.turn:
	default:
		select {
		case <-s.turn:
		case <-ctx.Done():
			return over(ctx, op, false)
		case <-s.life.Done():
			return s.lost(op)
		case <-s.worker.Done():
			s.alive()
			return s.lost(op)
		}
	}
	// Several may have been ready at once; the turn is the weakest reason.
	var err error
	switch {
	case !s.alive():
		err = s.lost(op)
	case ctx.Err() != nil:
		err = over(ctx, op, false)
	}
	if err != nil {
		s.leave()
	}
	return err
}

func (s *Sandbox) leave() { s.turn <- struct{}{} }

// lost is what a lost sandbox answers.
func (s *Sandbox) lost(op string) error {
	l, ok := context.Cause(s.life).(*loss) //nolint:errorlint // it is the very cause
	if !ok {
		return &sandbox.OpError{Op: op, Class: sandbox.ErrWorkerLost}
	}
	class := l.class
	if class != sandbox.ErrDisposed && class != sandbox.ErrClosed { //nolint:errorlint // these very values
		class = sandbox.ErrWorkerLost
	}
	return &sandbox.OpError{Op: op, Class: class, Detail: "acquire another", Cause: l.cause}
}

// Request is a run with all that this backend offers.
type Request struct {
	// Code is Python source text in UTF-8.
	Code string
	// Filename is what tracebacks call the source; "<sandbox>" when empty.
	Filename string
	// Argv is the program's sys.argv, whose first element is its own name; empty
	// leaves sys.argv as it is. No element has a zero byte, and all of them, with
	// one byte more for each, have at most MaxArgv. After the run it is gone.
	Argv []string
	// Timeout is wall-clock time from the call, the wait for a turn included;
	// zero means sandbox.DefaultTimeout.
	Timeout time.Duration
	// MaxOutput bounds the output of this run in bytes, below the
	// configuration's limit, which zero means.
	MaxOutput int
	// Echo asks for the repr of a trailing expression, Live for output line by
	// line as a terminal wants it, at the price of speed.
	Echo, Live bool
	// Stdout and Stderr, when set, get output as it arrives, in addition to the
	// result. A writer that blocks holds the run up; what it returns is ignored.
	Stdout, Stderr io.Writer
}

// Result is what a run left behind.
type Result struct {
	sandbox.ExecResult
	// Value is the repr of a trailing expression, if it was asked for and there
	// is one.
	Value string
	// Exited says that the program ended the interpreter itself, as os._exit
	// does. The sandbox is lost, and the error is a sandbox.ErrGuestCrash.
	Exited bool
	// Duration is the wall-clock time of the run in its worker.
	Duration time.Duration
}

// RunCode implements sandbox.Sandbox.
func (s *Sandbox) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	r, err := s.Run(ctx, Request{Code: code, Timeout: timeout})
	return r.ExecResult, err
}

// Run runs a program. Everything that RunCode promises holds for it.
func (s *Sandbox) Run(ctx context.Context, r Request) (Result, error) {
	if err := s.backend.checkRun(&r); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := s.enter(ctx, opRunCode); err != nil {
		return Result{}, err
	}
	defer s.leave()
	defer s.does(liveness.Running)()
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	if left <= 0 {
		return Result{}, over(ctx, opRunCode, false)
	}
	s.use()
	out := &output{limit: r.MaxOutput, stdout: r.Stdout, stderr: r.Stderr}
	tools := s.tools.Load()
	d, err := s.link.exchange(s.asking(ctx, tools), call{
		kind: wire.KindRun,
		message: wire.Run{
			Code: []byte(r.Code), Filename: r.Filename, Argv: joinArgv(r.Argv), Timeout: left,
			MaxOutput: r.MaxOutput, Echo: r.Echo, Live: r.Live, Host: s.network.broker != nil || tools != nil,
		},
		patience: s.backend.config.Grace + slack,
		output:   out.take,
	})
	result := Result{
		ExecResult: sandbox.ExecResult{Stdout: out.out, Stderr: out.err, ExitCode: d.ExitCode},
		Value:      d.Value, Exited: d.Exited, Duration: d.Duration,
	}
	return result, s.verdict(ctx, opRunCode, d, err)
}

// resetTimeout bounds a reset whose context has no deadline. It takes a tenth
// of a millisecond.
const resetTimeout = 30 * time.Second

// Reset implements sandbox.Sandbox. A reset that has begun is done, whether or not
// its context is canceled meanwhile.
func (s *Sandbox) Reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	if err := s.enter(ctx, opReset); err != nil {
		return err
	}
	defer s.leave()
	defer s.does(liveness.Resetting)()
	d, err := s.link.exchange(ctx, call{kind: wire.KindReset, patience: slack})
	if err == nil && d.Kind != "" {
		d.Usable = false // half a reset is no state to go on from
	}
	if err := s.verdict(ctx, opReset, d, err); err != nil {
		return err
	}
	if !s.renew() {
		return s.lost(opReset)
	}
	return nil
}
