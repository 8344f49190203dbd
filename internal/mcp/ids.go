package mcp

import (
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxID bounds the numbers that are ids of requests. The SDK reads them as
// JavaScript does, so that one beyond comes back as another number, and its client
// waits for ever (RFC 8259, section 6).
const maxID = 1<<53 - 1

var errID = errors.New(fmt.Sprint("a number that is an id is from ", -maxID, " to ", maxID, ": use text for others"))

// checkID refuses requests whose answers could not bear their ids; the error is errID.
func checkID(message jsonrpc.Message) error {
	request, ok := message.(*jsonrpc.Request)
	if !ok {
		return nil
	}
	if n, ok := request.ID.Raw().(int64); ok && (n > maxID || n < -maxID) {
		return errID
	}
	return nil
}
