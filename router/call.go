package router

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// CallOptions are how a call enters. The zero value is useful.
type CallOptions struct {
	// Exclusive wants the sandbox alone, whatever the spec says.
	Exclusive bool
	// QueueTimeout bounds the wait for each call ahead; zero means the
	// router's.
	QueueTimeout time.Duration
}

// Call is one use of a sandbox, from Enter to Finish. Its backend and its
// cleanup are settled when it enters. All methods may be called at the same
// time.
type Call struct {
	router   *Router
	key      sandbox.Key
	spec     sandbox.Spec
	provider *provider
	rung     sandbox.Cleanup
	lease    CallLease // nil unless the backend is a CallAdmitter

	// life ends with the call, and with it the acquires on their way.
	life      context.Context
	stop      context.CancelFunc
	acquiring sync.WaitGroup

	mu        sync.Mutex
	ended     bool      // guarded by mu
	attempted bool      // a backend was asked; guarded by mu
	held      []remains // one for each generation acquired; guarded by mu
	condemned error     // guarded by mu
}

// CallKey is the key under which a call of the spec is served: the key itself,
// or with a call id of its own when the effective isolation scope is call and
// the key has none.
func (r *Router) CallKey(key sandbox.Key, spec sandbox.Spec) sandbox.Key {
	if key.CallID == "" && r.EffectiveIsolationScope(spec) == sandbox.ScopeCall {
		key.CallID = "call-" + rand.Text()
	}
	return key
}

// Enter lets a call in. Calls of the same key and kind share the sandbox, but
// for one that wants it alone, by its options, by the spec's ExclusiveAdmission
// or because its backend is a CallAdmitter or declares it; and none enters while a call that ended has left
// something to clean. They enter in the order in which they came. The wait for
// each call ahead is bounded; when it runs out the error is a
// sandbox.ErrQueuedTimeout, and a call whose ctx ends in the queue leaves
// nothing. Refusals are those of Acquire.
//
// Whoever entered must call Finish or Release.
func (r *Router) Enter(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options CallOptions) (*Call, error) {
	started := time.Now()
	call, p, err := r.enter(ctx, key, spec, options)
	if err != nil {
		r.refused(started, key, spec, p, err)
		return nil, err
	}
	if r.config.Observer != nil {
		r.admitted(ctx, call, CallAdmitted{
			Key: key, Kind: spec.Kind, Backend: p.name, Exclusive: p.alone(spec, options),
			Wait: time.Since(started),
		})
	}
	return call, nil
}

// admitted tells the observer of a call that is in. If it panics the call is out
// again: nobody else could end it.
func (r *Router) admitted(ctx context.Context, call *Call, event CallAdmitted) {
	told := false
	defer func() {
		if !told {
			_ = call.Release(ctx) // what others left is reported as ever
		}
	}()
	r.observe(event)
	told = true
}

func (r *Router) enter(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options CallOptions) (*Call, *provider, error) {
	if options.QueueTimeout < 0 {
		return nil, nil, misuse("options.QueueTimeout", options.QueueTimeout.String(), "zero for the router's, or more")
	}
	p, err := r.admissible(key, spec)
	if err != nil {
		return nil, p, err
	}
	at := place{key, spec.Kind}
	patience := cmp.Or(options.QueueTimeout, r.config.QueueTimeout)
	if err := r.admission.enter(ctx, at, p.alone(spec, options), patience); err != nil {
		return nil, p, queued("enter", err)
	}
	lease, err := r.reserve(ctx, p, at, spec, patience)
	if err != nil {
		return nil, p, err
	}
	call := &Call{router: r, key: key, spec: spec.Clone(), provider: p, rung: r.rung(p, spec), lease: lease}
	call.life, call.stop = context.WithCancel(context.Background())
	if err := ctx.Err(); err != nil {
		_ = call.Release(ctx) // what others left is reported as ever
		return nil, p, queued("enter", err)
	}
	return call, p, nil
}

// alone says whether a call has its sandbox alone: by its own wish, or because the
// provider wants it for all of them.
func (p *provider) alone(spec sandbox.Spec, options CallOptions) bool {
	return options.Exclusive || spec.ExclusiveAdmission || p.admitter != nil || p.declares.ExclusiveAdmission
}

// reserve gets the backend's leave for a call that is in; nil when the backend
// wants none. With an error the call is out again, and has left nothing.
func (r *Router) reserve(ctx context.Context, p *provider, at place, spec sandbox.Spec, patience time.Duration) (lease CallLease, err error) {
	if p.admitter == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	reserved := false
	defer func() {
		if !reserved { // a panic of the backend's too
			r.admission.leave(at, nil)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lease, err = p.admitter.AdmitCall(ctx, at.key, spec.Clone())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, queued("enter", errors.Join(ctx.Err(), err))
	case err != nil:
		return nil, err
	case lease == nil:
		return nil, &sandbox.OpError{Op: "enter", Class: sandbox.ErrInternal, Detail: p.decider() + ": the backend gave no lease and no error"}
	}
	reserved = true
	return lease, nil
}

// Key is the key of the call's sandboxes.
func (c *Call) Key() sandbox.Key { return c.key }

// Backend is the name of the backend that serves the call.
func (c *Call) Backend() string { return c.provider.name }

// Cleanup is what happens to the call's sandboxes when it finishes.
func (c *Call) Cleanup() sandbox.Cleanup { return c.rung }

// Acquire gets the call's sandbox, as Router.Acquire does. A call can acquire
// again, such as after its sandbox was lost. It fails once the call has ended,
// and is canceled when the call ends meanwhile. The sandbox must not be used
// after that.
func (c *Call) Acquire(ctx context.Context) (sandbox.Sandbox, error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil, misuse("call", "a sandbox after the end of the call", "sandboxes until Finish or Release")
	}
	c.acquiring.Add(1)
	c.attempted = true
	c.mu.Unlock()
	defer c.acquiring.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if c.lease != nil {
		ctx = c.lease.Context(ctx)
	}
	s, err := c.router.acquire(ctx, c.key, c.spec, c.provider)
	if err != nil {
		return nil, err
	}
	for _, gone := range c.hold(c.remains(s)) {
		c.confirm(ctx, gone)
	}
	return s, nil
}

