package mcp

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// callMethod is the method of a call of a tool, in the protocol.
const callMethod = "tools/call"

// codeCancelled is the code of the answer to a request that its client has
// cancelled. JSON-RPC and MCP have none; this one is RequestCancelled of the
// Language Server Protocol, which is JSON-RPC too.
const codeCancelled = -32800

// arriving is a transport that gives each call of a tool its place in line as it
// arrives. The SDK handles calls at the same time, so that their handlers begin in
// any order; a client that sends several, or a program and then a reset, means
// them in the order in which it sent them.
//
// A request whose id is in use is dropped here, so that an id stands for one request
// from its arrival to its answer. It can have no answer, whose id would be that of the
// other one's. The SDK drops some of those only: for it an id is free a little earlier,
// before the answer is on its way.
type arriving struct {
	sdk.Transport
	line   *line
	logger *slog.Logger
}

// Connect implements sdk.Transport.
func (a arriving) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := a.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &arrivingConn{Connection: c, line: a.line, logger: a.logger, unanswered: map[jsonrpc.ID]*place{}}, nil
}

type arrivingConn struct {
	sdk.Connection
	line   *line
	logger *slog.Logger
	mu     sync.Mutex
	// unanswered are the requests that are, with their places; nil stands for one
	// that has none. Guarded by mu.
	unanswered map[jsonrpc.ID]*place
}

// arrival is what a call of a tool finds out about how it came.
type arrival struct {
	line *line
	// place is the call's in the line; nil when err says why it has none.
	place *place
	err   error
}

// arrivalKey is where an arrival is in the extra data of a request. Only a
// transport writes there: what a client sends does not get into it.
const arrivalKey = "arrival"

// arrivalOf is nil for a call that came by a transport without lines, as over HTTP.
func arrivalOf(req *sdk.CallToolRequest) *arrival {
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return nil
	}
	a, _ := req.Extra.TokenInfo.Extra[arrivalKey].(*arrival)
	return a
}

// Read implements sdk.Connection.
func (c *arrivingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		message, err := c.Connection.Read(ctx)
		request, ok := message.(*jsonrpc.Request)
		if err != nil || !ok || !request.IsCall() || c.arrive(request) {
			return message, err
		}
		c.logger.Warn("a request whose id is in use was dropped")
	}
}

// arrive notes a request, and gives a call of a tool its place. It is false for a
// request whose id is in use.
func (c *arrivingConn) arrive(request *jsonrpc.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.unanswered[request.ID]; used {
		return false
	}
	a := &arrival{line: c.line}
	if request.Method == callMethod {
		a.place, a.err = c.line.join()
		request.Extra = &sdk.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{arrivalKey: a}}}
	}
	c.unanswered[request.ID] = a.place
	return true
}

// Write implements sdk.Connection.
func (c *arrivingConn) Write(ctx context.Context, message jsonrpc.Message) error {
	if response, ok := message.(*jsonrpc.Response); ok {
		// Before the client has it and uses the id again.
		c.answered(response.ID)
		response.Error = coded(response.Error)
	}
	return c.Connection.Write(ctx, message)
}

// answered frees the id of a request, and gives up the place of a call that was
// refused before it came for its turn; any other has left it.
func (c *arrivingConn) answered(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.unanswered[id]; p != nil {
		p.leave()
	}
	delete(c.unanswered, id)
}

// coded gives an error the code that JSON-RPC asks for. The SDK writes zero where
// an error has none, also for its own.
func coded(err error) error {
	if own := (*jsonrpc.Error)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	code := int64(jsonrpc.CodeInternalError)
	if errors.Is(err, context.Canceled) {
		code = codeCancelled
	}
	return &jsonrpc.Error{Code: code, Message: err.Error()}
}
