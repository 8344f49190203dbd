//go:build !(linux && amd64)

package bench

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Open refuses: there is no engine for this system.
func Open(_ context.Context, _ Config) ([]Benchmark, Machine, func() error, error) {
	return nil, Machine{}, nil, &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "sandboxes need Linux on x86-64"}
}
