package mcp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const (
	// startupTimeout bounds the start of a sandbox: the first one ever captures
	// this machine's Python and boots it.
	startupTimeout = 2 * time.Minute
	// grace is how long an interrupted program has to obey. The backend's own is
	// short; a conversation should not lose its names to a busy machine.
	grace = 200 * time.Millisecond
	// spares is how many workers are ready before a session asks.
	spares = 1
)

// lazy is a backend that starts at its first use: clients want their answer to
// initialize at once, and the first start ever takes seconds. What does not
// start is tried again at the next use, since an operator may have mended it.
type lazy struct {
	// model says what the backend is like; it never starts.
	sandbox.Backend
	// open starts one.
	open func(ctx context.Context) (sandbox.Backend, error)
	// turn holds one token while nobody starts the backend or closes it.
	turn chan struct{}
	// live, closed and report belong to whoever has the turn.
	live   sandbox.Backend
	closed bool
	report func(sandbox.EgressObservation)
	logger *slog.Logger
	// facts are those of the image as it is now; nothing is started for them. Nil
	// for a backend that knows none.
	facts func(sandbox.Spec) (sandbox.Facts, error)
}

// newBackend makes the backend of micro-VMs that the options ask for.
func newBackend(o *Options, private []sandbox.Host, logger *slog.Logger) (sandbox.Backend, error) {
	if err := o.ready(); err != nil {
		return nil, err
	}
	cache, err := o.Factory.CacheDir()
	if err != nil {
		return nil, err
	}
	c := microvm.Config{
		Private: true, Image: o.Image, CacheDir: cache, Engine: microvm.Engine(o.Engine.Value), Memory: o.Memory.Bytes, MaxOutput: int(o.MaxOutput.Bytes),
		StartupTimeout: startupTimeout, Grace: grace, Pool: spares, PrivateHosts: private, Logger: logger,
		Progress: func(step string) { logger.Info("the first sandbox", "waits_for", step) },
	}
	model, err := microvm.New(c)
	if err != nil {
		return nil, err
	}
	b := newLazy(model, logger, func(ctx context.Context) (sandbox.Backend, error) { return start(ctx, c, o.Limits.Value) })
	b.facts = model.Facts
	return b, nil
}

func newLazy(model sandbox.Backend, logger *slog.Logger, open func(context.Context) (sandbox.Backend, error)) *lazy {
	b := &lazy{Backend: model, open: open, turn: make(chan struct{}, 1), logger: logger}
	b.turn <- struct{}{}
	return b
}

// start starts a backend under the strongest ceiling that can be had.
func start(ctx context.Context, c microvm.Config, limits string) (sandbox.Backend, error) {
	var err error
	for _, c.Enforcement = range cli.Enforcements(limits) {
		var b *microvm.Backend
		if b, err = microvm.New(c); err != nil {
			return nil, err
		}
		if err = b.Prepare(ctx); err == nil {
			return b, nil
		}
		err = errors.Join(err, b.Close())
		if !errors.Is(err, sandbox.ErrUnavailable) {
			break
		}
	}
	return nil, cli.StartFailure(err)
}

// Warm starts the backend ahead of the first client that needs it.
func (b *lazy) Warm(ctx context.Context) {
	if _, err := b.opened(ctx); err != nil && ctx.Err() == nil {
		b.logger.Error("no sandbox can be started", "error", err)
	}
}

// opened gives the backend, started.
func (b *lazy) opened(ctx context.Context) (sandbox.Backend, error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, &sandbox.OpError{Op: "acquire", Class: sandbox.ErrCanceled, Usable: true, Cause: ctx.Err()}
	}
	defer func() { b.turn <- struct{}{} }()
	switch {
	case b.closed:
		return nil, &sandbox.OpError{Op: "acquire", Class: sandbox.ErrClosed}
	case b.live != nil:
		return b.live, nil
	}
	live, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	if reporter, ok := live.(router.EgressReporter); ok && b.report != nil {
		reporter.ObserveEgress(b.report)
	}
	b.live = live
	return live, nil
}

// ObserveEgress implements router.EgressReporter. The router calls it before the
// backend is used.
func (b *lazy) ObserveEgress(report func(sandbox.EgressObservation)) {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.report = report
}

// started gives the backend if it has been started; nil when there is none, and
// so nothing to dispose of.
func (b *lazy) started() sandbox.Backend {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	return b.live
}

// Acquire implements sandbox.Backend.
func (b *lazy) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	live, err := b.opened(ctx)
	if err != nil {
		return nil, err
	}
	return live.Acquire(ctx, key, spec)
}

// Dispose implements sandbox.Backend.
func (b *lazy) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	if live := b.started(); live != nil {
		return live.Dispose(ctx, key, options)
	}
	return nil
}

// DisposeScope implements sandbox.Backend.
func (b *lazy) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	if live := b.started(); live != nil {
		return live.DisposeScope(ctx, scope, threadID)
	}
	return sandbox.ScopePurge{}
}

// Close implements sandbox.Backend.
func (b *lazy) Close() error {
	<-b.turn
	b.closed = true
	live := b.live
	b.turn <- struct{}{}
	if live == nil {
		return nil
	}
	return live.Close()
}
