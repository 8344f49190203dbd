package control_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// box is a sandbox whose worker a test moves about.
type box struct {
	place [2]string // key and kind

	mu     sync.Mutex
	id     string          // guarded by mu
	report liveness.Report // guarded by mu
}

func newBox(key sandbox.Key, kind string) *box {
	return &box{place: [2]string{key.String(), kind}, id: rand.Text(), report: liveness.Report{State: liveness.Ready, ProcessID: 777}}
}

func (b *box) ID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

func (b *box) Liveness() liveness.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.report
}

func (b *box) become(state liveness.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.State = state
}

func (b *box) rename(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id = id
}

func (b *box) Reset(context.Context) error {
	b.rename(rand.Text())
	return nil
}

func (*box) RunCode(context.Context, string, time.Duration) (sandbox.ExecResult, error) {
	return sandbox.ExecResult{}, nil
}

// silentBox is a sandbox that cannot tell what its worker does.
type silentBox struct{ inner *box }

func (b silentBox) ID() string                      { return b.inner.ID() }
func (b silentBox) Reset(ctx context.Context) error { return b.inner.Reset(ctx) }
func (b silentBox) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	return b.inner.RunCode(ctx, code, timeout)
}

// How disposals of a backend end.
const (
	modeOK      = ""
	modeFail    = "fail"    // a failure in the protocol's words
	modeRaise   = "raise"   // any other error
	modeHang    = "hang"    // nothing until the context ends
	modeStuck   = "stuck"   // nothing until the test lets go, whatever the context
	modeNoExit  = "no exit" // success without an exit of the worker
	modePartial = "partial" // one of several
)

type backend struct {
	silent bool
	letGo  chan struct{}

	mu    sync.Mutex
	mode  string                 // guarded by mu
	live  map[sandbox.Key][]*box // guarded by mu
	calls []string               // guarded by mu
}

func newBackend() *backend {
	return &backend{live: make(map[sandbox.Key][]*box), letGo: make(chan struct{})}
}

func (*backend) Name() string                 { return "hyperlight" }
func (*backend) Isolation() sandbox.Isolation { return sandbox.IsolationMicroVM }
func (*backend) Close() error                 { return nil }
func (*backend) Declarations() sandbox.Declarations {
	return sandbox.Declarations{
		Capabilities: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot),
		EgressModes:  sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
	}
}

func (b *backend) set(mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = mode
}

func (b *backend) log() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// boxes are all that live, in the order of their making.
func (b *backend) boxes() []*box {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*box
	for _, boxes := range b.live {
		all = append(all, boxes...)
	}
	return all
}

func (b *backend) Acquire(_ context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.live[key], func(x *box) bool { return x.place[1] == spec.Kind })
	if at < 0 {
		at = len(b.live[key])
		b.live[key] = append(b.live[key], newBox(key, spec.Kind))
	}
	if b.silent {
		return silentBox{b.live[key][at]}, nil
	}
	return b.live[key][at], nil
}

// meet is what every disposal meets first.
func (b *backend) meet(ctx context.Context, call string) (mode string, err error) {
	b.mu.Lock()
	b.calls = append(b.calls, call)
	mode = b.mode
	b.mu.Unlock()
	switch mode {
	case modeHang:
		<-ctx.Done()
		return mode, sandbox.AsDisposalFailure(ctx.Err())
	case modeStuck:
		<-b.letGo
	case modeFail:
		return mode, &sandbox.DisposalFailure{Code: sandbox.DisposalRefused, Detail: "scripted"}
	case modeRaise:
		return mode, errors.New("boom")
	}
	return mode, nil
}

// end removes the boxes of a key that fit.
func (b *backend) end(key sandbox.Key, exit bool, fits func(*box) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := 0
	b.live[key] = slices.DeleteFunc(b.live[key], func(x *box) bool {
		if !fits(x) {
			return false
		}
		gone++
		if exit {
			x.become(liveness.Exited)
		}
		return true
	})
	return gone
}

func (b *backend) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	mode, err := b.meet(ctx, "dispose "+options.Kind)
	if err != nil {
		return err
	}
	b.end(key, mode != modeNoExit, func(x *box) bool {
		return (options.Kind == "" || x.place[1] == options.Kind) && (options.InstanceID == "" || x.ID() == options.InstanceID)
	})
	return nil
}

