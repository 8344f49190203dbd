package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// scope is the tenant of all sessions, and agent the agent of a client without a
// name.
const (
	scope = "mcp"
	agent = "mcp-client"
)

// endTimeout bounds the end of a session: two of the router's steps.
const endTimeout = 2 * router.DefaultReclaimTimeout

// maxAgent bounds the name of an agent, in bytes: operators read it in a table.
const maxAgent = 40

// agentNamed is the name of a client as an operator may read and type it.
func agentNamed(client string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, client[:min(len(client), maxAgent)])
	return cmp.Or(strings.Trim(name, "-."), agent)
}

// threadID names a session. It is the server's choice and nothing to a client: a
// client's id of its session gives access, so that operators do not see it. It is
// short, since people type it, and no other server's: consoles purge a
// conversation everywhere.
func threadID() string { return "session-" + strings.ToLower(rand.Text()[:10]) }

// session is one client's sandbox.
type session struct {
	router *router.Router
	// fence keeps programs out while an operator removes the sandbox.
	fence *fence.Fence
	// keep says that names stay from one program to the next.
	keep   bool
	logger *slog.Logger
	key    sandbox.Key
	tool   *codeact.Tool

	// life ends with the session.
	life context.Context
	end  context.CancelFunc
	once sync.Once

	// line has the calls; what follows belongs to the one whose turn it is.
	line *line
	// call is kept from the first program to the next reset, and generation is the
	// sandbox that holds what programs left; empty when none does. After stopped,
	// the next program begins with another sandbox.
	call       *router.Call
	generation string
	stopped    bool
	// owed says that what programs left is gone and that no client was told.
	owed bool
}

// newSession makes a session whose calls are in a line; nil stands for a new one.
func newSession(c Config, f *fence.Fence, client string, l *line) *session {
	if l == nil {
		l = new(line)
	}
	return &session{
		router: c.Router, fence: f, keep: c.KeepState, logger: c.Logger,
		key:  sandbox.Key{Scope: scope, ThreadID: threadID(), AgentID: agentNamed(client)},
		line: l,
	}
}

// visit is one call of a tool, from its place in line to its answer.
type visit struct {
	*place
	// lost says that what earlier calls left is gone: before this one began, as with
	// a worker that was killed meanwhile, or by what it did. It is there to read when
	// the turn has been had.
	lost bool
}

// visitKey is the context's value for a *visit.
type visitKey struct{}

// enter begins a visit, at the place that the call got as it arrived or else at the
// end of the line; leave must follow. The context ends with the session too. The
// error is errWaiting.
func (of *session) enter(ctx context.Context, came *arrival) (context.Context, *visit, func(), error) {
	if came == nil {
		came = &arrival{}
		came.place, came.err = of.line.join()
	}
	p, err := came.place, came.err
	if err != nil {
		return nil, nil, nil, err
	}
	v := &visit{place: p}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, visitKey{}, v))
	stop := context.AfterFunc(of.life, cancel)
	return ctx, v, func() {
		stop()
		cancel()
		v.leave()
	}, nil
}

// EnsureCanServe is the router's.
func (of *session) EnsureCanServe(spec sandbox.Spec) error { return of.router.EnsureCanServe(spec) }

// Report is the router's.
func (of *session) Report(event router.Event) { of.router.Report(event) }

// program is what runs with a sandbox.
type program = func(ctx context.Context, s sandbox.Sandbox) error

// Serve runs f in a call: in the session's kept one, or in one of its own. Like
// the router's it gives each caller its turn, and its sandbox after a loss is
// another one. A program that an operator stopped has lost its sandbox.
func (of *session) Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f program) error {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return &sandbox.OpError{Op: "enter", Class: sandbox.ErrInternal, Detail: "a program without a place in line"}
	}
	if err := v.wait(ctx, options.QueueTimeout); err != nil {
		return err
	}
	if !of.keep {
		return of.fence.Calls(of.router).Serve(ctx, key, spec, options, f)
	}
	inside, leave, err := of.fence.Enter(ctx, of.key)
	if err != nil {
		return canceled(err)
	}
	defer leave()
	if of.stopped {
		// Condemned: this disposes of what the operator may not have. If that
		// fails, the router refuses the key.
		_ = of.call.Finish(ctx)
		of.call, of.stopped = nil, false
	}
	if of.call == nil {
		call, err := of.router.Enter(inside, of.router.CallKey(key, spec), spec, options)
		if err != nil {
			return err
		}
		of.call = call
	}
	s, err := of.call.Acquire(inside)
	if err != nil {
		return err
	}
	v.lost = of.owed || of.generation != "" && of.generation != s.ID()
	of.generation, of.owed = s.ID(), false
	if err = f(inside, s); err != nil && fence.Stopped(inside) {
		of.stopped, err = true, errStopped
		of.call.Condemn(err)
	}
	if !sandbox.Usable(err) {
		of.generation, v.lost = "", true
	}
	return err
}

// owe has the next call tell of a loss that this one has nobody to tell of.
// Precondition: the visit has not left.
func (of *session) owe(v *visit) {
	if v.lost { // only of a visit that has the turn
		of.owed = true
	}
}

// errStopped is the end of a program whose sandbox an operator removes.
var errStopped = &sandbox.OpError{Op: "run_code", Class: sandbox.ErrDisposed, Cause: fence.ErrStopped}

// reset puts the sandbox back to its start, and says whether there was one.
func (of *session) reset(ctx context.Context, v *visit) (bool, error) {
	if err := v.wait(ctx, 0); err != nil {
		return false, err
	}
	_, leave, err := of.fence.Enter(ctx, of.key)
	if err != nil {
		return false, canceled(err)
	}
	defer leave()
	v.lost = of.owed || of.generation != ""
	there, err := of.clean(ctx)
	if ctx.Err() != nil {
		of.owe(v) // who has given up takes it for not done
	}
	return there, err
}

// clean ends the kept call. Precondition: the turn is held.
func (of *session) clean(ctx context.Context) (bool, error) {
	of.owed = false // it is what was asked for
	if of.call == nil {
		return false, nil
	}
	// The end of the call is the router's cleanup, which disposes of what cannot
	// be reset.
	err := of.call.Finish(ctx)
	of.call, of.generation, of.stopped = nil, "", false
	return true, err
}

// finish ends the session and disposes of its sandbox. It returns when both are
// done, whoever began.
func (of *session) finish() {
	of.once.Do(func() {
		of.end()
		// Not life's context: what is cleaned here is there because it ended.
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		last := of.line.joinLast()
		defer last.leave()
		err := last.wait(ctx, 0)
		var cleaned error
		if err == nil {
			// No operator is waited for: the end of a session removes its sandbox too.
			_, cleaned = of.clean(ctx)
		}
		purge := of.router.DisposeScope(ctx, of.key.Scope, of.key.ThreadID)
		if err := errors.Join(err, cleaned, purge.Err()); err != nil {
			of.logger.Error("the sandbox of a session is not confirmed gone", "key", of.key.String(), "error_type", sandbox.ErrorType(err))
			return
		}
		of.logger.Info("a session has ended", "key", of.key.String(), "disposed", purge.Disposed)
	})
}
