package sandboxtest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Registry holds the sandboxes in memory by key and kind. Backends that share
// one see each other's sandboxes, as those of one host process do. The zero
// value is empty and ready.
type Registry struct {
	mu    sync.Mutex
	slots map[place]*slot
}

// place is where at most one sandbox lives.
type place struct {
	key  sandbox.Key
	kind string
}

func (p place) compare(other place) int {
	return cmp.Or(
		cmp.Compare(p.key.Scope, other.key.Scope),
		cmp.Compare(p.key.ThreadID, other.key.ThreadID),
		cmp.Compare(p.key.AgentID, other.key.AgentID),
		cmp.Compare(p.key.CallID, other.key.CallID),
		cmp.Compare(p.kind, other.kind),
	)
}

// slot is a place in use. Whoever acquires or disposes there holds the turn.
type slot struct {
	place place
	// turn holds one token while nobody has the turn.
	turn chan struct{}
	// users counts who waits for or has the turn; guarded by Registry.mu.
	users int
	// box is what lives here, or nil; written under the turn and Registry.mu,
	// so that either is enough to read it.
	box *box
}

// enter waits for the turn at a place.
func (r *Registry) enter(ctx context.Context, p place) (*slot, error) {
	r.mu.Lock()
	if r.slots == nil {
		r.slots = make(map[place]*slot)
	}
	s := r.slots[p]
	if s == nil {
		s = &slot{place: p, turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		r.slots[p] = s
	}
	s.users++
	r.mu.Unlock()

	select {
	case <-s.turn:
		return s, nil
	case <-ctx.Done():
		r.forget(s)
		return nil, ctx.Err()
	}
}

// leave gives the turn back.
func (r *Registry) leave(s *slot) {
	s.turn <- struct{}{}
	r.forget(s)
}

// forget drops an empty place that nobody uses, so that keys leave nothing.
func (r *Registry) forget(s *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.users--
	if s.users == 0 && s.box == nil {
		delete(r.slots, s.place)
	}
}

// put places a sandbox, or nil for none. Precondition: the caller has the turn.
func (r *Registry) put(s *slot, b *box) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.box = b
}

// find lists the places that are in use and fit, in a fixed order. A place
// counts before its sandbox is there, so that a disposal waits for an acquire
// that came first.
func (r *Registry) find(fits func(place, *box) bool) []place {
	r.mu.Lock()
	defer r.mu.Unlock()
	var places []place
	for p, s := range r.slots {
		if fits(p, s.box) {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, place.compare)
	return places
}
