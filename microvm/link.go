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

	mu     sync.Mutex
	w      *wire.Writer // guarded by mu
	active uint32       // call under way, guarded by mu
}

// newLink makes a link of a connection. serve, if not nil, answers what programs
// ask.
func newLink(conn net.Conn, serve func(context.Context, string, []byte) wire.Answer) *link {
	l := &link{conn: conn, w: wire.NewWriter(conn)}
	largest := maxReply
	if serve != nil {
		largest = wire.MaxPayload
		l.asks = &asks{serve: serve, reply: l.answer, pending: map[uint32]context.CancelFunc{}}
	}
	l.r = wire.NewReader(bufio.NewReaderSize(wire.NewLine(conn, lookout), readAhead), largest)
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
// the call interrupted; of one that meets its deadline the worker knows itself.
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
	if err := l.begin(wire.Frame{Kind: c.kind, Call: number, Payload: payload}); err != nil {
		return wire.Done{}, err
	}
	defer l.end()
	defer context.AfterFunc(ctx, func() { l.interrupt(ctx, number, c.patience) })()
	// What the program has asked for ends with the call.
	asking, stop := context.WithCancel(ctx)
	defer stop()
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
		case f.Kind == wire.KindAsk && l.asks != nil:
			var a wire.Ask
			err := wire.Decode(f.Payload, &a)
			if err == nil {
				err = l.asks.begin(asking, number, a)
			}
			if err != nil {
				return wire.Done{}, err
			}
		case f.Kind == wire.KindWithdraw && l.asks != nil:
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
	b, err := wire.Encode(a)
	if err != nil {
		_ = l.conn.Close() // an answer that is missing must not pass for a late one
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.w.Write(wire.Frame{Kind: wire.KindAnswer, Call: number, Payload: b})
}

func (l *link) begin(f wire.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = f.Call
	return l.w.Write(f)
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = 0
}

// interrupt has a call cut short that is still under way, and gives it a last
// moment.
func (l *link) interrupt(ctx context.Context, number uint32, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active != number || ctx.Err() == context.DeadlineExceeded { //nolint:errorlint // what Err gives is not wrapped
		return
	}
	// Whatever fails here makes the exchange fail.
	_ = l.conn.SetDeadline(time.Now().Add(patience))
	_ = l.w.Write(wire.Frame{Kind: wire.KindInterrupt, Call: number})
}
