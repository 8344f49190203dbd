//go:build !(linux && amd64)

package cli

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// Open refuses: there is no engine for this system.
func Open(_ context.Context, _ Options) (Machine, Info, error) {
	return nil, Info{}, &engine.Error{Kind: engine.KindUnavailable, Message: "sandboxes need Linux on x86-64"}
}
