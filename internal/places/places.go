// Package places keeps at most one thing at each place, a place being a key and
// a kind, and gives those who come to a place their turns.
package places

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Place is where at most one sandbox lives.
type Place struct {
	Key  sandbox.Key
	Kind string
}

// Compare orders places by scope, thread, agent, call and kind.
func (p Place) Compare(other Place) int {
	return cmp.Or(
		cmp.Compare(p.Key.Scope, other.Key.Scope),
		cmp.Compare(p.Key.ThreadID, other.Key.ThreadID),
		cmp.Compare(p.Key.AgentID, other.Key.AgentID),
		cmp.Compare(p.Key.CallID, other.Key.CallID),
		cmp.Compare(p.Kind, other.Kind),
	)
}

// Registry holds things by place. The zero value is empty and ready; its methods
// can be called from any goroutine.
type Registry[T any] struct {
	mu    sync.Mutex
	slots map[Place]*Slot[T]
}

// Slot is a place in use. Whoever acquires or disposes there holds the turn.
type Slot[T any] struct {
	place Place
	// turn holds one token while nobody has the turn.
	turn chan struct{}
	// users counts who waits for or has the turn; guarded by Registry.mu.
	users int
	// thing is what is here, or nil; written under the turn and Registry.mu, so
	// that either is enough to read it.
	thing *T
}

// Thing is what is at the place, nil if nothing is. Precondition: the caller has
// the turn.
func (s *Slot[T]) Thing() *T { return s.thing }

// Enter waits for the turn at a place, in the order of arrival. The error is the
// context's.
func (r *Registry[T]) Enter(ctx context.Context, p Place) (*Slot[T], error) {
	r.mu.Lock()
	if r.slots == nil {
		r.slots = make(map[Place]*Slot[T])
	}
	s := r.slots[p]
	if s == nil {
		s = &Slot[T]{place: p, turn: make(chan struct{}, 1)}
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

// Leave gives the turn back.
func (r *Registry[T]) Leave(s *Slot[T]) {
	s.turn <- struct{}{}
	r.forget(s)
}

// forget drops an empty place that nobody uses, so that keys leave nothing.
func (r *Registry[T]) forget(s *Slot[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.users--
	if s.users == 0 && s.thing == nil {
		delete(r.slots, s.place)
	}
}

// Put places a thing, or nil for none. Precondition: the caller has the turn.
func (r *Registry[T]) Put(s *Slot[T], thing *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.thing = thing
}

// Find lists the places that are in use and fit, in a fixed order. A place
// counts before anything is there (the thing is nil then), so that a disposal
// waits for an acquire that came first.
func (r *Registry[T]) Find(fits func(Place, *T) bool) []Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Place
	for p, s := range r.slots {
		if fits(p, s.thing) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, Place.Compare)
	return found
}
