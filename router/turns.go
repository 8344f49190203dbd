package router

import (
	"context"
	"sync"
	"time"
)

// turns has one holder at a time for each key; who waits is served in the order
// of arrival. The zero value is ready. Keys that nobody uses take no memory.
type turns[K comparable] struct {
	mu  sync.Mutex
	all map[K]*turn
}

type turn struct {
	// token is in the channel while nobody holds the turn. Go serves waiting
	// receivers first in, first out.
	token chan struct{}
	// users counts who holds the turn or waits for it; guarded by turns.mu.
	users int
}

// take waits for the turn as long as patience and ctx allow, and returns how to
// give it back. The error is that of ctx, or context.DeadlineExceeded for the
// end of the patience; then nothing is held.
func (t *turns[K]) take(ctx context.Context, key K, patience time.Duration) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.all == nil {
		t.all = make(map[K]*turn)
	}
	one := t.all[key]
	if one == nil {
		one = &turn{token: make(chan struct{}, 1)}
		one.token <- struct{}{}
		t.all[key] = one
	}
	one.users++
	t.mu.Unlock()

	leave = func() { one.token <- struct{}{}; t.forget(key, one) }
	select {
	case <-one.token: // most turns are free
		return leave, nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-one.token:
		return leave, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	t.forget(key, one)
	return nil, err
}

func (t *turns[K]) forget(key K, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, key)
	}
}
