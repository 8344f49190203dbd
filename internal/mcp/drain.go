package mcp

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainTime bounds how long a client that has closed its end is waited for: as
// long as a person waits for a command line, and shorter than clients wait
// before they kill.
const drainTime = 2 * time.Second

// maxUnanswered bounds the requests of a connection that are unanswered or whose
// answers the client has not taken. Only the calls in line, which are fewer, wait for
// anything else (a subscription does not, since nothing here changes): whoever takes
// the answers is always read, and so can cancel.
const maxUnanswered = maxWaiting + 8

// draining is a transport that counts the requests that are unanswered. It reads no
// more of a client that does not take its answers, which would pile up here.
//
// It also holds the end of its input back until what came before is answered, at most
// for a time. The SDK cancels everything at the end of the input; without this a
// request that is piped in, such as from a file, would get no answer. What the client
// has not taken by then it does not get.
type draining struct {
	sdk.Transport
	time time.Duration
}

// Connect implements sdk.Transport.
func (d draining) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := d.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &drainingConn{Connection: c, time: d.time, answered: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type drainingConn struct {
	sdk.Connection
	time   time.Duration
	closed chan struct{}
	once   sync.Once
	// unanswered counts requests; each that the SDK gets has one answer.
	unanswered atomic.Int64
	// answered has room for one: they have become fewer.
	answered chan struct{}
}

// Read implements sdk.Connection.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if !c.await(ctx, maxUnanswered-1, nil) {
		return nil, io.EOF
	}
	message, err := c.Connection.Read(ctx)
	if errors.Is(err, io.EOF) {
		c.drain(ctx)
	}
	if request, ok := message.(*jsonrpc.Request); ok && request.IsCall() {
		c.unanswered.Add(1)
	}
	return message, err
}

// Write implements sdk.Connection.
func (c *drainingConn) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if _, ok := message.(*jsonrpc.Response); ok {
		c.unanswered.Add(-1)
		select {
		case c.answered <- struct{}{}:
		default: // whoever waits has not yet seen the last one
		}
	}
	return err
}

// Close implements sdk.Connection.
func (c *drainingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

// await waits until at most so many requests are unanswered. It is false when the
// connection or the wait has ended before. It is for one caller at a time.
func (c *drainingConn) await(ctx context.Context, most int64, late <-chan time.Time) bool {
	for c.unanswered.Load() > most {
		select {
		case <-c.answered:
		case <-c.closed:
			return false
		case <-ctx.Done():
			return false
		case <-late:
			return false
		}
	}
	return true
}

func (c *drainingConn) drain(ctx context.Context) {
	timer := time.NewTimer(c.time)
	defer timer.Stop()
	if !c.await(ctx, 0, timer.C) {
		_ = c.Connection.Close() // or an answer that is not taken would keep the session
	}
}
