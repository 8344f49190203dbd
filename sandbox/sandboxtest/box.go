package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/hosttool"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// box is a sandbox in memory.
type box struct {
	backend *Backend
	key     sandbox.Key
	spec    sandbox.Spec

	// turn holds one token while no operation runs. Waiting receivers are
	// served in the order in which they came.
	turn chan struct{}
	// names is what programs stored; it belongs to whoever has the turn.
	names map[string]string

	// tools are what programs can call, nil for none; calls counts those that
	// have not ended.
	tools atomic.Pointer[hosttool.Set]
	calls *hosttool.Calls

	// life ends when the sandbox is lost; its cause is the class of the loss.
	life context.Context
	end  context.CancelCauseFunc

	mu sync.Mutex
	id string // guarded by mu
}

func newBox(b *Backend, key sandbox.Key, spec sandbox.Spec) *box {
	box := &box{
		backend: b, key: key, spec: spec.Clone(),
		turn: make(chan struct{}, 1), names: make(map[string]string), id: newID(),
		calls: b.calls.Part(),
	}
	box.offer(spec)
	box.turn <- struct{}{}
	box.life, box.end = context.WithCancelCause(context.Background())
	return box
}

// offer has programs call the tools of a spec from their next run on.
func (s *box) offer(spec sandbox.Spec) {
	if spec.HostTools != nil {
		s.tools.Store(hosttool.NewSet(spec.HostTools, s.calls, slog.New(slog.DiscardHandler)))
	}
}

// callTool is Program.CallTool of a run. asking is the context in which the run's
// calls are served.
func (s *box) callTool(asking context.Context) func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	if tools := s.tools.Load(); tools != nil {
		asking = tools.Context(asking, sandbox.ToolCaller{Key: s.key, Kind: s.spec.Kind, InstanceID: s.ID()})
	}
	return func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
		asking, cancel := context.WithCancel(asking)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		answer, offered := hosttool.Serve(asking, hosttool.Request(name, arguments))
		if !offered {
			return nil, errors.New("this sandbox offers no tools of the host")
		}
		return hosttool.Result(answer)
	}
}

// newID is 32 hexadecimal digits, as the originals' ids are.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return hex.EncodeToString(id[:])
}

// ID names the generation.
func (s *box) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *box) alive() bool { return s.life.Err() == nil }

// lose ends the sandbox and whatever runs in it.
func (s *box) lose(class error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(class)
}

// loseIf ends the sandbox if the generation, when one is named, is still this
// one. A reset cannot come between the two.
func (s *box) loseIf(instanceID string, class error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if instanceID != "" && instanceID != s.id {
		return false
	}
	s.end(class)
	return true
}

// renew gives a new id, unless the sandbox was lost meanwhile.
func (s *box) renew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive() {
		return false
	}
	s.id = newID()
	return true
}

// enter waits for the sandbox's turn.
func (s *box) enter(ctx context.Context, op Op) error {
	if ctx.Err() != nil {
		return ended(op, ctx.Err(), false)
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return ended(op, ctx.Err(), false)
	case <-s.life.Done():
		return s.lost(op)
	}
	// Several may have been ready at once; the turn is the weakest reason.
	err := ctx.Err()
	switch {
	case !s.alive():
		err = s.lost(op)
	case err != nil:
		err = ended(op, err, false)
	}
	if err != nil {
		s.leave()
	}
	return err
}

func (s *box) leave() { s.turn <- struct{}{} }

func (s *box) lost(op Op) error {
	return &sandbox.OpError{Op: string(op), Class: context.Cause(s.life)}
}

// RunCode runs a program in the backend's interpreter.
func (s *box) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	done := s.backend.script.record(Call{
		Op: OpRunCode, Key: s.key, Kind: s.spec.Kind, InstanceID: s.ID(), Code: code, Timeout: timeout,
	})
	result, err := s.runCode(ctx, code, timeout)
	done(err)
	return result, err
}

func (s *box) runCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	if err := s.backend.checkRun(code, timeout); err != nil {
		return sandbox.ExecResult{}, err
	}
	if timeout == 0 {
		timeout = sandbox.DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.enter(ctx, OpRunCode); err != nil {
		return sandbox.ExecResult{}, err
	}
	defer s.leave()
	defer context.AfterFunc(s.life, cancel)()

	out := &output{limit: s.backend.config.MaxOutput}
	exit := 0
	err := s.backend.script.meet(ctx, OpRunCode)
	if err == nil {
		exit, err = s.backend.config.Interpreter(ctx, &Program{
			Code: code, Names: s.names,
			Stdout: stream{out, &out.stdout}, Stderr: stream{out, &out.stderr}, CallTool: s.callTool(ctx),
		})
	}
	result := sandbox.ExecResult{Stdout: out.stdout.Bytes(), Stderr: out.stderr.Bytes(), ExitCode: exit}
	return result, s.verdict(ctx, out.full, err)
}

// checkRun refuses what cannot be run.
func (b *Backend) checkRun(code string, timeout time.Duration) error {
	refuse := func(subject, asked, allowed string) error {
		return &sandbox.RefusalError{
			Reason: sandbox.ErrInvalid, Subject: subject, Asked: asked, Allowed: allowed, Decider: b.decider(),
		}
	}
	switch {
	case timeout < 0:
		return refuse("timeout", timeout.String(), "zero for the default, or more")
	case len(code) > b.config.MaxCode:
		return refuse("code", fmt.Sprintf("%d bytes", len(code)), fmt.Sprintf("up to %d bytes", b.config.MaxCode))
	case !utf8.ValidString(code):
		return refuse("code", "text that is not UTF-8", "UTF-8")
	}
	return nil
}

// Reset forgets what programs stored.
func (s *box) Reset(ctx context.Context) error {
	done := s.backend.script.record(Call{Op: OpReset, Key: s.key, Kind: s.spec.Kind, InstanceID: s.ID()})
	err := s.reset(ctx)
	done(err)
	return err
}

func (s *box) reset(ctx context.Context) error {
	if err := s.enter(ctx, OpReset); err != nil {
		return err
	}
	defer s.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if err := s.backend.script.meet(ctx, OpReset); err != nil {
		// Half a reset is no state to go on from.
		if s.alive() {
			s.lose(sandbox.ErrWorkerLost)
			return asLost(classify(OpReset, err))
		}
		return s.lost(OpReset)
	}
	s.names = make(map[string]string)
	if !s.renew() {
		return s.lost(OpReset)
	}
	return nil
}
