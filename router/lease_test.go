package router_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// leasing is a backend that owns its sandbox for the length of each call.
type leasing struct {
	*fake
	// admit, if set, is what AdmitCall does first.
	admit func(ctx context.Context) error
	// panics has releases panic.
	panics bool

	mu    sync.Mutex
	log   []string // guarded by mu
	holds int      // guarded by mu
}

type leaseKey struct{}

func (b *leasing) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
}

func (b *leasing) wantLog(t *testing.T, want string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.log, " "); got != want || b.holds != 0 {
		t.Errorf("the backend saw %q, want %q; %d leases are left", got, want, b.holds)
	}
}

func (b *leasing) AdmitCall(ctx context.Context, _ sandbox.Key, _ sandbox.Spec) (router.CallLease, error) {
	if b.admit != nil {
		if err := b.admit(ctx); err != nil {
			b.note("refused")
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, "admitted")
	if b.holds++; b.holds > 1 {
		b.log = append(b.log, "TWICE")
	}
	return &lease{b}, nil
}

// Acquire, and what its sandboxes do, say whose they are.
func (b *leasing) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.note(whose(ctx, "acquire"))
	s, err := b.fake.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return &leased{s, b}, nil
}

func (b *leasing) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	b.note(whose(ctx, "dispose"))
	return b.fake.Dispose(ctx, key, options)
}

type leased struct {
	sandbox.Sandbox
	backend *leasing
}

func (s *leased) Reset(ctx context.Context) error {
	s.backend.note(whose(ctx, "reset"))
	return s.Sandbox.Reset(ctx)
}

func whose(ctx context.Context, what string) string {
	if ctx.Value(leaseKey{}) == nil {
		return what + "(nobody's)"
	}
	return what
}

type lease struct{ backend *leasing }

func (*lease) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, true)
}

func (l *lease) Release() {
	l.backend.mu.Lock()
	l.backend.holds--
	l.backend.log = append(l.backend.log, "released")
	panics := l.backend.panics
	l.backend.mu.Unlock()
	if panics {
		panic("release")
	}
}

func newLeasing() *leasing { return &leasing{fake: snapshots()} }

func TestABackendOwnsItsSandboxForTheLengthOfACall(t *testing.T) {
	scripted := errors.New("scripted")
	nothing := func(context.Context, sandbox.Sandbox) error { return nil }
	for name, row := range map[string]struct {
		change func(b *leasing, c *router.Config)
		work   func(r *router.Router) error
		class  error // of the error; nil for none
		log    string
	}{
		"a call": {
			work: func(r *router.Router) error { return r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing) },
			log:  "admitted acquire reset reset released",
		},
		"a call that disposes": {
			change: func(_ *leasing, c *router.Config) { c.MinCleanup = sandbox.CleanupDispose },
			work:   func(r *router.Router) error { return r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing) },
			log:    "admitted acquire reset dispose released",
		},
		"a reset that fails": {
			change: func(b *leasing, _ *router.Config) {
				b.Script(sandboxtest.OpReset, sandboxtest.Step{}, failing(scripted))
			},
			work: func(r *router.Router) error { return r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing) },
			log:  "admitted acquire reset reset dispose released",
		},
		"a call that is not used": {
			work: func(r *router.Router) error {
				call, err := r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{})
				if err != nil {
					return err
				}
				return call.Finish(t.Context())
			},
			log: "admitted released",
		},
		"an acquire that fails": {
			change: func(b *leasing, _ *router.Config) { b.Script(sandboxtest.OpAcquire, failing(scripted)) },
			work:   func(r *router.Router) error { return r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing) },
			class:  scripted,
			log:    "admitted acquire released",
		},
		"an acquire outside of calls": {
			work: func(r *router.Router) error {
				_, err := r.Acquire(t.Context(), mainKey, pythonSpec)
				return err
			},
			log: "acquire(nobody's) reset(nobody's)",
		},
		"a backend that refuses": {
			change: func(b *leasing, _ *router.Config) { b.admit = func(context.Context) error { return scripted } },
			work:   func(r *router.Router) error { return r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing) },
			class:  scripted,
			log:    "refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLeasing()
			config := lenient(b)
			if row.change != nil {
				row.change(b, &config)
			}
			r := newRouter(t, config)
			if err := row.work(r); row.class == nil && err != nil || row.class != nil && !errors.Is(err, row.class) {
				t.Errorf("error %v, want %v", err, row.class)
			}
			b.wantLog(t, row.log)
			// Nobody is kept out afterwards.
			b.admit = nil
			isNil(t, "the next call", r.WithSandbox(t.Context(), mainKey, pythonSpec, nothing))
		})
	}
}

