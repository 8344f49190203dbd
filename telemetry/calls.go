package telemetry

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Router is what [Calls] stands before: a *router.Router.
type Router interface {
	// EnsureCanServe says why the spec cannot be served; nil when it can.
	EnsureCanServe(spec sandbox.Spec) error
	// Serve runs f with a sandbox, as router.Router.Serve does.
	Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) error
}

// Calls has each call of a router in a span, under which those of the sandbox
// are: its acquire, what is done with it, its cleanup. What comes before and
// between them is the wait for other calls. It is a codeact.Router.
type Calls struct {
	i      *Instrumentation
	router Router
}

// Calls decorates a router.
func (i *Instrumentation) Calls(r Router) *Calls { return &Calls{i, r} }

// EnsureCanServe is the router's.
func (c *Calls) EnsureCanServe(spec sandbox.Spec) error { return c.router.EnsureCanServe(spec) }

// WithSandbox is Serve without options.
func (c *Calls) WithSandbox(ctx context.Context, key sandbox.Key, spec sandbox.Spec, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	return c.Serve(ctx, key, spec, router.CallOptions{}, f)
}

// Serve is the router's, in a span. The span has the error of the call: a
// refusal, or that of f.
func (c *Calls) Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) (err error) {
	ctx, r := c.i.begin(ctx, opCall, c.labels(spec.Kind))
	// Unless it returns, f has panicked or ended its goroutine.
	err = &sandbox.OpError{Op: opCall.word, Class: sandbox.ErrInternal}
	defer func() { r.end(ctx, err) }()
	if r.recording() {
		r.set(c.i.identity(key)...)
	}
	return c.router.Serve(ctx, key, spec, options, f)
}

// Report implements what package codeact asks of a router: what it tells of its
// calls is passed on to a router that hears it.
func (c *Calls) Report(event router.Event) {
	if reporter, ok := c.router.(interface{ Report(event router.Event) }); ok {
		reporter.Report(event)
	}
}

func (c *Calls) labels(kind string) *labels { return c.i.kinds.of("", kind, sandbox.IsolationUnset) }
