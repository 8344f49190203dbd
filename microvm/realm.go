package microvm

import (
	"errors"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
)

// realm is what the backends of this process share that name the same ownership
// namespace: the owner's lock, held while one of them is open, and the
// sandboxes.
type realm struct {
	sandboxes places.Registry[Sandbox]

	mu    sync.Mutex
	users int
	owned ownership // nil while there are no users
}

// realmName tells realms apart.
type realmName struct{ dir, namespace string }

var realms = struct {
	sync.Mutex
	byName map[realmName]*realm
}{byName: map[realmName]*realm{}}

// realmOf finds the realm of a configuration. A private one is the backend's
// own.
func realmOf(c Config) *realm {
	if c.Private {
		return new(realm)
	}
	realms.Lock()
	defer realms.Unlock()
	name := realmName{c.LockDir, c.Namespace}
	r := realms.byName[name]
	if r == nil {
		r = new(realm)
		realms.byName[name] = r
	}
	return r
}

var errNotOwner = errors.New("this process is a copy of the one that owns the namespace, made by fork; only that one may use it")

// join adds a user, the first of which takes the lock.
func (r *realm) join(s system, c Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owned == nil {
		o, err := s.own(c)
		if err != nil {
			return err
		}
		r.owned = o
	}
	if !r.owned.Owns() {
		return errNotOwner
	}
	r.users++
	return nil
}

// leave takes a user away. The last one gives the lock back; supervisors that
// have work left keep theirs.
func (r *realm) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users > 0 {
		return nil
	}
	o := r.owned
	r.owned = nil
	return o.Release()
}

// lock is the held lock. Precondition: the caller is a user.
func (r *realm) lock() (ownership, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.owned.Owns() {
		return nil, errNotOwner
	}
	return r.owned, nil
}
