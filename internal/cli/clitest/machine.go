// Package clitest plays the engine for tests of the commands.
package clitest

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Script is a program as the fake machine runs it.
type Script func(ctx context.Context, req microvm.Request) (microvm.Result, error)

// Engine is a fake: it knows programs by their trimmed text.
type Engine struct {
	Programs map[string]Script
	// OpenErr, if set, is what opening a machine gives.
	OpenErr error
	// Limits is the enforcement that machines say they have; "none" when empty.
	Limits microvm.Enforcement

	mu       sync.Mutex // guards what follows
	requests []microvm.Request
	options  []cli.Options
	opened   int
	closed   int
	resets   int
}

// Factory gives a factory over buffers and the fake.
func (e *Engine) Factory(s *streams.Streams, cacheDir string) (f *cli.Factory, signals chan<- os.Signal) {
	c := make(chan os.Signal, 1)
	return &cli.Factory{
		Streams:  s,
		Open:     e.Open,
		CacheDir: func() (string, error) { return cacheDir, nil },
		Signals:  func() (<-chan os.Signal, func()) { return c, func() {} },
	}, c
}

// Open is a cli.Opener.
func (e *Engine) Open(_ context.Context, o cli.Options) (cli.Machine, microvm.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.options = append(e.options, o)
	if e.OpenErr != nil {
		return nil, microvm.Info{}, e.OpenErr
	}
	e.opened++
	return &machine{e}, microvm.Info{Engine: "fake", Isolation: "none", Limits: cmp.Or(e.Limits, "none")}, nil
}

// Requests gives what was asked of machines, in order.
func (e *Engine) Requests() []microvm.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]microvm.Request(nil), e.requests...)
}

// Options gives what machines were opened with, in order.
func (e *Engine) Options() []cli.Options {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]cli.Options(nil), e.options...)
}

// Counts gives how often machines were opened, reset and closed.
func (e *Engine) Counts() (opened, resets, closed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened, e.resets, e.closed
}

type machine struct{ e *Engine }

func (m *machine) Run(ctx context.Context, req microvm.Request) (microvm.Result, error) {
	m.e.mu.Lock()
	m.e.requests = append(m.e.requests, req)
	script := m.e.Programs[strings.TrimSpace(req.Code)]
	m.e.mu.Unlock()
	if script == nil {
		return microvm.Result{}, &sandbox.OpError{Op: "run_code", Detail: "no script for " + req.Code}
	}
	return script(ctx, req)
}

func (m *machine) Reset(context.Context) error {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.e.resets++
	return nil
}

func (m *machine) ID() string { return "generation-1" }

func (m *machine) Close() error {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.e.closed++
	return nil
}

// Prints plays a program that writes and exits.
func Prints(stdout, stderr string, exitCode int) Script {
	return func(_ context.Context, req microvm.Request) (microvm.Result, error) {
		return write(req, stdout, stderr, status(exitCode)), nil
	}
}

// Fails plays a program that writes and then meets err.
func Fails(stdout, stderr string, err error) Script {
	return func(_ context.Context, req microvm.Request) (microvm.Result, error) {
		return write(req, stdout, stderr, microvm.Result{}), err
	}
}

// Values plays an expression: its repr is there only for those who ask.
func Values(value string) Script {
	return func(_ context.Context, req microvm.Request) (microvm.Result, error) {
		var res microvm.Result
		if req.Echo {
			res.Value = value
		}
		return res, nil
	}
}

// Waits plays a program that says it started and runs until it is canceled,
// which it survives.
func Waits(started chan<- struct{}) Script {
	return func(ctx context.Context, req microvm.Request) (microvm.Result, error) {
		started <- struct{}{}
		<-ctx.Done()
		res := write(req, "", "Traceback\nKeyboardInterrupt\n", status(1))
		return res, Failure(sandbox.ErrCanceled, true, "the run was canceled")
	}
}

// Exits plays a program that ends its interpreter itself.
func Exits(exitCode int) Script {
	return func(context.Context, microvm.Request) (microvm.Result, error) {
		res := status(exitCode)
		res.Exited = true
		return res, Failure(sandbox.ErrGuestCrash, false, "the program ended its interpreter")
	}
}

// Failure is how a run ends other than by its result.
func Failure(class error, usable bool, detail string) error {
	return &sandbox.OpError{Op: "run_code", Class: class, Usable: usable, Detail: detail}
}

func status(code int) microvm.Result {
	return microvm.Result{ExecResult: sandbox.ExecResult{ExitCode: code}}
}

func write(req microvm.Request, stdout, stderr string, res microvm.Result) microvm.Result {
	res.Stdout, res.Stderr = []byte(stdout), []byte(stderr)
	if req.Stdout != nil {
		_, _ = req.Stdout.Write(res.Stdout) // the engine ignores it too
	}
	if req.Stderr != nil {
		_, _ = req.Stderr.Write(res.Stderr)
	}
	return res
}
