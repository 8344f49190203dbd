package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// listMethod is the method of a list of tools, in the protocol.
const listMethod = "tools/list"

// DefaultFactsTime is how long a list of tools waits for Config.Facts. Codex gives
// a server 10 seconds from its start to its list, and other clients more.
const DefaultFactsTime = 5 * time.Second

// informed has lists of tools wait for what is to be told of the sandboxes, the
// first time that it is known. Nothing else waits: clients want their answer to
// initialize at once, and a call waits for its sandbox anyway.
func (s *Server) informed(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method == listMethod {
			s.inform(ctx)
		}
		return next(ctx, method, req)
	}
}

// inform describes execute_code anew when the facts have become known within the
// time for that.
func (s *Server) inform(ctx context.Context) {
	if s.config.Facts == nil || s.isInformed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.FactsTime)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	facts := s.config.Facts(ctx)
	if !facts.Known() {
		return
	}
	if err := s.describe(facts); err != nil {
		s.config.Logger.Warn("the model is not told what is in the sandbox", "error", err)
	}
}

func (s *Server) isInformed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts.Known()
}

// describe has clients and later sessions told of facts, unless they are told of
// some already. Errors are those of codeact.NewTool.
func (s *Server) describe(facts sandbox.Facts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts.Known() {
		return nil
	}
	s.facts = facts
	model, err := s.newSession("", nil)
	if err != nil {
		s.facts = s.config.Tool.Facts
		return err
	}
	s.addProgramTool(model.tool)
	return nil
}