func (b *backend) DisposeScope(ctx context.Context, scope, thread string) sandbox.ScopePurge {
	mode, err := b.meet(ctx, "dispose scope")
	if err != nil {
		return sandbox.ScopePurge{Undisposed: sandbox.AsDisposalFailure(err)}
	}
	b.mu.Lock()
	var keys []sandbox.Key
	for key := range b.live {
		if key.Scope == scope && key.ThreadID == thread {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	var purge sandbox.ScopePurge
	for _, key := range keys {
		purge.Disposed += b.end(key, mode != modeNoExit, func() func(*box) bool {
			ended := 0
			return func(*box) bool {
				ended++
				return mode != modePartial || ended == 1
			}
		}())
	}
	if mode == modePartial {
		purge.Undisposed = &sandbox.DisposalFailure{Code: sandbox.DisposalTimeout, Detail: "scripted partial"}
	}
	return purge
}

// plainRouter is as much of a router as the control plane can tell: it remembers
// keys whose disposal failed.
type plainRouter struct {
	backend sandbox.Backend
	refuse  error

	mu      sync.Mutex
	unclean map[sandbox.Key]bool // guarded by mu
}

func (r *plainRouter) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	r.mu.Lock()
	unclean := r.unclean[key]
	r.mu.Unlock()
	if unclean {
		return nil, &sandbox.RefusalError{Reason: sandbox.ErrUnclean, Subject: key.String()}
	}
	box, err := r.backend.Acquire(ctx, key, spec)
	if err == nil {
		err = r.refuse
	}
	watcher := r.backend.(watcher)
	if err != nil {
		watcher.Refused(key, spec.Kind)
		return nil, err
	}
	watcher.Admitted(key, spec, box)
	return box, nil
}

// watcher is the router's interface of backends that want to know.
type watcher interface {
	Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox)
	Refused(key sandbox.Key, kind string)
}

func (r *plainRouter) DisposeKind(ctx context.Context, key sandbox.Key, kind, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.backend.Dispose(ctx, key, sandbox.DisposeOptions{Kind: kind, InstanceID: id})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unclean == nil {
		r.unclean = make(map[sandbox.Key]bool)
	}
	r.unclean[key] = err != nil
	return err
}

func (r *plainRouter) DisposeScope(ctx context.Context, scope, thread string) sandbox.ScopePurge {
	purge := r.backend.DisposeScope(ctx, scope, thread)
	if purge.Undisposed != nil {
		purge.Undisposed = &sandbox.DisposalFailure{Code: purge.Undisposed.Code, Detail: r.backend.Name() + ": " + purge.Undisposed.Detail}
	}
	return purge
}

// hosted is a whole host in memory.
type hosted struct {
	backend *backend
	monitor *control.Monitor
	router  routing
	// plain is the router when it is the one of this file
	plain *plainRouter
}

// routing is what the tests do with a router.
type routing interface {
	control.Router
	Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error)
	DisposeScope(ctx context.Context, scope, thread string) sandbox.ScopePurge
}

func newHosted() *hosted {
	h := &hosted{backend: newBackend()}
	h.monitor = control.NewMonitor(h.backend)
	h.plain = &plainRouter{backend: h.monitor}
	h.router = h.plain
	return h
}

var testKey = sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}

func testSpec(kind string) sandbox.Spec {
	rules, err := sandbox.AllowHosts("b.example", "a.example")
	if err != nil {
		panic(err)
	}
	return sandbox.Spec{
		Kind: kind, Requires: sandbox.SetOf(sandbox.CapRunCode), Egress: sandbox.EgressAllowlist, EgressAllow: rules,
		ExecutionContract: "contract-1",
	}
}

func (h *hosted) acquire(kind string) (sandbox.Sandbox, error) {
	return h.router.Acquire(context.Background(), testKey, testSpec(kind))
}

// control is the host's control; a nil callback is left out.
func (h *hosted) control(quiesce func(context.Context, sandbox.Key) (func(), error), purge bool) *control.Host {
	config := control.HostConfig{SourceID: "src", Monitors: []*control.Monitor{h.monitor}, Router: h.router, Quiesce: quiesce}
	if purge {
		config.Purge = func(ctx context.Context, scope, thread string) (sandbox.ScopePurge, error) {
			return h.router.DisposeScope(ctx, scope, thread), nil
		}
	}
	host, err := control.NewHost(config)
	if err != nil {
		panic(fmt.Sprint("host: ", err))
	}
	return host
}
