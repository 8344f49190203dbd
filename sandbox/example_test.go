package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// A host acquires a sandbox for a conversation, runs programs in it, resets it
// between tasks and disposes of it at the end.
func Example() {
	// The one of package microvm in earnest; this one understands a few
	// commands and isolates nothing.
	var backend sandbox.Backend = sandboxtest.New(sandboxtest.Config{})
	defer func() { _ = backend.Close() }()

	ctx := context.Background()
	key := sandbox.Key{Scope: "user-1", ThreadID: "thread-1", AgentID: "analyst"}
	spec := sandbox.Spec{
		Kind:     "python",
		Requires: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot),
	}
	s, err := backend.Acquire(ctx, key, spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := s.RunCode(ctx, `print "42\n"`, 5*time.Second)
	fmt.Printf("%q %d %v\n", result.StdoutText(), result.ExitCode, err)

	_, err = s.RunCode(ctx, "forever", time.Millisecond)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), "- usable:", sandbox.Usable(err))

	fmt.Println(s.Reset(ctx), backend.Dispose(ctx, key, sandbox.DisposeOptions{}))
	// Output:
	// "42\n" 0 <nil>
	// true - usable: true
	// <nil> <nil>
}

// Refusals say what was asked, what is allowed and who decides.
func ExampleSpec_Validate() {
	spec := sandbox.Spec{
		Egress:      sandbox.EgressClosed,
		EgressAllow: []sandbox.EgressRule{{Host: sandbox.MustHost("API.example")}},
	}
	fmt.Println(spec.Validate())
	// Output:
	// invalid: spec.kind: asked for "", allowed is a name that is not blank, decided by the sandbox protocol
	// invalid: spec.egress_allow: asked for 1 rules with egress closed, allowed is rules with egress allowlist only, decided by the sandbox protocol
}
