package cli

import (
	"context"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// Open opens a machine of the engine over the user's cache.
func Open(_ context.Context, _ Options) (Machine, Info, error) {
	return nil, Info{}, &engine.Error{Kind: engine.KindUnavailable, Message: "this build has no engine"}
}
