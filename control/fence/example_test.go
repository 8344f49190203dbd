package fence_test

import (
	"context"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// A host whose calls are not those of a router enters the fence itself.
func ExampleFence() {
	var calls fence.Fence
	ctx, key := context.Background(), sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}
	inside, leave, err := calls.Enter(ctx, key)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { // the call
		defer leave()
		<-inside.Done() // a program that runs under this context
		fmt.Println("the call:", context.Cause(inside))
	}()

	// An operator, by control.HostConfig.Quiesce.
	release, err := calls.Hold(ctx, key)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()
	fmt.Println("the operator: nothing runs, and nothing begins")
	// Output:
	// the call: stopped by an operator
	// the operator: nothing runs, and nothing begins
}
