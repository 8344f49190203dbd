// Package fence keeps the programs of a host and the wishes of its operator
// apart: whoever removes a sandbox first stops what runs in it, and keeps
// anything else from starting there.
//
//	a call       Enter ── run a program ── leave
//	an operator  Hold ── dispose ── release
//
// [Fence.Hold] is what control.HostConfig.Quiesce wants. A host whose calls are
// those of a router takes [Fence.Calls], which enters, leaves and cleans up in the
// right order; others call [Fence.Enter] themselves, and leave before anything is
// reset that was stopped: a reset makes another generation, which an exact disposal
// does not reach.
package fence

import (
	"context"
	"errors"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// ErrStopped is the cause of the end of a context that a hold has ended.
var ErrStopped = errors.New("stopped by an operator")

// Stopped says whether it was a hold that ended the context.
func Stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrStopped) }

// Fence knows the calls inside by the key of their sandbox. The zero value is
// open; all methods may be called at the same time.
type Fence struct {
	mu    sync.Mutex
	calls map[*call]struct{} // those inside; guarded by mu
	holds map[*hold]struct{} // guarded by mu
}

// call is a call inside.
type call struct {
	key  sandbox.Key
	stop context.CancelCauseFunc
	left chan struct{} // closed when it has left
}

// hold keeps calls out.
type hold struct {
	covers   func(sandbox.Key) bool
	released chan struct{} // closed at its end
}

// Enter lets a call in to the sandbox of a key, or waits until nobody holds it.
// The context that it returns ends with ctx, at leave, and with the cause
// [ErrStopped] when the key is held. The caller runs its programs under that
// context and then leaves; leaving twice is leaving once. The error is ctx's,
// and then the call is not inside.
func (f *Fence) Enter(ctx context.Context, key sandbox.Key) (inside context.Context, leave func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		inside, stop := context.WithCancelCause(ctx)
		c := &call{key, stop, make(chan struct{})}
		held := f.admit(c)
		if held == nil {
			return inside, sync.OnceFunc(func() { f.leave(c) }), nil
		}
		stop(nil)
		select {
		case <-held.released:
		case <-ctx.Done():
		}
	}
}

// admit lets the call in, or gives a hold that keeps it out.
func (f *Fence) admit(c *call) *hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.holds {
		if h.covers(c.key) {
			return h
		}
	}
	if f.calls == nil {
		f.calls = make(map[*call]struct{})
	}
	f.calls[c] = struct{}{}
	return nil
}

func (f *Fence) leave(c *call) {
	f.mu.Lock()
	delete(f.calls, c)
	f.mu.Unlock()
	c.stop(nil)
	close(c.left)
}

// Hold ends the contexts of the calls that are inside for the key, waits until
// they have left, and keeps others out until release, which may be called more
// than once. Several can hold a key at the same time. The error is ctx's, and
// then nothing is held; the calls have been stopped all the same.
func (f *Fence) Hold(ctx context.Context, key sandbox.Key) (release func(), err error) {
	return f.hold(ctx, func(k sandbox.Key) bool { return k == key })
}

// HoldThread is Hold for all keys of a conversation.
func (f *Fence) HoldThread(ctx context.Context, scope, threadID string) (release func(), err error) {
	return f.hold(ctx, func(k sandbox.Key) bool { return k.Scope == scope && k.ThreadID == threadID })
}

func (f *Fence) hold(ctx context.Context, covers func(sandbox.Key) bool) (release func(), err error) {
	h := &hold{covers, make(chan struct{})}
	var stopped []*call
	f.mu.Lock()
	if f.holds == nil {
		f.holds = make(map[*hold]struct{})
	}
	f.holds[h] = struct{}{}
	for c := range f.calls {
		if covers(c.key) {
			stopped = append(stopped, c)
		}
	}
	f.mu.Unlock()

	release = sync.OnceFunc(func() {
		f.mu.Lock()
		delete(f.holds, h)
		f.mu.Unlock()
		close(h.released)
	})
	for _, c := range stopped {
		c.stop(ErrStopped)
	}
	for _, c := range stopped {
		select {
		case <-c.left:
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}
