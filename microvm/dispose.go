package microvm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// atOnce bounds the disposals that one call has under way.
const atOnce = 32

// selection says what to dispose of.
type selection struct {
	fits func(places.Place, *Sandbox) bool
	// id is the generation that is meant; empty for whichever is there.
	id string
	// class is what the sandbox says from then on.
	class error
	// patience bounds the wait for the turn of a place, which another backend of
	// the realm may have; zero: as long as the context lasts.
	patience time.Duration
}

// Dispose implements sandbox.Backend. It waits for the turn of each place as
// long as the context lasts, and for the kernel's confirmation at most the
// CleanupTimeout.
func (b *Backend) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	if failure := b.mayDispose(); failure != nil {
		return failure
	}
	_, failure := b.disposeAll(ctx, selection{
		fits: func(p places.Place, _ *Sandbox) bool {
			return p.Key == key && (options.Kind == "" || p.Kind == options.Kind)
		},
		id: options.InstanceID, class: sandbox.ErrDisposed,
	})
	if failure == nil {
		return nil
	}
	return failure
}

// DisposeScope implements sandbox.Backend.
func (b *Backend) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	if failure := b.mayDispose(); failure != nil {
		return sandbox.ScopePurge{Undisposed: failure}
	}
	disposed, failure := b.disposeAll(ctx, selection{
		fits:  func(p places.Place, _ *Sandbox) bool { return p.Key.Scope == scope && p.Key.ThreadID == threadID },
		class: sandbox.ErrDisposed,
	})
	return sandbox.ScopePurge{Disposed: disposed, Undisposed: failure}
}

// mayDispose says whether this process is the one to ask: sandboxes of the
// namespace may live in another. A closed backend has none of its own, and
// reaches those of its process.
func (b *Backend) mayDispose() *sandbox.DisposalFailure {
	err := b.join()
	switch {
	case err == nil, errors.Is(err, sandbox.ErrClosed):
		return nil
	case errors.Is(err, owner.ErrBusy):
		return &sandbox.DisposalFailure{Code: sandbox.DisposalUnreachable, Detail: err.Error()}
	}
	return sandbox.AsDisposalFailure(err)
}

// disposeAll disposes of every sandbox that is selected, whether or not one of
// them fails.
func (b *Backend) disposeAll(ctx context.Context, what selection) (int, *sandbox.DisposalFailure) {
	found := b.realm.sandboxes.Find(what.fits)
	failures := make([]*sandbox.DisposalFailure, len(found))
	gone := make([]bool, len(found))
	dispose := func(i int) {
		var err error
		gone[i], err = b.dispose(ctx, found[i], what)
		failures[i] = sandbox.AsDisposalFailure(err)
	}
	if len(found) == 1 {
		dispose(0)
	} else {
		tokens := make(chan struct{}, atOnce)
		var group sync.WaitGroup
		for i := range found {
			tokens <- struct{}{}
			group.Go(func() { dispose(i); <-tokens })
		}
		group.Wait()
	}
	disposed := 0
	for _, yes := range gone {
		if yes {
			disposed++
		}
	}
	return disposed, sandbox.FoldFailures(failures...)
}

func (b *Backend) dispose(ctx context.Context, p places.Place, what selection) (bool, error) {
	turn := ctx
	if what.patience > 0 {
		var cancel context.CancelFunc
		turn, cancel = context.WithTimeout(ctx, what.patience)
		defer cancel()
	}
	slot, err := b.realm.sandboxes.Enter(turn, p)
	if err != nil {
		return false, fmt.Errorf("wait for a turn: %w", err)
	}
	defer b.realm.sandboxes.Leave(slot)
	s := slot.Thing()
	if s == nil || !what.fits(p, s) || !s.loseIf(what.id, what.class) {
		return false, nil
	}
	if err := s.release(ctx); err != nil {
		return false, err
	}
	b.realm.sandboxes.Put(slot, nil)
	return true, nil
}
