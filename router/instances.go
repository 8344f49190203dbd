package router

import (
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// spot is where one backend keeps at most one sandbox of a key.
type spot struct {
	provider *provider
	kind     string
}

// instance is the generation that the router handed out or cleaned last, the
// contract under which it was used, and its sandbox.
type instance struct {
	id, contract string
	sandbox      sandbox.Sandbox
}

// same says whether two values are one sandbox. They need not be equal, since
// decorators make new ones: they have the same generation, which a program may
// replace at any moment.
func same(a, b sandbox.Sandbox) bool {
	for {
		before := a.ID()
		if b.ID() == before {
			return true
		}
		if a.ID() == before {
			return false
		}
	}
}

// instances are the sandboxes that the router knows. A sandbox that is not
// among them may hold anybody's data. The zero value is empty and ready. There
// is one entry for each sandbox that the router has not disposed of.
type instances struct {
	mu  sync.Mutex
	all map[sandbox.Key]map[spot]instance
}

func (k *instances) at(key sandbox.Key, s spot) (instance, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.all[key][s]
	return found, ok
}

func (k *instances) remember(key sandbox.Key, s spot, known instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = make(map[sandbox.Key]map[spot]instance)
	}
	if k.all[key] == nil {
		k.all[key] = make(map[spot]instance)
	}
	k.all[key][s] = known
}

// forget drops what a disposal reached.
func (k *instances) forget(p *provider, key sandbox.Key, options sandbox.DisposeOptions) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(key, func(s spot, known instance) bool {
		return s.provider == p && covers(options, sandbox.DisposeOptions{Kind: s.kind, InstanceID: known.id})
	})
}

// forgetScope drops what a purge of a conversation reached.
func (k *instances) forgetScope(p *provider, scope, threadID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.all {
		if key.Scope == scope && key.ThreadID == threadID {
			k.drop(key, func(s spot, _ instance) bool { return s.provider == p })
		}
	}
}

// drop is called with mu held.
func (k *instances) drop(key sandbox.Key, gone func(spot, instance) bool) {
	of := k.all[key]
	for s, known := range of {
		if gone(s, known) {
			delete(of, s)
		}
	}
	if len(of) == 0 {
		delete(k.all, key)
	}
}

// holders are the providers that have handed out this generation.
func (k *instances) holders(key sandbox.Key, kind, id string) []*provider {
	k.mu.Lock()
	defer k.mu.Unlock()
	var holders []*provider
	for s, known := range k.all[key] {
		if s.kind == kind && known.id == id {
			holders = append(holders, s.provider)
		}
	}
	return holders
}
