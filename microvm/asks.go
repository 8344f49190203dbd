package microvm

import (
	"context"
	"fmt"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// asks are what a worker has asked on behalf of its program and not been
// answered. They outlive the call that they came from only until whoever works
// on the answer notices.
type asks struct {
	// serve answers one; it must end when the context does.
	serve func(ctx context.Context, name string, request []byte) wire.Answer
	// reply sends an answer to a call.
	reply func(call uint32, a wire.Answer)

	mu      sync.Mutex
	pending map[uint32]context.CancelFunc
}

// begin works on an ask. The error is a worker that asks too much at once, or
// uses a number twice.
func (a *asks) begin(ctx context.Context, number uint32, ask wire.Ask) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, twice := a.pending[ask.ID]; twice || len(a.pending) >= wire.MaxAsks {
		return fmt.Errorf("%w: ask %d while %d are without an answer", wire.ErrProtocol, ask.ID, len(a.pending))
	}
	ctx, cancel := context.WithCancel(ctx)
	a.pending[ask.ID] = cancel
	go func() {
		defer cancel()
		answer := a.serve(ctx, ask.Name, ask.Payload)
		answer.ID = ask.ID
		a.mu.Lock()
		delete(a.pending, ask.ID)
		a.mu.Unlock()
		a.reply(number, answer)
	}()
	return nil
}

// withdraw ends the work on an ask; one that is answered already is not there.
func (a *asks) withdraw(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.pending[id]; cancel != nil {
		cancel()
	}
}