func TestCallsOfABackendThatOwnsThemFollowEachOther(t *testing.T) {
	for name, backend := range map[string]func() (sandbox.Backend, func(t *testing.T)){
		"a lease": func() (sandbox.Backend, func(*testing.T)) {
			b := newLeasing()
			return b, func(t *testing.T) {
				t.Helper()
				b.wantLog(t, "admitted acquire reset reset released admitted acquire reset released")
			}
		},
		"a declaration": func() (sandbox.Backend, func(*testing.T)) {
			declares := declared(sandbox.CapSnapshot)
			declares.ExclusiveAdmission = true
			b := newFakeWith("memory", sandbox.IsolationMicroVM, declares)
			return b, func(t *testing.T) {
				t.Helper()
				b.wantOps(t, "acquire reset run_code reset acquire run_code reset")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, check := backend()
				l := newLine(t, newRouter(t, lenient(b)))
				l.come(t.Context(), "a", pythonSpec, router.CallOptions{})
				l.come(t.Context(), "b", pythonSpec, router.CallOptions{})
				l.wantIn("a")
				l.end("a", "b")
				l.wantIn("a b")
				l.wg.Wait()
				check(t)
			})
		})
	}
}

func TestABackendKeepsACallWaitingOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeasing()
		b.admit = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		config := lenient(b)
		config.QueueTimeout = time.Minute
		r := newRouter(t, config)
		_, err := r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{})
		is(t, err, sandbox.ErrQueuedTimeout, "nothing was started")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = r.Enter(ctx, mainKey, pythonSpec, router.CallOptions{})
		is(t, err, sandbox.ErrCanceled)
		b.wantLog(t, "refused refused")
	})
}

func TestABackendThatPanicsKeepsNobodyOut(t *testing.T) {
	b := newLeasing()
	r := newRouter(t, lenient(b))
	attempt := func(work func() error) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		_ = work()
		return false
	}
	call := func() error {
		return r.WithSandbox(t.Context(), mainKey, pythonSpec, func(context.Context, sandbox.Sandbox) error { return nil })
	}
	b.admit = func(context.Context) error { panic("admit") }
	if !attempt(call) {
		t.Error("a panic in AdmitCall is lost")
	}
	b.admit, b.panics = nil, true
	if !attempt(call) {
		t.Error("a panic in Release is lost")
	}
	if !attempt(func() error {
		call, err := r.Enter(t.Context(), mainKey, pythonSpec, router.CallOptions{})
		if err != nil {
			return err
		}
		return call.Release(t.Context())
	}) {
		t.Error("a panic in the Release of an unused call is lost")
	}
	b.panics = false
	isNil(t, "the next call", call())
}

func TestOtherLayersReportToTheObserver(t *testing.T) {
	observer := new(recorder)
	config := lenient(snapshots())
	config.Observer = observer
	event := router.ToolCallEnded{Tool: "execute_code", Key: mainKey, Kind: "codeact", Duration: time.Second, Failure: "timeout"}
	newRouter(t, config).Report(event)
	newRouter(t, lenient(snapshots())).Report(event) // to nobody
	if got := observer.take(); !slices.Equal(got, []router.Event{event}) {
		t.Errorf("the observer heard %v", got)
	}
}

// askedFor is a sandbox that tells when somebody asks for its generation.
type askedFor struct {
	sandbox.Sandbox
	asked func()
}

func (s askedFor) ID() string {
	id := s.Sandbox.ID()
	s.asked()
	return id
}

// The program of a call can reset its sandbox at any moment while the call acquires
// again: the sandbox lives on, whichever generation is asked for when.
func TestAResetWhileItsCallAcquiresCostsNoLiveSandbox(t *testing.T) {
	for moment := range 40 {
		b := snapshots()
		var inner sandbox.Sandbox
		left := -1 // how often the generation is asked for until the reset
		b.spoil = func(s sandbox.Sandbox) sandbox.Sandbox {
			inner = s
			return askedFor{s, func() {
				if left--; left == -1 {
					left = -2
					if err := inner.Reset(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}}
		}
		left = -2
		call, s := enter(t, newRouter(t, lenient(b)), mainKey, pythonSpec)
		isNil(t, "a reset by the program", s.Reset(t.Context()))
		left = moment
		again, err := call.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left = -2
		run(t, again, `print "x"`, "x")
		if t.Failed() {
			t.Fatalf("reset when the generation is asked for the %d. time: %s", moment+1, b.ops())
		}
		isNil(t, "Finish", call.Finish(t.Context()))
	}
}

func TestASandboxThatIsBusyAfterAResetByItsProgramIsNotDisposedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := snapshots()
		config := lenient(b)
		config.Reclaim.Timeout = 200 * time.Millisecond
		call, s := enter(t, newRouter(t, config), mainKey, pythonSpec)
		isNil(t, "a reset by the program", s.Reset(t.Context()))
		gate := sandboxtest.NewGate()
		defer gate.Release()
		b.Script(sandboxtest.OpRunCode, held(gate))
		busy := make(chan error, 1)
		go func() {
			_, err := s.RunCode(context.Background(), `print "x"`, time.Minute)
			busy <- err
		}()
		<-gate.Entered()
		_, err := call.Acquire(t.Context())
		is(t, err, sandbox.ErrQueuedTimeout)
		gate.Release()
		isNil(t, "the program that kept it busy", <-busy)
		again, err := call.Acquire(t.Context())
		isNil(t, "Acquire when it is free", err)
		run(t, again, `print "x"`, "x")
		isNil(t, "Finish", call.Finish(t.Context()))
	})
}
