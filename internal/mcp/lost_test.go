package mcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// fragile is a backend in memory whose programs do not obey: one that is canceled
// costs its sandbox.
type fragile struct{ *sandboxtest.Backend }

type fragileBox struct {
	sandbox.Sandbox
	lose func()
}

func (b fragile) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := b.Backend.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return fragileBox{box, func() {
		_ = b.Backend.Dispose(context.WithoutCancel(ctx), key, sandbox.DisposeOptions{Kind: spec.Kind, InstanceID: box.ID()})
	}}, nil
}

func (b fragileBox) RunCode(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	result, err := b.Sandbox.RunCode(ctx, code, timeout)
	if ctx.Err() != nil {
		b.lose()
		err = &sandbox.OpError{Op: "run_code", Class: sandbox.ErrCanceled, Cause: ctx.Err()}
	}
	return result, err
}

// serveFragile serves a client over such a backend.
func serveFragile(t *testing.T) (*sandboxtest.Backend, *sdk.ClientSession) {
	t.Helper()
	b := memory()
	r, err := router.New(router.Config{Backends: []sandbox.Backend{fragile{b}}, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	cs, _ := connect(t, serve(t, b, func(c *mcp.Config) { c.Router = r }), nil)
	return b, cs
}

// cancels calls a tool and gives up as soon as the backend is at the step.
func cancels(t *testing.T, b *sandboxtest.Backend, cs *sdk.ClientSession, at sandboxtest.Op, tool string) {
	t.Helper()
	gate := sandboxtest.NewGate()
	b.Script(at, sandboxtest.Step{Gate: gate})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-gate.Entered(); cancel() }()
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"code": "forever"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	gate.Release()
}

// tellsOnce wants the next answer to tell of the loss, and only that one.
func tellsOnce(t *testing.T, cs *sdk.ClientSession) {
	t.Helper()
	if got := run(t, cs, `get "x"`); !got.Lost || !strings.Contains(got.Text, "not defined") || !strings.HasSuffix(got.Text, lost) {
		t.Errorf("the next call: %+v", got)
	}
	if got := run(t, cs, `print "on"`); got.Lost || got.Text != "stdout:\non" {
		t.Errorf("the one after: %+v", got)
	}
}

func TestACanceledProgramThatCostsTheSandboxIsToldByTheNextOne(t *testing.T) {
	b, cs := serveFragile(t)
	run(t, cs, `set "x" "1"`)
	cancels(t, b, cs, sandboxtest.OpRunCode, codeact.Name)
	tellsOnce(t, cs)
}

func TestALossThatACanceledProgramFoundIsToldByTheNextOne(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "1"`)
	of := last(t, b, sandboxtest.OpRunCode)
	dispose(t, b, of)
	cancels(t, b, cs, sandboxtest.OpRunCode, codeact.Name) // in a new sandbox, which it does not cost
	tellsOnce(t, cs)
}
