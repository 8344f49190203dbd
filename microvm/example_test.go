package microvm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// A host that keeps spare sandboxes and gives each conversation one of its own.
func Example() {
	backend, err := microvm.New(microvm.Config{Pool: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()

	ctx := context.Background()
	key := sandbox.Key{Scope: "tenant", ThreadID: "conversation", AgentID: "analyst"}
	spec := sandbox.Spec{Kind: "code", Requires: sandbox.SetOf(sandbox.CapRunCode)}
	s, err := backend.Acquire(ctx, key, spec)
	if err != nil {
		fmt.Println(err) // says what is missing and what mends it
		return
	}
	result, err := s.RunCode(ctx, "print(6*7)", 10*time.Second)
	if err != nil && !sandbox.Usable(err) {
		fmt.Println("the next acquire gives another sandbox:", err)
	}
	fmt.Printf("%s", result.Stdout)

	if purge := backend.DisposeScope(ctx, "tenant", "conversation"); purge.Err() != nil {
		fmt.Println("not confirmed gone:", purge.Err())
	}
}

// Everything that is wrong with a configuration is said at once.
func ExampleNew() {
	_, err := microvm.New(microvm.Config{Memory: 1 << 20, Pool: 1000})
	fmt.Println(err)
	// Output:
	// invalid: config.memory: asked for 1048576 bytes, allowed is 67108864 to 16106127360, decided by package microvm
	// invalid: config.pool: asked for 1000 spare workers, allowed is 0 to 128, decided by package microvm
}
