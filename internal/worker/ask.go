package worker

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// errNoHost is what a call to the host ends with when the connection has.
var errNoHost = errors.New("the host is gone")

// asks are what the guest has asked of the host and not been answered.
type asks struct {
	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan wire.Answer // nil when the connection has ended
}

func newAsks() *asks { return &asks{waiting: map[uint32]chan wire.Answer{}} }

// add gives the number of a new ask and where its answer will arrive.
func (a *asks) add() (id uint32, got chan wire.Answer, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return 0, nil, false
	}
	a.last++
	got = make(chan wire.Answer, 1)
	a.waiting[a.last] = got
	return a.last, got, true
}

// answer takes an answer in. It reports false for one that nobody has asked for.
func (a *asks) answer(w wire.Answer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.waiting[w.ID]
	if got == nil {
		return false
	}
	delete(a.waiting, w.ID)
	got <- w
	return true
}

// end lets everyone who waits go.
func (a *asks) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, got := range a.waiting {
		close(got)
	}
	a.waiting = nil
}

// ask is the engine's way to the host during a call. It returns when the host has
// answered, also when nobody waits for that any more: until then the ask counts,
// so that a guest cannot have more work done for it than the engine allows.
func (s *server) ask(number uint32) engine.HostFunc {
	return func(ctx context.Context, name string, request []byte) ([]byte, error) {
		id, got, ok := s.asks.add()
		if !ok {
			return nil, errNoHost
		}
		// The name is what the guest likes; a message's text is UTF-8.
		name = strings.ToValidUTF8(name, "\uFFFD")
		if len(name) > wire.MaxAskName {
			name = strings.ToValidUTF8(name[:wire.MaxAskName], "")
		}
		if err := s.send(wire.KindAsk, number, wire.Ask{ID: id, Name: name, Payload: request}); err != nil {
			return nil, errNoHost // and the reader ends with the connection
		}
		var a wire.Answer
		select {
		case a, ok = <-got:
		case <-ctx.Done():
			if err := s.send(wire.KindWithdraw, number, wire.Withdraw{ID: id}); err != nil {
				return nil, errNoHost
			}
			a, ok = <-got
		}
		switch {
		case !ok:
			return nil, errNoHost
		case a.Unknown:
			return nil, engine.ErrNotOffered
		case a.NoRoom:
			return nil, engine.ErrNoRoom
		case a.Failed:
			return nil, errors.New(a.Failure)
		}
		return a.Payload, nil
	}
}
