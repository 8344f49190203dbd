package router_test

import (
	"context"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// What the router itself costs for each call: the backend in memory resets a
// map, and nothing is run.
func BenchmarkWithSandbox(b *testing.B) {
	backend := &silent{sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})}
	r := newRouter(b, lenient(backend))
	for b.Loop() {
		if err := r.WithSandbox(b.Context(), mainKey, pythonSpec,
			func(context.Context, sandbox.Sandbox) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// silent hands out one sandbox and records nothing, since a record of every
// call would be what is measured.
type silent struct{ *sandboxtest.Backend }

func (b *silent) Acquire(context.Context, sandbox.Key, sandbox.Spec) (sandbox.Sandbox, error) {
	return still{}, nil
}

type still struct{ sandbox.Sandbox }

func (still) ID() string                  { return "still" }
func (still) Reset(context.Context) error { return nil }
