package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// scope is the tenant of all sessions, and agent the agent.
const (
	scope = "mcp"
	agent = "mcp-client"
)

// session is one client's sandbox.
type session struct {
	router *router.Router
	logger *slog.Logger
	key    sandbox.Key
	tool   *codeact.Tool

	// life ends with the session.
	life context.Context
	end  context.CancelFunc
	// waiting counts the calls under way.
	waiting atomic.Int32
	once    sync.Once

	// turn holds one token while nobody has the kept call; waiting receivers are
	// served in the order in which they came.
	turn chan struct{}
	// call is kept from the first program to the next reset, and generation is the
	// sandbox that holds what programs left; empty when none does. Both belong to
	// whoever has the turn.
	call       *router.Call
	generation string
}

func newSession(c Config) *session {
	// The thread is the server's choice: a client's id of its session may be known
	// to others.
	of := &session{
		router: c.Router, logger: c.Logger,
		key:  sandbox.Key{Scope: scope, ThreadID: rand.Text(), AgentID: agent},
		turn: make(chan struct{}, 1),
	}
	of.turn <- struct{}{}
	return of
}

var errWaiting = fmt.Errorf("%d calls of this session are under way, which is the limit: wait for their answers", maxWaiting)

// enter counts a call in; leave must follow. The context ends with the session
// too.
func (of *session) enter(ctx context.Context) (context.Context, func(), error) {
	if of.waiting.Add(1) > maxWaiting {
		of.waiting.Add(-1)
		return nil, nil, errWaiting
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(of.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		of.waiting.Add(-1)
	}, nil
}

// EnsureCanServe is the router's.
func (of *session) EnsureCanServe(spec sandbox.Spec) error { return of.router.EnsureCanServe(spec) }

// lossKey is the context's value for a *bool that Serve sets when what earlier
// calls left is gone before this one began, as with a worker that was killed
// meanwhile.
type lossKey struct{}

// Serve runs f in the session's kept call. Like the router's it gives each
// caller its turn, and its sandbox after a loss is another one.
func (of *session) Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	if err := of.take(ctx, options.QueueTimeout); err != nil {
		return err
	}
	defer of.give()
	if of.call == nil {
		call, err := of.router.Enter(ctx, of.router.CallKey(key, spec), spec, options)
		if err != nil {
			return err
		}
		of.call = call
	}
	s, err := of.call.Acquire(ctx)
	if err != nil {
		return err
	}
	if lost, asked := ctx.Value(lossKey{}).(*bool); asked {
		*lost = of.generation != "" && of.generation != s.ID()
	}
	of.generation = s.ID()
	if err = f(ctx, s); !sandbox.Usable(err) {
		of.generation = "" // this call tells
	}
	return err
}

// take waits for the turn, at most patience; zero means as long as ctx.
func (of *session) take(ctx context.Context, patience time.Duration) error {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-of.turn:
		return nil
	case <-late:
		return &sandbox.OpError{Op: "enter", Class: sandbox.ErrQueuedTimeout, Usable: true}
	case <-ctx.Done():
		return &sandbox.OpError{Op: "enter", Class: sandbox.ErrCanceled, Usable: true, Cause: ctx.Err()}
	}
}

func (of *session) give() { of.turn <- struct{}{} }

// reset puts the sandbox back to its start, and says whether there was one.
func (of *session) reset(ctx context.Context) (bool, error) {
	if err := of.take(ctx, 0); err != nil {
		return false, err
	}
	defer of.give()
	if of.call == nil {
		return false, nil
	}
	// The end of the call is the router's cleanup, which disposes of what cannot
	// be reset.
	err := of.call.Finish(ctx)
	of.call, of.generation = nil, ""
	return true, err
}

// finish ends the session and disposes of its sandbox. It returns when both are
// done, whoever began.
func (of *session) finish() {
	of.once.Do(func() {
		of.end()
		// Not life's context: what is cleaned here is there because it ended. The
		// router bounds each step.
		ctx := context.Background()
		_, err := of.reset(ctx)
		purge := of.router.DisposeScope(ctx, of.key.Scope, of.key.ThreadID)
		if err := errors.Join(err, purge.Err()); err != nil {
			of.logger.Error("the sandbox of a session is not confirmed gone", "key", of.key.String(), "error_type", sandbox.ErrorType(err))
			return
		}
		of.logger.Info("a session has ended", "key", of.key.String(), "disposed", purge.Disposed)
	})
}
