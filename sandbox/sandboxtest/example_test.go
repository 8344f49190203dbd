package sandboxtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// A test of what uses backends tells the one in memory what shall happen.
func ExampleBackend() {
	backend := sandboxtest.New(sandboxtest.Config{})
	backend.Script(sandboxtest.OpRunCode, sandboxtest.Step{
		Err: &sandbox.OpError{Op: "run_code", Class: sandbox.ErrMemory},
	})

	ctx := context.Background()
	key := sandbox.Key{Scope: "user-1", ThreadID: "thread-1", AgentID: "analyst"}
	s, err := backend.Acquire(ctx, key, sandbox.Spec{Kind: "python"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.RunCode(ctx, `print "never printed"`, time.Second)
	fmt.Println(err, "- usable:", sandbox.Usable(err))
	for _, call := range backend.Calls() {
		fmt.Println(call.Op, call.Key)
	}
	// Output:
	// run_code: out of memory - usable: false
	// acquire user-1/thread-1/analyst
	// run_code user-1/thread-1/analyst
}

// A backend passes the suite from a test of its own package.
func ExampleRunConformance() {
	_ = func(t *testing.T) {
		sandboxtest.RunConformance(t, sandboxtest.Harness{
			New: func(sandboxtest.T) sandbox.Backend { return sandboxtest.New(sandboxtest.Config{}) },
			Spec: sandbox.Spec{
				Kind:     "python",
				Requires: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot),
			},
			Programs:  sandboxtest.CommandPrograms(), // PythonPrograms for Python
			MaxOutput: sandboxtest.DefaultMaxOutput,
		})
	}
}
