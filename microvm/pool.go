package microvm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// maxPools bounds the images, and with them the supervisors, of one backend.
const maxPools = 16

// pools are the supervisors of a backend, one for each image in use.
type pools struct {
	config Config
	system system
	realm  *realm

	mu     sync.Mutex
	byName map[imageName]*pool
	closed bool
}

// imageName is how a spec names an image.
type imageName struct{ name, id string }

// pool is an image with its supervisor.
type pool struct {
	// turn holds one token while nobody starts or ends the supervisor. It is no
	// mutex because starting the first one may mean capturing a Python, and those
	// who wait have deadlines.
	turn chan struct{}
	// supervisor is nil until it is needed, and again when it is gone. It
	// belongs to whoever has the turn.
	supervisor supervisor
}

func (one *pool) enter(ctx context.Context) error {
	select {
	case <-one.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (one *pool) leave() { one.turn <- struct{}{} }

var errPoolsClosed = &sandbox.OpError{Op: opAcquire, Class: sandbox.ErrClosed}

// attempts is how often a worker is asked for when what failed may have been an
// accident: a supervisor that is gone, or a worker that was killed at its start.
// What fails twice would fail again.
const attempts = 2

// acquire gets a worker for an image.
func (p *pools) acquire(ctx context.Context, name imageName) (process, error) {
	one, err := p.pool(name)
	if err != nil {
		return nil, err
	}
	var last error
	for range attempts {
		s, err := p.running(ctx, one, name)
		if err != nil {
			p.forget(name, one)
			return nil, err
		}
		w, err := s.Acquire(ctx)
		var gone *goneError
		if err == nil || !errors.As(err, &gone) && !errors.Is(err, sandbox.ErrInternal) && !errors.Is(err, sandbox.ErrWorkerLost) {
			return w, err
		}
		p.config.Logger.Warn("no worker at the first attempt", "backend", p.config.Name, "error", err)
		last = err
		if gone != nil {
			last = unavailable("the supervisor has ended twice", gone)
		}
	}
	return nil, last
}

func (p *pools) pool(name imageName) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolsClosed
	}
	one := p.byName[name]
	if one == nil {
		if len(p.byName) >= maxPools {
			return nil, &sandbox.RefusalError{
				Reason: sandbox.ErrNotSupported, Subject: "spec.image", Asked: fmt.Sprintf("image number %d of this backend", maxPools+1),
				Allowed: fmt.Sprintf("%d images", maxPools), Decider: decider,
			}
		}
		one = &pool{turn: make(chan struct{}, 1)}
		one.leave()
		p.byName[name] = one
	}
	return one, nil
}

// forget drops a pool that has no supervisor, so that images that do not exist
// leave nothing.
func (p *pools) forget(name imageName, one *pool) {
	select {
	case <-one.turn:
	default:
		return // somebody starts one
	}
	defer one.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.supervisor == nil && p.byName[name] == one {
		delete(p.byName, name)
	}
}

// running gives the supervisor of a pool, started if need be. Finding the image
// may mean capturing it; others of that image wait for it then.
func (p *pools) running(ctx context.Context, one *pool, name imageName) (supervisor, error) {
	if err := one.enter(ctx); err != nil {
		return nil, err
	}
	defer one.leave()
	if s := one.supervisor; s != nil {
		select {
		case <-s.Done():
			one.supervisor = nil
		default:
			return s, nil
		}
	}
	config := p.config
	config.Progress = within(ctx, config.Progress)
	file, err := p.system.image(ctx, config, name.name, name.id)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolsClosed
	}
	lock, err := p.realm.lock()
	if err != nil {
		return nil, unavailable("", err)
	}
	s, err := p.system.launch(p.config, file, name.id, lock)
	if err != nil {
		return nil, err
	}
	one.supervisor = s
	return s, nil
}

// within has the host's function called on a goroutine of its own, and waited for
// as long as the context lasts: one that does not return keeps nobody.
func within(ctx context.Context, progress func(string)) func(string) {
	if progress == nil {
		return nil
	}
	return func(text string) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			progress(text)
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// close ends all supervisors. It can be called again.
func (p *pools) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	var all []*pool
	for _, one := range p.byName {
		all = append(all, one)
	}
	p.mu.Unlock()
	failed := make([]error, len(all))
	var group sync.WaitGroup
	for i, one := range all {
		group.Go(func() { failed[i] = one.close(ctx) })
	}
	group.Wait()
	return errors.Join(failed...)
}

func (one *pool) close(ctx context.Context) error {
	if err := one.enter(ctx); err != nil {
		return err
	}
	defer one.leave()
	if one.supervisor == nil {
		return nil
	}
	select {
	case <-one.supervisor.Done(): // whatever its end was, nothing is left of it
	default:
		if err := one.supervisor.Close(ctx); err != nil {
			return err
		}
	}
	one.supervisor = nil
	return nil
}
