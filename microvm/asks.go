package microvm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// maxAskedBytes bounds what a worker has asked and not been answered, in bytes:
// as much as the engine lets one guest ask.
const maxAskedBytes = 2 * wire.MaxAskBytes

// asks are what a worker has asked on behalf of its program and not been
// answered.
type asks struct {
	// serve answers one; it must end when the context does.
	serve func(ctx context.Context, name string, request []byte) wire.Answer
	// reply sends an answer to a call. It calls answered.
	reply func(call uint32, a wire.Answer)
	// asked and answers are this sandbox's parts of what all of them share.
	asked, answers share

	mu      sync.Mutex
	pending map[uint32]pending
	bytes   int
	reading int           // taken of the budget for the ask that is being read
	idle    chan struct{} // closed when nothing is pending, for who waits for it
}

type pending struct {
	// withdraw says that nobody waits for the answer any more.
	withdraw context.CancelFunc
	bytes    int
	taken    int    // of the budget of asks
	answer   *grant // of that of answers
}

// begin works on an ask.
//
// The work ends with ctx, the time of the program. An answer that is made only
// because of that is held until the worker withdraws the ask or over ends, which
// is when the program has: the worker's clock started a moment later, and the
// program would find a failed call where its time was up. It is sent even then,
// since the ask counts in the worker until it is answered.
func (a *asks) begin(ctx, over context.Context, number uint32, ask wire.Ask) error {
	waited, withdraw := context.WithCancel(over)
	serve := func(g *grant) wire.Answer {
		defer withdraw()
		ctx, cancel := context.WithCancel(context.WithValue(ctx, grantKey{}, g))
		defer cancel()
		defer context.AfterFunc(waited, cancel)()
		answer := a.serve(ctx, ask.Name, ask.Payload)
		if ctx.Err() != nil {
			<-waited.Done()
		}
		return answer
	}
	err := a.open(number, ask.ID, len(ask.Payload), serve, withdraw)
	if err != nil {
		withdraw()
	}
	return err
}

// open has an ask served. The error is a worker that asks too much at once, or
// uses a number twice. An answer may be on its way when the next ask comes: one
// more than the engine allows is no offence.
func (a *asks) open(number, id uint32, size int, serve func(*grant) wire.Answer, withdraw context.CancelFunc) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, twice := a.pending[id]; twice || len(a.pending) > wire.MaxAsks || a.bytes+size > maxAskedBytes {
		return fmt.Errorf("%w: ask %d of %d bytes while %d of %d bytes are without an answer", wire.ErrProtocol, id, size, len(a.pending), a.bytes)
	}
	g := &grant{share: &a.answers}
	a.pending[id] = pending{withdraw, size, a.reading, g}
	a.bytes += size
	a.reading = 0
	go func() {
		answer := serve(g)
		if !g.room(cap(answer.Payload)) {
			answer = wire.Answer{Failed: true, Failure: tooMuchAnswered}
		}
		answer.ID = id
		a.reply(number, answer)
	}()
	return nil
}

// settle waits until nothing is pending, at most so long: what is asked belongs
// to the call, and to the generation, that asked it.
func (a *asks) settle(limit time.Duration) {
	a.mu.Lock()
	if len(a.pending) == 0 {
		a.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	a.idle = idle
	a.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// answered forgets an ask.
func (a *asks) answered(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[id]
	a.bytes -= p.bytes
	a.asked.give(p.taken)
	p.answer.free()
	delete(a.pending, id)
	if len(a.pending) == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// withdraw ends the work on an ask; one that is answered already is not there.
func (a *asks) withdraw(id uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, there := a.pending[id]; there {
		p.withdraw()
	}
}
