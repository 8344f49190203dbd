package mcp

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestTheEndOfASessionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
		r, err := router.New(router.Config{Backends: []sandbox.Backend{b}})
		if err != nil {
			t.Fatal(err)
		}
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDisposeScope, sandboxtest.Step{Gate: gate})
		of := newSession(Config{Router: r, Logger: slog.New(slog.DiscardHandler)}, &fence.Fence{}, "", nil)
		of.end = func() {}
		begin := time.Now()
		of.finish()
		if took := time.Since(begin); took != endTimeout {
			t.Errorf("it took %v of the clock", took)
		}
		gate.Release()
	})
}

// A call that has arrived may not have been handled yet.
func TestACallThatComesAfterTheEndOfItsSessionDoesNotRun(t *testing.T) {
	b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Router: r, KeepState: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	arrived, handle := make(chan *sdk.ServerSession), make(chan struct{})
	s.sdk.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method == callMethod {
				arrived <- req.GetSession().(*sdk.ServerSession)
				<-handle
			}
			return next(ctx, method, req)
		}
	})
	near, far := sdk.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan *sdk.CallToolResult, 1)
	go func() {
		defer close(called)
		if res, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": "x"}}); err == nil {
			called <- res
		}
	}()
	s.cancel(<-arrived)
	close(handle)
	if res := <-called; res == nil || !res.IsError {
		t.Errorf("the call has %v", res)
	}
	for _, c := range b.Calls() {
		if c.Op == sandboxtest.OpRunCode {
			t.Error("the program ran")
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if len(s.sessions) != 0 {
		t.Errorf("%d sessions are left", len(s.sessions))
	}
}
