package microvm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

const (
	// maxReply bounds the frames of a worker, in bytes: a piece of output, or
	// the end of a call with the value of a trailing expression.
	maxReply = 256 << 10
	// readAhead is what is read at once: what a small program answers, with the
	// end of the call.
	readAhead = 4 << 10
	// lookout is how long an answer is looked for before the caller sleeps: a
	// short program takes 0.1 ms.
	lookout = 200 * time.Microsecond
	// slack is how long a worker may take beyond a call's limit and the grace,
	// in which it interrupts the program, lets it print a traceback, or stops it.
	// A worker that is later does not work any more.
	slack = time.Second
)

// link is the host's end of a worker's connection. One call at a time uses it.
type link struct {
	conn net.Conn
	r    *wire.Reader
	last uint32 // number of the last call
	asks *asks  // nil when its programs can ask nothing
	w    *wire.Writer

	side  net.Conn
	mu    sync.Mutex
	aside *wire.Writer // of the side line, guarded by mu
	// active is the call under way, guarded by mu.
	active uint32
}

// newLink makes a link of a line of calls and a side line. serve, if not nil,
// answers what programs ask, within the budgets.
func newLink(conn, side net.Conn, b *budgets, serve func(context.Context, string, []byte) wire.Answer) *link {
	l := &link{conn: conn, w: wire.NewWriter(conn), side: side, aside: wire.NewWriter(side)}
	if serve != nil {
		l.asks = &asks{
			serve: serve, reply: l.answer, asked: share{of: &b.asked}, answers: share{of: &b.answers}, pending: map[uint32]pending{},
		}
	}
	l.r = wire.NewReader(bufio.NewReaderSize(wire.NewLine(conn, lookout), readAhead), maxReply)
	if serve != nil {
		l.r.Allow(wire.KindAsk, wire.MaxPayload)
		l.r.Gate(wire.KindAsk, freeAsk, l.asks.room)
	}
	return l
}

// call is what a worker is asked to do.
type call struct {
	kind    wire.Kind
	message any // nil for an empty payload
	// patience is how long the answer may take after the context is over.
	patience time.Duration
	// output takes output as it arrives; an error ends the exchange.
	output func(kind wire.Kind, b []byte) error
}

// exchange makes a call and waits for its end. A context that is canceled has
// a run interrupted; of one that meets its deadline the worker knows itself.
// After an error the connection is of no further use.
func (l *link) exchange(ctx context.Context, c call) (wire.Done, error) {
	var payload []byte
	if c.message != nil {
		var err error
		if payload, err = wire.Encode(c.message); err != nil {
			return wire.Done{}, err
		}
	}
	var latest time.Time // none
	if d, ok := ctx.Deadline(); ok {
		latest = d.Add(c.patience)
	}
	if err := l.conn.SetDeadline(latest); err != nil {
		return wire.Done{}, err
	}
	l.last++
	number := l.last
	l.setActive(number)
	defer l.setActive(0)
	// Before the call is written, which may take its time: a worker remembers an
	// interrupt of a call that is still to come.
	defer context.AfterFunc(ctx, func() { l.interrupt(ctx, number, c) })()
	if err := l.w.Write(wire.Frame{Kind: c.kind, Call: number, Payload: payload}); err != nil {
		return wire.Done{}, err
	}
	if c.kind != wire.KindRun || l.asks == nil {
		return l.receive(number, c, nil)
	}
	// What the program has asked for ends with its time, or with the call.
	over, stop := context.WithCancel(context.WithoutCancel(ctx))
	d, err := l.receive(number, c, func(a wire.Ask) error { return l.asks.begin(ctx, over, number, a) })
	stop()
	if err != nil {
		l.close() // so that nobody goes on answering
	}
	l.asks.settle(slack)
	return d, err
}

// receive takes in what a worker sends for a call until that is done. ask, if
// not nil, takes what its program asks.
func (l *link) receive(number uint32, c call, ask func(wire.Ask) error) (wire.Done, error) {
	if l.asks != nil {
		defer l.asks.unread()
	}
	for {
		f, err := l.r.Next()
		if err != nil {
			return wire.Done{}, err
		}
		if f.Call != number {
			return wire.Done{}, fmt.Errorf("%w: a frame for call %d during call %d", wire.ErrProtocol, f.Call, number)
		}
		switch {
		case f.Kind == wire.KindDone:
			var d wire.Done
			err := wire.Decode(f.Payload, &d)
			return d, err
		case (f.Kind == wire.KindStdout || f.Kind == wire.KindStderr) && c.output != nil:
			if err := c.output(f.Kind, f.Payload); err != nil {
				return wire.Done{}, err
			}
		case f.Kind == wire.KindAsk && ask != nil && f.Cut:
			if err := l.asks.refuse(number, f.Payload); err != nil {
				return wire.Done{}, err
			}
		case f.Kind == wire.KindAsk && ask != nil:
			var a wire.Ask
			err := wire.Decode(f.Payload, &a)
			if err == nil {
				err = ask(a)
			}
			if err != nil {
				return wire.Done{}, err
			}
		case f.Kind == wire.KindWithdraw && ask != nil:
			var w wire.Withdraw
			if err := wire.Decode(f.Payload, &w); err != nil {
				return wire.Done{}, err
			}
			l.asks.withdraw(w.ID)
		default:
			return wire.Done{}, fmt.Errorf("%w: a frame of kind %d from the worker", wire.ErrProtocol, f.Kind)
		}
	}
}

// answer sends what came of an ask. A connection that takes no more has ended,
// or will have the exchange fail.
func (l *link) answer(number uint32, a wire.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.asks.answered(a.ID)
	l.write(func() error { return l.aside.WriteAnswer(number, a) })
}

// write has something sent on the side line. A worker that does not take it in has
// had its time: nobody waits for it a second time, and the exchange fails. So it
// does for an answer that cannot be sent, which must not pass for a late one.
// Precondition: mu is held.
func (l *link) write(send func() error) {
	err := l.side.SetWriteDeadline(time.Now().Add(slack))
	if err == nil {
		err = send()
	}
	if err != nil {
		l.close()
	}
}

func (l *link) close() {
	_ = l.conn.Close()
	_ = l.side.Close()
}

func (l *link) setActive(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = number
}

// interrupt has a call cut short that is still under way, and gives it a last
// moment. A reset is done sooner than it is interrupted, and half of one is no state
// to go on from: it has the moment alone.
func (l *link) interrupt(ctx context.Context, number uint32, c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Of its deadline the worker knows itself.
	if d, ok := ctx.Deadline(); l.active != number || ok && !time.Now().Before(d) {
		return
	}
	_ = l.conn.SetDeadline(time.Now().Add(c.patience)) // a failure makes the exchange fail
	if c.kind != wire.KindReset {
		l.write(func() error { return l.aside.Write(wire.Frame{Kind: wire.KindInterrupt, Call: number}) })
	}
}
