package telemetry

import (
	"context"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// place is where at most one sandbox of a backend lives.
type place struct {
	key  sandbox.Key
	kind string
}

// shelf has the sandboxes of a backend that are not known to be gone, each in its
// decorator. It is kept whether or not anybody measures: the host may set a
// provider later. The zero value is empty and ready.
type shelf struct {
	mu  sync.Mutex
	all map[place]onShelf
}

// onShelf is a sandbox as the backend's callers have it, and its decorator.
type onShelf struct {
	box   *box
	value sandbox.Sandbox
}

// put gives the decorator of what the backend has at a place: the one that is
// there, when it is the same sandbox.
func (h *shelf) put(b *Backend, p place, l *labels, spec sandbox.Spec, s sandbox.Sandbox) sandbox.Sandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on, there := h.all[p]; there && same(on.box.inner, s) {
		return on.value
	}
	made := &box{backend: b, inner: s, labels: l, hosts: hosts(spec)}
	on := onShelf{made, decorate(made)}
	if h.all == nil {
		h.all = make(map[place]onShelf)
	}
	h.all[p] = on
	return on.value
}

// same compares sandboxes; those of a type that cannot be compared never are.
func same(a, b sandbox.Sandbox) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Kind() == reflect.Pointer && a == b
}

// at is the decorator at a place; nil when there is none.
func (h *shelf) at(p place) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[p].box
}

// fitting are the sandboxes that fit. They are asked without the lock: they are
// not this package's.
func (h *shelf) fitting(fits func(place, *box) bool) map[place]*box {
	h.mu.Lock()
	fitting := make(map[place]*box, len(h.all))
	for p, on := range h.all {
		fitting[p] = on.box
	}
	h.mu.Unlock()
	for p, s := range fitting {
		if !fits(p, s) {
			delete(fitting, p)
		}
	}
	return fitting
}

// remove forgets what is gone. What has taken a place meanwhile stays.
func (h *shelf) remove(gone map[place]*box) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, s := range gone {
		if h.all[p].box == s {
			delete(h.all, p)
		}
	}
}

// countLive tells how many sandboxes are alive and what they do, by what their
// processes say. One that says nothing counts until an operation found it lost.
func (b *Backend) countLive(_ context.Context, o metric.Observer) error {
	type series struct{ kind, state string }
	counts := make(map[series]int64)
	for p, s := range b.shelf.fitting(func(place, *box) bool { return true }) {
		state := liveness.Of(s.inner).State
		if state == liveness.Exited || state == liveness.Unknown && s.lost.Load() {
			continue
		}
		counts[series{p.kind, state.String()}]++
	}
	for s, n := range counts {
		l := b.labels(s.kind)
		o.ObserveInt64(b.i.count, n, metric.WithAttributes(append(l.attributes(), keyState.String(s.state))...))
	}
	return nil
}
