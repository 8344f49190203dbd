package telemetry

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Backend is a [sandbox.Backend] that tells what another one does. Like package
// router's and control's own decorators it can all that routers, monitors and
// commands ask of a backend; where the one behind it cannot, it does nothing, as
// they would.
type Backend struct {
	backend   sandbox.Backend
	i         *Instrumentation
	name      string
	isolation sandbox.Isolation
	whole     *labels // of what is no single kind
	shelf     shelf
	report    atomic.Pointer[func(sandbox.EgressObservation)]

	registration metric.Registration // nil when it was refused
	unregister   sync.Once
}

var _ sandbox.Backend = (*Backend)(nil)

// Backend decorates a backend, which must not be used without its decorator any
// more. Its name, isolation and declarations are read once. Close closes the
// backend as well.
func (i *Instrumentation) Backend(b sandbox.Backend) *Backend {
	d := &Backend{backend: b, i: i, name: b.Name(), isolation: b.Isolation()}
	d.whole = d.labels("")
	if reporter, ok := b.(egressReporter); ok && b.Declarations().ObservesEgress {
		reporter.ObserveEgress(d.observe)
	}
	var err error
	if d.registration, err = i.meter.RegisterCallback(d.countLive, i.count); err != nil {
		otel.Handle(err)
		d.registration = nil
	}
	return d
}

// The optional interfaces of backends, said again here because those of a
// command have no name.
type (
	egressReporter interface {
		ObserveEgress(report func(sandbox.EgressObservation))
	}
	admissionWatcher interface {
		Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox)
		Refused(key sandbox.Key, kind string)
	}
	warmer interface{ Warm(ctx context.Context) }
)

func (b *Backend) labels(kind string) *labels { return b.i.kinds.of(b.name, kind, b.isolation) }

// Unwrap is the backend behind the decorator, for what only that one can do.
func (b *Backend) Unwrap() sandbox.Backend { return b.backend }

// Name is the backend's.
func (b *Backend) Name() string { return b.name }

// Isolation is the backend's.
func (b *Backend) Isolation() sandbox.Isolation { return b.isolation }

// Declarations are the backend's.
func (b *Backend) Declarations() sandbox.Declarations { return b.backend.Declarations() }

// Acquire is the backend's, in a span. The sandbox is decorated, and the same
// value as long as the backend's is; so are the functions of the spec's tools.
func (b *Backend) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	l := b.labels(spec.Kind)
	ctx, r := b.i.begin(ctx, opAcquire, l)
	inner := spec
	inner.HostTools = b.tools(spec.HostTools, l)
	s, err := b.backend.Acquire(ctx, key, inner)
	if r.recording() {
		r.set(b.i.identity(key)...)
		r.set(keyEgress.String(spec.Egress.String()))
		if err == nil && s != nil {
			r.set(keyInstance.String(s.ID()), keyFresh.Bool(fresh(s)))
		}
	}
	r.end(ctx, err)
	if err != nil || s == nil {
		return nil, err
	}
	return b.shelf.put(b, place{key, spec.Kind}, l, spec, s), nil
}

// Dispose is the backend's, in a span.
func (b *Backend) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	l := b.whole
	if options.Kind != "" {
		l = b.labels(options.Kind)
	}
	ctx, r := b.i.begin(ctx, opDispose, l)
	if r.recording() {
		r.set(b.i.identity(key)...)
		if options.InstanceID != "" {
			r.set(keyInstance.String(options.InstanceID))
		}
	}
	meant := b.shelf.fitting(func(p place, s *box) bool {
		return p.key == key && (options.Kind == "" || p.kind == options.Kind) &&
			(options.InstanceID == "" || s.inner.ID() == options.InstanceID)
	})
	err := b.backend.Dispose(ctx, key, options)
	if err == nil {
		b.shelf.remove(meant)
	}
	r.end(ctx, err)
	return err
}

// DisposeScope is the backend's, in a span.
func (b *Backend) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	ctx, r := b.i.begin(ctx, opDisposeScope, b.whole)
	meant := b.shelf.fitting(func(p place, _ *box) bool { return p.key.Scope == scope && p.key.ThreadID == threadID })
	purge := b.backend.DisposeScope(ctx, scope, threadID)
	if purge.Undisposed == nil {
		b.shelf.remove(meant)
	}
	if r.recording() {
		r.set(b.i.identity(sandbox.Key{Scope: scope, ThreadID: threadID})...)
		r.set(keyDisposed.Int(purge.Disposed))
	}
	r.end(ctx, purge.Err())
	return purge
}

// Close is the backend's, in a span without a parent. When all is gone, nothing
// of this backend is counted any more.
func (b *Backend) Close() error {
	ctx, r := b.i.begin(context.Background(), opClose, b.whole)
	err := b.backend.Close()
	r.end(ctx, err)
	if err == nil {
		b.shelf.remove(b.shelf.fitting(func(place, *box) bool { return true }))
		b.unregister.Do(func() {
			if b.registration == nil {
				return
			}
			if err := b.registration.Unregister(); err != nil {
				otel.Handle(err)
			}
		})
	}
	return err
}

// ObserveEgress implements router.EgressReporter: reports are passed on after
// they are recorded.
func (b *Backend) ObserveEgress(report func(sandbox.EgressObservation)) { b.report.Store(&report) }

// Admitted implements router.AdmissionWatcher, for a backend that is one. It gets
// the sandbox that it made itself.
func (b *Backend) Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox) {
	if watcher, ok := b.backend.(admissionWatcher); ok {
		if own, ok := s.(decorated); ok && own.decoratedBy(b) {
			s = own.Unwrap()
		}
		watcher.Admitted(key, spec, s)
	}
}

// Refused implements router.AdmissionWatcher, for a backend that is one.
func (b *Backend) Refused(key sandbox.Key, kind string) {
	if watcher, ok := b.backend.(admissionWatcher); ok {
		watcher.Refused(key, kind)
	}
}

// Warm gets a backend ready before it is needed, if it can do that.
func (b *Backend) Warm(ctx context.Context) {
	if warmer, ok := b.backend.(warmer); ok {
		warmer.Warm(ctx)
	}
}
