package router_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// A host runs a program for an agent: who it is for comes from the host's own
// context, and whatever the program leaves is gone afterwards.
func ExampleRouter_WithSandbox() {
	r, err := router.New(router.Config{
		Backends:     []sandbox.Backend{sandboxtest.New(sandboxtest.Config{})},
		MinIsolation: sandbox.IsolationNone, // the backend in memory isolates nothing
		MinCleanup:   sandbox.CleanupReset,  // keep sandboxes warm
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := sandbox.Key{Scope: "user-1", ThreadID: "thread-1", AgentID: "analyst"}
	spec := sandbox.Spec{Kind: "python", Requires: sandbox.SetOf(sandbox.CapRunCode)}
	err = r.WithSandbox(context.Background(), key, spec, func(ctx context.Context, s sandbox.Sandbox) error {
		result, err := s.RunCode(ctx, `print "42"`, 0)
		fmt.Println(result.StdoutText())
		return err
	})
	fmt.Println(err)

	purge := r.DisposeScope(context.Background(), key.Scope, key.ThreadID)
	fmt.Println(purge.Disposed, "disposed")
	// Output:
	// 42
	// <nil>
	// 1 disposed
}

// A host that asks for more than it has is told so at once: a refusal says what was asked, what is allowed and who decides.
func ExampleNew() {
	_, err := router.New(router.Config{
		Backends: []sandbox.Backend{sandboxtest.New(sandboxtest.Config{Name: "memory"})},
	})
	fmt.Println(errors.Is(err, sandbox.ErrNotPermitted))
	fmt.Println(err)
	// Output:
	// true
	// isolation not permitted: the isolation of backend memory: asked for none, allowed is at least microvm, decided by the host's policy, by router.Config.MinIsolation
}
