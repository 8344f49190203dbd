package mcp

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainTime bounds how long a client that has closed its end is waited for: as
// long as a person waits for a command line, and shorter than clients wait
// before they kill.
const drainTime = 2 * time.Second

// draining is a transport that holds the end of its input back until what came
// before is answered, at most for a time. The SDK cancels everything at the end
// of the input; without this a request that is piped in, such as from a file,
// would get no answer.
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
	return &drainingConn{
		Connection: c, time: d.time, idle: make(chan struct{}), closed: make(chan struct{}), unanswered: map[jsonrpc.ID]struct{}{},
	}, nil
}

type drainingConn struct {
	sdk.Connection
	time   time.Duration
	closed chan struct{}
	once   sync.Once

	mu sync.Mutex
	// unanswered are the requests by their ids: one whose id is in use gets no
	// answer of its own. Guarded by mu.
	unanswered map[jsonrpc.ID]struct{}
	// ending says that there will be none any more; guarded by mu.
	ending bool
	// idle is closed when the last of them is answered.
	idle chan struct{}
}

// Read implements sdk.Connection.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if errors.Is(err, io.EOF) {
		c.drain(ctx)
	}
	if request, ok := message.(*jsonrpc.Request); ok && request.IsCall() {
		c.mu.Lock()
		c.unanswered[request.ID] = struct{}{}
		c.mu.Unlock()
	}
	return message, err
}

// Write implements sdk.Connection.
func (c *drainingConn) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if response, ok := message.(*jsonrpc.Response); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.unanswered, response.ID)
		c.rest()
	}
	return err
}

// Close implements sdk.Connection.
func (c *drainingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

// rest closes idle when everything is answered. Precondition: mu is held.
func (c *drainingConn) rest() {
	if c.ending && len(c.unanswered) == 0 {
		c.ending = false // once
		close(c.idle)
	}
}

func (c *drainingConn) drain(ctx context.Context) {
	c.mu.Lock()
	c.ending = true
	c.rest()
	c.mu.Unlock()
	timer := time.NewTimer(c.time)
	defer timer.Stop()
	select {
	case <-c.idle:
	case <-c.closed:
	case <-ctx.Done():
	case <-timer.C:
	}
}
