//go:build !(linux && amd64)

package bench

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// Open refuses: there is no engine for this system.
func Open(_ context.Context, _ Config) ([]Benchmark, Machine, func() error, error) {
	return nil, Machine{}, nil, &engine.Error{Kind: engine.KindUnavailable, Message: "sandboxes need Linux on x86-64"}
}
