package codeact_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// The end of a call is the last thing that the observer hears of it.
func TestTheObserverHearsOfEveryCall(t *testing.T) {
	var heard []string
	r, err := router.New(router.Config{
		Backends: []sandbox.Backend{sandboxtest.New(sandboxtest.Config{})}, MinIsolation: sandbox.IsolationNone,
		Observer: router.ObserverFunc(func(event router.Event) {
			switch e := event.(type) {
			case router.ToolCallEnded:
				heard = append(heard, fmt.Sprintf("%s %s of %q: %q", e.Tool, e.Kind, e.Key, e.Failure))
				if e.Duration < 0 || e.Duration > time.Hour {
					t.Errorf("it took %v", e.Duration)
				}
			case router.SandboxDisposed:
				heard = append(heard, "disposed")
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	thread := "t"
	tool, err := codeact.NewTool(r, codeact.Config{
		AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: thread} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tool.Call(t.Context(), `{"code": "print \"42\""}`); err != nil {
		t.Fatal(err)
	}
	thread = ""
	if _, err := tool.Call(t.Context(), `{"code": "print \"42\""}`); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"disposed", `execute_code codeact of "s/t/a": ""`,
		fmt.Sprintf(`execute_code codeact of %q: "no_thread"`, sandbox.Key{}),
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard\n%q\nwant\n%q", heard, want)
	}
}
