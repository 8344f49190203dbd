package mcp

import (
	"context"
	"errors"
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
type arriving struct {
	sdk.Transport
	line *line
}

// Connect implements sdk.Transport.
func (a arriving) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := a.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &arrivingConn{Connection: c, line: a.line, places: map[jsonrpc.ID]*place{}}, nil
}

type arrivingConn struct {
	sdk.Connection
	line *line
	mu   sync.Mutex
	// places are those of unanswered calls; nil stands for one that has none.
	// Guarded by mu.
	places map[jsonrpc.ID]*place
}

// arrival is what a call of a tool finds out about how it came.
type arrival struct {
	line *line
	// place is the call's in the line. It is nil when err says why, or when the
	// call's id was in use, so that the SDK is likely to refuse it.
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
	message, err := c.Connection.Read(ctx)
	if request, ok := message.(*jsonrpc.Request); ok && request.IsCall() && request.Method == callMethod {
		request.Extra = &sdk.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{arrivalKey: c.arrive(request.ID)}}}
	}
	return message, err
}

func (c *arrivingConn) arrive(id jsonrpc.ID) *arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &arrival{line: c.line}
	if _, used := c.places[id]; !used {
		a.place, a.err = c.line.join()
		c.places[id] = a.place
	}
	return a
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

// answered gives up the place of a call that was refused before it came for its
// turn; any other has left it.
func (c *arrivingConn) answered(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.places[id]; p != nil {
		p.leave()
	}
	delete(c.places, id)
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
