// Command agent is the smallest host of an agent: it runs a program as a model
// would write it, in a micro-VM of the conversation.
//
//	go run ./examples/agent
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func main() {
	if err := serve(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context) (err error) {
	backend, err := microvm.New(microvm.Config{
		Private:     true,                  // nobody else on this machine asks for these sandboxes
		Enforcement: microvm.EnforceRlimit, // the memory ceiling that needs no setup
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }() // every sandbox is gone, or the error says why not
	// Takes some seconds the first time, and says what this machine lacks.
	if err := backend.Prepare(ctx); err != nil {
		return err
	}

	r, err := router.New(router.Config{
		Backends:   []sandbox.Backend{backend},
		MinCleanup: sandbox.CleanupReset, // after each call; a new sandbox for each call would be slower
	})
	if err != nil {
		return err
	}
	tool, err := codeact.NewTool(r, codeact.Config{AgentID: "analyst", Caller: caller, Logger: slog.Default()})
	if err != nil {
		return err
	}

	// A model is told tool.Name(), tool.Description() and tool.Schema(), and calls:
	answer, err := tool.Call(ctx, `{"code": "print(6*7)"}`)
	if err != nil {
		return err
	}
	fmt.Println(answer)
	return nil
}

// caller says for whom a call is: the host knows by the context of its request,
// the model has no say in it.
func caller(context.Context) codeact.Caller {
	return codeact.Caller{Scope: "user-1", ThreadID: "conversation-1"}
}
