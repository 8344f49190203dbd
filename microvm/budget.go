package microvm

import (
	"context"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// maxAskedTogether bounds what all sandboxes of a backend have asked and not
	// been answered, in bytes: sixteen of them as much as one may. Without it a
	// thousand programs that post to a slow server would hold 16 GiB of the host's.
	maxAskedTogether = 16 * maxAskedBytes
	// maxAnsweredTogether bounds the answers to all sandboxes of a backend, in
	// bytes, from the first byte that arrives until they are written, which copies
	// none of the large ones (wire.Writer.WriteAnswer).
	maxAnsweredTogether = 16 * maxAskedBytes
	// freeAsk is the size in bytes up to which an ask or an answer is never refused
	// for the sake of others: a request without a body. MaxAsks of them bound each
	// sandbox.
	freeAsk = 16 << 10
	// tooMuchAsked is what a program hears whose ask found no room.
	tooMuchAsked = "the host has as many bytes of requests as it takes from all sandboxes together; try again later"
	// tooMuchAnswered is what it hears whose answer did not.
	tooMuchAnswered = "the host has as many bytes of answers as it takes for all sandboxes together; the answer was given up; try again later"
)

// budget is shared by the sandboxes of a backend.
type budget struct {
	mu    sync.Mutex
	limit int
	used  int
}

// budgets are those of a backend.
type budgets struct{ asked, answers budget }

func newBudgets() budgets {
	return budgets{budget{limit: maxAskedTogether}, budget{limit: maxAnsweredTogether}}
}

// share is what one sandbox has of a budget.
type share struct {
	of   *budget
	held int // guarded by of.mu
}

// take says whether there is room for n bytes more. A sandbox gets no more than it
// would leave free: one alone has half of the room, and of several that want all of
// it each has as much as stays for the next (A. K. Choudhury and E. L. Hahne,
// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998).
func (s *share) take(n int) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.held+n > s.of.limit-s.of.used {
		return false
	}
	s.of.used += n
	s.held += n
	return true
}

func (s *share) give(n int) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.used -= n
	s.held -= n
}

// grant is what one answer has of a share. It belongs to whoever makes the answer,
// and then to whoever sends it.
type grant struct {
	share *share
	taken int
}

// room has the answer take n bytes instead of what it has taken; no more than
// before is always granted.
func (g *grant) room(n int) bool {
	if n <= freeAsk {
		n = 0
	}
	switch more := n - g.taken; {
	case more <= 0:
		g.share.give(-more)
	case !g.share.take(more):
		return false
	}
	g.taken = n
	return true
}

// free gives back what the answer has taken.
func (g *grant) free() { g.room(0) }

// grantKey is the context's value for the *grant of the answer that is being made.
type grantKey struct{}

// roomOf is what an answer may take of the budget.
func roomOf(ctx context.Context) func(n int) bool {
	if g, ok := ctx.Value(grantKey{}).(*grant); ok {
		return g.room
	}
	return nil
}

// room takes n bytes of the budget for an ask that is about to be read.
func (a *asks) room(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked.take(n) {
		return false
	}
	a.reading = n
	return true
}

// unread gives back what was taken for an ask that did not become one.
func (a *asks) unread() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked.give(a.reading)
	a.reading = 0
}

// refuse answers an ask for which there was no room, of which the beginning is
// there.
func (a *asks) refuse(number uint32, head []byte) error {
	id, err := wire.AskID(head)
	if err != nil {
		return err
	}
	return a.open(number, id, 0, func(*grant) wire.Answer { return wire.Answer{Failed: true, NoRoom: true, Failure: tooMuchAsked} }, func() {})
}
