package codeact_test

import (
	"context"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// threadKey is where this host keeps the conversation of a request.
type threadKey struct{}

// agent stands for a framework: it knows its tools by an interface alone, such as
// tool.FuncTool of Microsoft Agent Framework for Go, which is this one.
type agent struct{ tools map[string]funcTool }

func (a agent) acts(ctx context.Context, name, args string) {
	answer, err := a.tools[name].Call(ctx, args)
	fmt.Println(answer, err)
}

// A host gives its agent the tool. Who a call is for comes from the context of
// the request, never from the model.
func ExampleTools() {
	r, err := router.New(router.Config{
		// A real host has microvm.New here; the backend in memory isolates nothing.
		Backends:     []sandbox.Backend{sandboxtest.New(sandboxtest.Config{})},
		MinIsolation: sandbox.IsolationNone,
		MinCleanup:   sandbox.CleanupReset, // keep sandboxes warm
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tools, err := codeact.Tools(r, codeact.Config{
		AgentID: "analyst",
		Caller: func(ctx context.Context) codeact.Caller {
			thread, _ := ctx.Value(threadKey{}).(string)
			return codeact.Caller{Scope: "user-1", ThreadID: thread}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := agent{tools: map[string]funcTool{}}
	for _, tool := range tools {
		a.tools[tool.Name()] = tool
	}

	ctx := context.WithValue(context.Background(), threadKey{}, "thread-1")
	a.acts(ctx, "execute_code", `{"code": "print \"42\""}`)
	a.acts(context.Background(), "execute_code", `{"code": "print \"42\""}`)
	// Output:
	// stdout:
	// 42 <nil>
	// Error: no active thread context — execute_code must be called from within a thread <nil>
}
