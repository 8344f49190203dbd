package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/hosttool"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The limits of a backend in memory that names none.
const (
	// DefaultMaxCode bounds a program, in bytes.
	DefaultMaxCode = 64 << 10
	// DefaultMaxOutput bounds its output, in bytes.
	DefaultMaxOutput = 64 << 10
)

// Config says what a [Backend] in memory is like. The zero value is useful.
type Config struct {
	// Name of the backend; "in-memory" when empty.
	Name string
	// Isolation that it claims; none when unset, which is the truth.
	Isolation sandbox.Isolation
	// Declarations that it makes; when nil: run_code, host_tools and snapshot, a
	// POSIX system, closed and allow-listed egress, both isolation scopes.
	Declarations *sandbox.Declarations
	// Interpreter runs the programs; Interpret when nil.
	Interpreter Interpreter
	// MaxCode and MaxOutput are the limits of a run in bytes; zero means
	// DefaultMaxCode and DefaultMaxOutput.
	MaxCode, MaxOutput int
	// RetireOnOverrun has every started run that does not end by itself cost
	// the sandbox, as with a worker that can only be killed. Without it a
	// program always obeys.
	RetireOnOverrun bool
	// Registry to share with other backends; one of its own when nil.
	Registry *Registry
}

// Backend keeps its sandboxes in memory. It runs nothing but the commands of
// its interpreter and isolates nothing: it is for tests of what uses backends.
type Backend struct {
	config   Config
	declares sandbox.Declarations
	registry *Registry
	script   script
	calls    *hosttool.Calls

	mu     sync.Mutex
	closed bool // guarded by mu
}

var _ sandbox.Backend = (*Backend)(nil)

// New makes a backend in memory.
func New(config Config) *Backend {
	b := &Backend{config: config, registry: config.Registry, calls: hosttool.NewCalls()}
	if b.config.Name == "" {
		b.config.Name = "in-memory"
	}
	if b.config.Isolation == sandbox.IsolationUnset {
		b.config.Isolation = sandbox.IsolationNone
	}
	if b.config.Interpreter == nil {
		b.config.Interpreter = Interpret
	}
	if b.config.MaxCode == 0 {
		b.config.MaxCode = DefaultMaxCode
	}
	if b.config.MaxOutput == 0 {
		b.config.MaxOutput = DefaultMaxOutput
	}
	if b.registry == nil {
		b.registry = new(Registry)
	}
	b.declares = sandbox.Declarations{
		Capabilities:    sandbox.SetOf(sandbox.CapRunCode, sandbox.CapHostTools, sandbox.CapSnapshot),
		EgressModes:     sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
		OSFamilies:      sandbox.SetOf(sandbox.OSPosix),
		IsolationScopes: sandbox.SetOf(sandbox.ScopeConversation, sandbox.ScopeCall),
	}
	if config.Declarations != nil {
		b.declares = *config.Declarations
	}
	return b
}

// Script has the next calls of the operation meet the steps, each call one.
func (b *Backend) Script(op Op, steps ...Step) { b.script.add(op, steps) }

// Always has every call of the operation meet the step, after those of Script;
// the zero Step ends it.
func (b *Backend) Always(op Op, step Step) { b.script.set(op, step) }

// Calls are the calls received, in the order in which they arrived.
func (b *Backend) Calls() []Call { return b.script.list() }

// Count says how many calls of the operation were received.
func (b *Backend) Count(op Op) int {
	n := 0
	for _, call := range b.script.list() {
		if call.Op == op {
			n++
		}
	}
	return n
}

// Registered counts the sandboxes that are not confirmed gone.
func (b *Backend) Registered() int {
	return len(b.registry.Find(func(_ places.Place, box *box) bool { return box != nil }))
}

// Name is the configured name.
func (b *Backend) Name() string { return b.config.Name }

// Isolation is the configured isolation.
func (b *Backend) Isolation() sandbox.Isolation { return b.config.Isolation }

// Declarations are the configured declarations.
func (b *Backend) Declarations() sandbox.Declarations { return b.declares }

func (b *Backend) decider() string { return "backend " + b.config.Name }

// Acquire gets or creates the sandbox.
func (b *Backend) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	done := b.script.record(Call{Op: OpAcquire, Key: key, Kind: spec.Kind})
	box, err := b.acquire(ctx, key, spec)
	done(err)
	if err != nil {
		return nil, err
	}
	return box, nil
}