// confirm makes sure that a generation is gone in whose place the backend has put
// another. A failure leaves the key unclean, and the end of the call tries again.
func (c *Call) confirm(ctx context.Context, gone remains) {
	confirmed := false
	defer func() {
		if !confirmed { // a panic of the backend's too
			c.mu.Lock()
			defer c.mu.Unlock()
			c.held = append(c.held, gone)
		}
	}()
	options := sandbox.DisposeOptions{Kind: c.spec.Kind, InstanceID: gone.id}
	confirmed = c.router.remove(ctx, c.provider, c.key, options) == nil
}

// hold remembers what the call leaves in a sandbox that it has acquired, and gives
// what it no longer has to: generations that others have replaced, so that a call
// that is kept for long does not gather everything that it has lost.
func (c *Call) hold(left remains) (replaced []remains) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Another acquire of the call may have come back with a newer one before this.
	now, known := c.router.known.at(c.key, spot{c.provider, c.spec.Kind})
	there := false
	c.held = slices.DeleteFunc(c.held, func(m remains) bool {
		if m.id == left.id || same(left.sandbox, m.sandbox) {
			again := there
			there = true
			return again
		}
		if !known || m.id == now.id || same(now.sandbox, m.sandbox) {
			return false
		}
		m.id = m.current() // which no program replaces any more
		replaced = append(replaced, m)
		return true
	})
	if !there {
		c.held = append(c.held, left)
	}
	return replaced
}

// remains is what this call leaves in a sandbox; nil stands for whatever the
// backend has for the key and kind.
func (c *Call) remains(s sandbox.Sandbox) remains {
	left := remains{provider: c.provider, contract: c.spec.ExecutionContract, sandbox: s, rung: c.rung}
	if s != nil {
		left.id = s.ID()
	}
	return left
}

// Condemn has the call's sandboxes disposed of at its end, however they would
// be cleaned otherwise: something happened in them that no cleanup undoes. The
// reason reaches ReclaimConfig.OnFailure; only the first one counts.
func (c *Call) Condemn(reason error) {
	if reason == nil {
		reason = errors.New("condemned")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.condemned == nil {
		c.condemned = reason
	}
}

// Finish ends the call. Unless other calls are inside, it cleans what this
// call and those before it left in their sandboxes, and returns when that is
// done; otherwise the last one to end does it. What ctx says of time does not
// count: each step has the timeout of reclaims.
//
// A reset that fails becomes a disposal, and a disposal that fails leaves the
// key unclean. The error joins one *CleanupError for each sandbox that is
// neither clean nor confirmed gone; it says nothing about what the call
// computed. A call ends once: after that Finish does nothing.
func (c *Call) Finish(ctx context.Context) error { return c.end(ctx, true) }

// Release ends a call that put nothing into its sandboxes, so that they need
// not be cleaned. A sandbox of the call's own, or one that is condemned, is
// disposed of all the same. Otherwise it is like Finish.
func (c *Call) Release(ctx context.Context) error { return c.end(ctx, false) }

func (c *Call) end(ctx context.Context, clean bool) error {
	c.mu.Lock()
	ended := c.ended
	c.ended = true
	c.mu.Unlock()
	if ended {
		return nil
	}
	// An acquire may still bring a sandbox.
	c.stop()
	c.acquiring.Wait()
	release := func() {}
	if c.lease != nil {
		ctx, release = c.lease.Context(ctx), sync.OnceFunc(c.lease.Release)
	}
	return c.router.leave(ctx, place{c.key, c.spec.Kind}, c.left(clean), release)
}

// left is what has to be cleaned. Precondition: no acquire is on its way.
func (c *Call) left(clean bool) []remains {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.key.CallID != ""
	switch {
	case own && c.attempted && len(c.held) == 0:
		// Nobody else would ever ask for what the backend may have begun.
		return []remains{c.remains(nil)}
	case !clean && !own && c.condemned == nil:
		return nil
	}
	for i := range c.held {
		c.held[i].condemned = c.condemned
	}
	return c.held
}

// WithSandbox runs f in a call: it enters, acquires, runs f, and finishes,
// however f ends. It gives the call a key of its own where the isolation scope
// wants one. The error is that of entering, acquiring or f; a cleanup that did
// not go well changes no result, and reaches ReclaimConfig.OnFailure and the
// observer instead. The sandbox must not be used after f has returned.
func (r *Router) WithSandbox(ctx context.Context, key sandbox.Key, spec sandbox.Spec, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	return r.Serve(ctx, key, spec, CallOptions{}, f)
}

// Serve is WithSandbox with options.
func (r *Router) Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) error {
	call, err := r.Enter(ctx, r.CallKey(key, spec), spec, options)
	if err != nil {
		return err
	}
	defer func() { _ = call.Finish(ctx) }()
	s, err := call.Acquire(ctx)
	if err != nil {
		return err
	}
	return f(ctx, s)
}
