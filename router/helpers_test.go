package router_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// fake is the backend in memory with what it lacks: sandboxes that can be
// reclaimed, that vouch for themselves, and that break the protocol.
type fake struct {
	*sandboxtest.Backend
	// vouches has sandboxes say whether a program has reached them.
	vouches bool
	// reclaims has sandboxes implement sandbox.Reclaimer.
	reclaims bool
	// spoil, if set, replaces what Acquire gives.
	spoil func(s sandbox.Sandbox) sandbox.Sandbox

	// reclaim is what Reclaim returns.
	reclaim error
	use     *usage
}

// usage is which generations programs have reached.
type usage struct {
	mu   sync.Mutex
	used map[string]bool
}

func (u *usage) note(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[id] = true
}

func (u *usage) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.used[id]
}

// declared is what the fakes of most tests declare.
func declared(capabilities ...sandbox.Capability) sandbox.Declarations {
	return sandbox.Declarations{
		Capabilities:    sandbox.SetOf(capabilities...).With(sandbox.CapRunCode),
		EgressModes:     sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
		OSFamilies:      sandbox.SetOf(sandbox.OSPosix),
		IsolationScopes: sandbox.SetOf(sandbox.ScopeConversation, sandbox.ScopeCall),
	}
}

// newFake makes a backend that claims to be a micro-VM.
func newFake(name string, capabilities ...sandbox.Capability) *fake {
	return newFakeWith(name, sandbox.IsolationMicroVM, declared(capabilities...))
}

func newFakeWith(name string, isolation sandbox.Isolation, declares sandbox.Declarations) *fake {
	return &fake{
		Backend: sandboxtest.New(sandboxtest.Config{Name: name, Isolation: isolation, Declarations: &declares}),
		use:     &usage{used: make(map[string]bool)},
	}
}

// snapshots is the backend of most tests.
func snapshots() *fake { return newFake("memory", sandbox.CapSnapshot) }

func (b *fake) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := b.Backend.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	plain := &box{s, b}
	var given sandbox.Sandbox = plain
	if b.reclaims {
		given = &reclaimable{plain}
	}
	if b.vouches {
		given = &vouching{plain}
	}
	if b.spoil != nil {
		given = b.spoil(given)
	}
	return given, nil
}

type box struct {
	sandbox.Sandbox
	backend *fake
}

func (s *box) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	s.backend.use.note(s.ID())
	return s.Sandbox.RunCode(ctx, code, timeout)
}

type vouching struct{ *box }

func (s *vouching) Fresh() bool { return !s.backend.use.has(s.ID()) }

type reclaimable struct{ *box }

func (s *reclaimable) Reclaim(context.Context) error { return s.backend.reclaim }

// ops are the operations that the backend received, such as
// "acquire reset run_code dispose"; a disposal of one generation is
// "dispose(id)".
func (b *fake) ops() string {
	var ops []string
	for _, call := range b.Calls() {
		op := string(call.Op)
		if call.Op == sandboxtest.OpDispose && call.InstanceID != "" {
			op += "(id)"
		}
		ops = append(ops, op)
	}
	return strings.Join(ops, " ")
}

func (b *fake) wantOps(t *testing.T, want string) {
	t.Helper()
	if got := b.ops(); got != want {
		t.Errorf("the backend received %q, want %q", got, want)
	}
}

// lenient has a backend reset after calls, instead of disposing.
func lenient(backends ...sandbox.Backend) router.Config {
	return router.Config{Backends: backends, MinCleanup: sandbox.CleanupReset}
}

func newRouter(t testing.TB, config router.Config) *router.Router {
	t.Helper()
	r, err := router.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if held := r.Held(); held != "" {
			t.Errorf("the router still holds %s", held)
		}
	})
	return r
}

var mainKey = sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}

func callKey(id string) sandbox.Key {
	key := mainKey
	key.CallID = id
	return key
}

var pythonSpec = sandbox.Spec{Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode)}

// contract is pythonSpec under an execution contract.
func contract(text string) sandbox.Spec {
	spec := pythonSpec
	spec.ExecutionContract = text
	return spec
}

func acquire(t *testing.T, r *router.Router, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := r.Acquire(t.Context(), mainKey, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func enter(t *testing.T, r *router.Router, key sandbox.Key, spec sandbox.Spec) (*router.Call, sandbox.Sandbox) {
	t.Helper()
	call, err := r.Enter(t.Context(), key, spec, router.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := call.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return call, s
}

// run runs a program that must print exactly this.
func run(t *testing.T, s sandbox.Sandbox, code, want string) {
	t.Helper()
	result, err := s.RunCode(t.Context(), code, 0)
	if err != nil || result.StdoutText() != want {
		t.Errorf("RunCode(%q) = %q, %v; want %q", code, result.StdoutText(), err, want)
	}
}

// running runs a program as the work of a call.
func running(t *testing.T, code, want string) func(context.Context, sandbox.Sandbox) error {
	return func(_ context.Context, s sandbox.Sandbox) error {
		t.Helper()
		run(t, s, code, want)
		return nil
	}
}

func is(t *testing.T, err error, class error, parts ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("the error is %v (%T), want one that is %q", err, err, class)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not say %q", err, part)
		}
	}
}

func isNil(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// unreachable is how a scripted disposal fails.
var unreachable = &sandbox.DisposalFailure{Code: sandbox.DisposalUnreachable, Detail: "scripted"}

func failing(err error) sandboxtest.Step { return sandboxtest.Step{Err: err} }

func held(gate *sandboxtest.Gate) sandboxtest.Step { return sandboxtest.Step{Gate: gate} }

// disposalFailure is the error as what it must be; an empty one when it is not.
func disposalFailure(t *testing.T, err error) *sandbox.DisposalFailure {
	t.Helper()
	var failure *sandbox.DisposalFailure
	if !errors.As(err, &failure) {
		t.Errorf("the error is %v (%T), want a disposal failure", err, err)
		return new(sandbox.DisposalFailure)
	}
	return failure
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []router.Event
}

func (r *recorder) Observe(event router.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) take() []router.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	r.events = nil
	return events
}
