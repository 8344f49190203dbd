package microvm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/hosttool"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// CacheEnv names the environment variable that puts the cache folder somewhere
// else.
const CacheEnv = "MAF_SANDBOX_CACHE"

// The operations as errors name them.
const (
	opAcquire = "acquire"
	opRunCode = "run_code"
	opReset   = "reset"
)

// Backend makes sandboxes that are micro-VMs.
type Backend struct {
	config Config
	system system
	realm  *realm
	pools  *pools

	// budgets bound what programs have asked of the host, and the answers.
	budgets

	// reached is the isolation of an engine that has to be tried.
	reached func() sandbox.Isolation

	// calls counts the calls of tools that have not ended.
	calls *hosttool.Calls

	// reporter hears what programs reach for; nil for nobody.
	reporter atomic.Pointer[func(sandbox.EgressObservation)]

	// open ends with Close, and with it every acquire that is under way.
	open context.Context
	shut context.CancelFunc

	mu     sync.Mutex
	joined bool // a user of the realm
	closed bool
}

var _ sandbox.Backend = (*Backend)(nil)

// New checks the configuration and makes a backend of it. Nothing is started.
// The error reports every problem, each a *sandbox.RefusalError.
func New(c Config) (*Backend, error) { return newBackend(c, thisSystem{}) }

func newBackend(c Config, s system) (*Backend, error) {
	c, err := c.withDefaults()
	if err == nil && c.CacheDir == "" {
		if c.CacheDir, err = cacheDir(); err != nil {
			err = &sandbox.RefusalError{
				Reason: sandbox.ErrInvalid, Subject: "config.cache_dir", Asked: "the user's cache folder, which is not known",
				Allowed: "an absolute path, here or in " + CacheEnv, Decider: decider, Cause: err,
			}
		}
	}
	if err != nil {
		return nil, err
	}
	b := &Backend{config: c, system: s, realm: realmOf(c), budgets: newBudgets(), calls: hosttool.NewCalls()}
	b.open, b.shut = context.WithCancel(context.Background())
	b.reached = sync.OnceValue(func() sandbox.Isolation { return s.isolation(c.Engine) })
	b.pools = &pools{config: c, system: s, realm: b.realm, byName: map[imageName]*pool{}}
	return b, nil
}

// Name is the configured name.
func (b *Backend) Name() string { return b.config.Name }

// Isolation is a micro-VM with EngineKVM. With the other engines it is what they
// reach on this machine, which is found out at the first call, in some
// milliseconds; unset if nothing can be run.
func (b *Backend) Isolation() sandbox.Isolation {
	if b.config.Engine == EngineKVM {
		return sandbox.IsolationMicroVM
	}
	return b.reached()
}

// Declarations are running code, calling tools of the host and resetting in a
// POSIX system, for conversations and calls, with no network or with HTTP to
// listed hosts.
func (b *Backend) Declarations() sandbox.Declarations {
	return sandbox.Declarations{
		Capabilities:    sandbox.SetOf(sandbox.CapRunCode, sandbox.CapHostTools, sandbox.CapSnapshot, sandbox.CapEgressMethods),
		EgressModes:     sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
		EgressMethods:   egress.RuleMethods(),
		ObservesEgress:  true,
		OSFamilies:      sandbox.SetOf(sandbox.OSPosix),
		IsolationScopes: sandbox.SetOf(sandbox.ScopeConversation, sandbox.ScopeCall),
	}
}

func (b *Backend) decider() string { return "backend " + b.config.Name }

// Prepare does what the first Acquire would have to do: it takes the ownership,
// captures and boots the image, and returns when a worker has been ready. Spare
// workers follow in the background.
func (b *Backend) Prepare(ctx context.Context) error {
	if err := b.join(); err != nil {
		return err
	}
	ctx, cancel := b.starting(ctx)
	defer cancel()
	w, err := b.pools.acquire(ctx, b.imageOf(sandbox.Spec{}))
	if err != nil {
		return b.startFailure(ctx, err)
	}
	if b.config.Pool > 0 {
		w.Abandon()
		return nil
	}
	return w.Release(ctx)
}

func (b *Backend) imageOf(spec sandbox.Spec) imageName {
	if spec.Image == "" && spec.ImageID == "" {
		return imageName{name: b.config.Image}
	}
	return imageName{spec.Image, spec.ImageID}
}

// join makes the backend a user of its realm.
func (b *Backend) join() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrClosed}
	}
	if b.joined {
		return nil
	}
	if err := b.realm.join(b.system, b.config); err != nil {
		return unavailable("", err)
	}
	b.joined = true
	return nil
}

// starting bounds an acquire: by the StartupTimeout, and by Close.
func (b *Backend) starting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, b.config.StartupTimeout)
	stop := context.AfterFunc(b.open, cancel)
	return ctx, func() { stop(); cancel() }
}

