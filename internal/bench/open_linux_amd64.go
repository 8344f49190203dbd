package bench

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// Open gives the benchmarks of the engine.
func Open(_ context.Context, _ string, _ func(string)) ([]Benchmark, Machine, func() error, error) {
	return nil, Machine{}, nil, &engine.Error{Kind: engine.KindUnavailable, Message: "this build has no benchmarks yet"}
}