func (b *Backend) acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (*box, error) {
	if err := errors.Join(key.Validate(), spec.Validate()); err != nil {
		return nil, err
	}
	if err := b.declares.Unserved(b.decider(), spec); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(OpAcquire, ctx.Err(), false)
	}
	slot, err := b.registry.Enter(ctx, places.Place{Key: key, Kind: spec.Kind})
	if err != nil {
		return nil, ended(OpAcquire, err, false)
	}
	defer b.registry.Leave(slot)
	if b.isClosed() {
		return nil, &sandbox.OpError{Op: string(OpAcquire), Class: sandbox.ErrClosed}
	}
	if live := slot.Thing(); live != nil {
		if live.alive() {
			err := spec.Changed(live.spec, b.decider())
			if err == nil {
				live.offer(spec)
			}
			return live, err
		}
		// A lost sandbox must be gone before another takes its place.
		if err := b.script.meet(ctx, OpDispose); err != nil {
			return nil, &sandbox.OpError{Op: string(OpAcquire), Class: sandbox.ErrUnavailable,
				Detail: "the lost sandbox is not confirmed gone", Cause: err}
		}
		b.registry.Put(slot, nil)
	}
	if err := b.script.meet(ctx, OpAcquire); err != nil {
		return nil, classify(OpAcquire, err)
	}
	box := newBox(b, key, spec)
	b.registry.Put(slot, box)
	if b.isClosed() {
		// Close may have looked before the sandbox was there.
		box.lose(sandbox.ErrClosed)
		b.registry.Put(slot, nil)
		return nil, &sandbox.OpError{Op: string(OpAcquire), Class: sandbox.ErrClosed}
	}
	return box, nil
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Dispose disposes of the sandboxes that the options select.
func (b *Backend) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	done := b.script.record(Call{Op: OpDispose, Key: key, Kind: options.Kind, InstanceID: options.InstanceID})
	_, failure := b.disposeAll(ctx, func(p places.Place, _ *box) bool {
		return p.Key == key && (options.Kind == "" || p.Kind == options.Kind)
	}, options.InstanceID)
	if failure == nil {
		done(nil)
		return nil
	}
	done(failure)
	return failure
}

// DisposeScope disposes of every sandbox of the conversation.
func (b *Backend) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	done := b.script.record(Call{Op: OpDisposeScope, Key: sandbox.Key{Scope: scope, ThreadID: threadID}})
	if err := b.script.meet(ctx, OpDisposeScope); err != nil {
		done(err)
		return sandbox.ScopePurge{Undisposed: sandbox.AsDisposalFailure(err)}
	}
	disposed, failure := b.disposeAll(ctx, func(p places.Place, _ *box) bool {
		return p.Key.Scope == scope && p.Key.ThreadID == threadID
	}, "")
	done(sandbox.ScopePurge{Undisposed: failure}.Err())
	return sandbox.ScopePurge{Disposed: disposed, Undisposed: failure}
}

// disposeAll disposes of every sandbox that fits, whether or not one of them
// fails.
func (b *Backend) disposeAll(ctx context.Context, fits func(places.Place, *box) bool, instanceID string) (int, *sandbox.DisposalFailure) {
	var failures []*sandbox.DisposalFailure
	disposed := 0
	for _, p := range b.registry.Find(fits) {
		gone, err := b.dispose(ctx, p, fits, instanceID)
		if err != nil {
			failures = append(failures, sandbox.AsDisposalFailure(err))
		} else if gone {
			disposed++
		}
	}
	return disposed, sandbox.FoldFailures(failures...)
}

func (b *Backend) dispose(ctx context.Context, p places.Place, fits func(places.Place, *box) bool, instanceID string) (bool, error) {
	slot, err := b.registry.Enter(ctx, p)
	if err != nil {
		return false, fmt.Errorf("wait for a turn: %w", err)
	}
	defer b.registry.Leave(slot)
	box := slot.Thing()
	if box == nil || !fits(p, box) || !box.loseIf(instanceID, sandbox.ErrDisposed) {
		return false, nil
	}
	if err := b.script.meet(ctx, OpDispose); err != nil {
		return false, err
	}
	b.registry.Put(slot, nil)
	return true, nil
}

// Close disposes of the sandboxes that this backend made.
func (b *Backend) Close() error {
	done := b.script.record(Call{Op: OpClose})
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	ctx := context.Background()
	err := b.script.meet(ctx, OpClose)
	if err == nil {
		_, failure := b.disposeAll(ctx, func(_ places.Place, box *box) bool {
			return box != nil && box.backend == b
		}, "")
		if failure != nil {
			err = failure
		}
	}
	if err != nil {
		err = fmt.Errorf("close %s: %w", b.config.Name, err)
	}
	done(err)
	return err
}
