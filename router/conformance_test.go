package router_test

import (
	"context"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// routed is a router as a backend: what a backend promises must still be true
// when a router stands before it.
type routed struct {
	*fake
	router *router.Router
}

func (b *routed) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return b.router.Acquire(ctx, key, spec)
}

func (b *routed) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	switch {
	case options.Kind != "":
		return b.router.DisposeKind(ctx, key, options.Kind, options.InstanceID, 0)
	case options.InstanceID != "": // the router wants a kind with it
		return b.fake.Dispose(ctx, key, options)
	}
	return b.router.Dispose(ctx, key)
}

func (b *routed) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	return b.router.DisposeScope(ctx, scope, threadID)
}

func TestABackendBehindARouterConforms(t *testing.T) {
	t.Parallel()
	h := sandboxtest.MemoryHarness(sandboxtest.Config{})
	memory, sibling, fail := h.New, h.Sibling, h.FailDisposals
	route := func(t sandboxtest.T, b sandbox.Backend, use *usage) sandbox.Backend {
		vouches := &fake{Backend: b.(*sandboxtest.Backend), vouches: true, use: use}
		// With ReclaimKeep a disposal that fails refuses nothing, as the rules
		// of backends want.
		r, err := router.New(router.Config{
			Backends: []sandbox.Backend{vouches}, MinIsolation: sandbox.IsolationNone,
			Reclaim: router.ReclaimConfig{Policy: router.ReclaimKeep},
		})
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		return &routed{vouches, r}
	}
	h.New = func(t sandboxtest.T) sandbox.Backend {
		return route(t, memory(t), &usage{used: make(map[string]bool)})
	}
	h.Sibling = func(t sandboxtest.T, first sandbox.Backend) sandbox.Backend {
		of := first.(*routed).fake
		return route(t, sibling(t, of.Backend), of.use)
	}
	h.FailDisposals = func(b sandbox.Backend) func() { return fail(b.(*routed).Backend) }
	sandboxtest.RunConformance(t, h)
}
