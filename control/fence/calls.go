package fence

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Calls has each call of a router inside a fence, its cleanup included, and
// knows what an operator's wish asks of one. It is a codeact.Router. All methods
// may be called at the same time.
type Calls struct {
	fence  *Fence
	router *router.Router
}

// Calls puts the fence round the calls of a router. Calls that reach the router
// by another way are not inside.
func (f *Fence) Calls(r *router.Router) *Calls { return &Calls{f, r} }

// EnsureCanServe is the router's.
func (c *Calls) EnsureCanServe(spec sandbox.Spec) error { return c.router.EnsureCanServe(spec) }

// Report is the router's.
func (c *Calls) Report(event router.Event) { c.router.Report(event) }

// WithSandbox is Serve without options.
func (c *Calls) WithSandbox(ctx context.Context, key sandbox.Key, spec sandbox.Spec, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	return c.Serve(ctx, key, spec, router.CallOptions{}, f)
}

// Serve is the router's, inside the fence: while somebody holds the key, calls
// wait, as long as their context lasts. A hold ends the context of f and has the
// call's sandbox disposed of. When f returns an error then, Serve's is a
// [sandbox.ErrDisposed] that is [ErrStopped] too; what f did in time counts.
func (c *Calls) Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	call, err := c.router.Enter(ctx, c.router.CallKey(key, spec), spec, options)
	if err != nil {
		return err
	}
	// The cleanup of a call that ended by itself is inside, so that operators find
	// what it made of the sandbox.
	leave := func() {}
	defer func() { leave() }()
	defer func() { _ = call.Finish(ctx) }() // the router's observer hears of it
	inside, leaveFirst, err := c.fence.Enter(ctx, call.Key())
	if err != nil {
		return &sandbox.OpError{Op: "enter", Class: sandbox.ErrCanceled, Usable: true, Cause: err}
	}
	leave = leaveFirst
	s, err := call.Acquire(inside)
	if err == nil {
		err = f(inside, s)
	}
	if !Stopped(inside) {
		return err
	}
	// The operator's disposal comes before the cleanup, which would make another
	// generation of what the operator saw.
	stopped := &sandbox.OpError{Op: "run_code", Class: sandbox.ErrDisposed, Cause: ErrStopped}
	call.Condemn(stopped)
	leave()
	if _, again, late := c.fence.Enter(ctx, call.Key()); late == nil {
		leave = again
	}
	if err != nil {
		return stopped
	}
	return nil
}
