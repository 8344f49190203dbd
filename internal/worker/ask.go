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
	waiting map[uint32]func(a wire.Answer, ok bool) // nil when the connection has ended
}

func newAsks() *asks { return &asks{waiting: map[uint32]func(wire.Answer, bool){}} }

// add gives the number of a new ask. got is called once: with the answer, or with
// not ok when the connection has ended.
func (a *asks) add(got func(a wire.Answer, ok bool)) (id uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return 0, false
	}
	a.last++
	a.waiting[a.last] = got
	return a.last, true
}

// answer takes an answer in. It reports false for one that nobody has asked for.
func (a *asks) answer(w wire.Answer) bool {
	a.mu.Lock()
	got := a.waiting[w.ID]
	delete(a.waiting, w.ID)
	a.mu.Unlock()
	if got == nil {
		return false
	}
	got(w, true)
	return true
}

// end lets everyone who waits go.
func (a *asks) end() {
	a.mu.Lock()
	waiting := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for _, got := range waiting {
		got(wire.Answer{}, false)
	}
}

// ask is the engine's way to the host during a call. The ask counts until the host
// has answered, also when nobody waits for that any more, so that a guest cannot
// have more work done for it than the engine allows.
func (s *server) ask(number uint32) engine.AskFunc {
	return func(ctx context.Context, name string, request []byte, answer func([]byte, error)) {
		// The name is what the guest likes; a message's text is UTF-8.
		name = strings.ToValidUTF8(name, "\uFFFD")
		if len(name) > wire.MaxAskName {
			name = strings.ToValidUTF8(name[:wire.MaxAskName], "")
		}
		asked := make(chan struct{}) // before it nothing is withdrawn
		var id uint32
		kept := context.AfterFunc(ctx, func() {
			<-asked                                                      // which may be later than the end of the call
			_ = s.send(wire.KindWithdraw, number, wire.Withdraw{ID: id}) // a line that fails has ended
		})
		id, ok := s.asks.add(func(a wire.Answer, ok bool) {
			kept()
			switch {
			case !ok:
				answer(nil, errNoHost)
			case a.Unknown:
				answer(nil, engine.ErrNotOffered)
			case a.NoRoom:
				answer(nil, engine.ErrNoRoom)
			case a.Failed:
				answer(nil, errors.New(a.Failure))
			default:
				answer(a.Payload, nil)
			}
		})
		if !ok {
			kept()
			close(asked)
			answer(nil, errNoHost)
			return
		}
		// What cannot be sent is answered when the reader ends with the connection.
		_ = s.send(wire.KindAsk, number, wire.Ask{ID: id, Name: name, Payload: request})
		close(asked)
	}
}