// unless is the error of an acquire, unless the backend was closed meanwhile.
func (b *Backend) unless(err error) error {
	if b.isClosed() {
		return &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrClosed}
	}
	return err
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Acquire implements sandbox.Backend. Acquires of different keys go on at the
// same time. The StartupTimeout and the context bound it: time that ran out
// while another acquire or disposal of the same key and kind was under way is
// sandbox.ErrQueuedTimeout. When another process owns the namespace, or the
// host lacks what sandboxes need, it is sandbox.ErrUnavailable: its text says
// what is missing, 'maf-sandbox doctor' what mends it; the cause is an
// *EngineError or a *SetupError when another Config could do without. When
// a worker was killed before it was ready, and the one in its place too, it is
// sandbox.ErrWorkerLost: the acquire can be tried again.
func (b *Backend) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := b.acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Get is Acquire for those who need more than the protocol offers.
func (b *Backend) Get(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (*Sandbox, error) {
	return b.acquire(ctx, key, spec)
}

func (b *Backend) acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (*Sandbox, error) {
	if err := errors.Join(key.Validate(), spec.Validate()); err != nil {
		return nil, err
	}
	if err := b.unserved(spec); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, over(ctx, opAcquire, false)
	}
	if err := b.join(); err != nil {
		return nil, err
	}
	ctx, cancel := b.starting(ctx)
	defer cancel()
	place := places.Place{Key: key, Kind: spec.Kind}
	slot, err := b.realm.sandboxes.Enter(ctx, place)
	if err != nil {
		return nil, b.unless(over(ctx, opAcquire, false))
	}
	defer b.realm.sandboxes.Leave(slot)
	if err := b.unless(nil); err != nil {
		return nil, err
	}
	if live := slot.Thing(); live != nil {
		if live.alive() {
			if err := errors.Join(spec.Changed(live.spec, b.decider()), b.changed(live)); err != nil {
				return nil, err
			}
			live.offer(spec)
			return live, nil
		}
		// A lost sandbox must be gone before another takes its place.
		if err := live.release(ctx); err != nil {
			return nil, b.unless(unavailable("the lost sandbox is not confirmed gone", err))
		}
		b.realm.sandboxes.Put(slot, nil)
	}
	w, err := b.pools.acquire(ctx, b.imageOf(spec))
	if err != nil {
		return nil, b.startFailure(ctx, err)
	}
	if err := b.lower(w, spec); err != nil {
		w.Abandon()
		return nil, err
	}
	s, err := newSandbox(b, place, spec, w)
	if err != nil {
		w.Abandon()
		return nil, err
	}
	b.realm.sandboxes.Put(slot, s)
	if b.isClosed() {
		// Close may have looked before the sandbox was there.
		s.lose(sandbox.ErrClosed, nil)
		if err := s.release(context.WithoutCancel(ctx)); err == nil {
			b.realm.sandboxes.Put(slot, nil)
		}
		return nil, b.unless(nil)
	}
	return s, nil
}

// startFailure is what acquire says of a worker that could not be had.
func (b *Backend) startFailure(ctx context.Context, err error) error {
	var failure *sandbox.OpError
	var refusal *sandbox.RefusalError
	switch {
	case b.isClosed():
		return b.unless(err)
	case errors.As(err, &failure), errors.As(err, &refusal):
		return err
	case ctx.Err() != nil:
		return over(ctx, opAcquire, true)
	}
	return &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrInternal, Cause: err}
}

// over is what an operation says whose context is over, or whose time is up a moment
// before its context says so; started tells whether it had its turn.
func over(ctx context.Context, op string, started bool) error {
	e := &sandbox.OpError{Op: op, Class: sandbox.ErrCanceled, Usable: !started}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case started:
		e.Class = sandbox.ErrTimeout
	default:
		e.Class, e.Detail = sandbox.ErrQueuedTimeout, "nothing was submitted; it can be tried again unchanged"
	}
	return e
}

// Close implements sandbox.Backend: it disposes of the sandboxes that this value
// made, ends its supervisors and gives up the ownership, unless another backend
// of this process has it too. Acquires that are under way end at once. What is
// not confirmed gone within the CleanupTimeout is an error; Close can be called
// again.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.shut()
	_, failure := b.disposeAll(context.Background(), selection{
		fits:  func(_ places.Place, s *Sandbox) bool { return s != nil && s.backend == b },
		class: sandbox.ErrClosed, patience: b.config.CleanupTimeout,
	})
	ctx, cancel := context.WithTimeout(context.Background(), b.config.CleanupTimeout)
	defer cancel()
	err := b.pools.close(ctx)
	if failure != nil {
		err = errors.Join(failure, err)
	}
	if err == nil {
		err = b.leave()
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", b.config.Name, err)
	}
	return nil
}

func (b *Backend) leave() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.joined {
		return nil
	}
	b.joined = false
	return b.realm.leave()
}
