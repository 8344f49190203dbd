package microvm

import (
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// maxAskedTogether bounds what all sandboxes of a backend have asked and not
	// been answered, in bytes: sixteen of them as much as one may. Without it a
	// thousand programs that post to a slow server would hold 16 GiB of the host's.
	maxAskedTogether = 16 * maxAskedBytes
	// freeAsk is the size in bytes up to which an ask is never refused for the
	// sake of others: a request without a body. MaxAsks of them bound each sandbox.
	freeAsk = 16 << 10
	// tooMuchAsked is what a program hears whose ask found no room.
	tooMuchAsked = "the host has as many bytes of requests as it takes from all sandboxes together; try again later"
)

// budget is shared by the sandboxes of a backend.
type budget struct {
	mu    sync.Mutex
	limit int
	used  int
}

// take says whether there is room for n bytes of a sandbox that has held bytes
// already. Half of the room is for those that have none: a few that ask for much
// keep nobody from a first large request.
func (b *budget) take(n, held int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	if held > 0 {
		limit /= 2
	}
	if b.used+n > limit {
		return false
	}
	b.used += n
	return true
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// room takes n bytes of the budget for an ask that is about to be read.
func (a *asks) room(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.reading
	for _, p := range a.pending {
		held += p.taken
	}
	if !a.budget.take(n, held) {
		return false
	}
	a.reading = n
	return true
}

// unread gives back what was taken for an ask that did not become one.
func (a *asks) unread() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budget.give(a.reading)
	a.reading = 0
}

// refuse answers an ask for which there was no room, of which the beginning is
// there.
func (a *asks) refuse(number uint32, head []byte) error {
	id, err := wire.AskID(head)
	if err != nil {
		return err
	}
	return a.open(number, id, 0, func() wire.Answer { return wire.Answer{Failed: true, Failure: tooMuchAsked} }, func() {})
}
