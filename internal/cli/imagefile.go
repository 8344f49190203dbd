//go:build unix

package cli

import (
	"context"
	"errors"

	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// ImageFile finds the image that name stands for in the store at dir; empty
// means this machine's own Python, which is captured if need be. Errors are
// *sandbox.OpError.
func ImageFile(ctx context.Context, dir, name string, progress func(string)) (string, error) {
	store, err := image.OpenStore(dir)
	if err != nil {
		return "", unavailable("no image store", err)
	}
	if name == "" {
		file, _, err := store.Default(ctx, progress)
		if err != nil {
			return "", unavailable("no Python for the sandbox", err)
		}
		return file, nil
	}
	file, err := store.Resolve(name)
	if err != nil {
		return "", unavailable("no image", err)
	}
	return file, nil
}

func unavailable(detail string, err error) error {
	class := sandbox.ErrUnavailable
	if errors.Is(err, context.Canceled) {
		class = sandbox.ErrCanceled
	}
	return &sandbox.OpError{Op: "acquire", Class: class, Detail: detail, Cause: err}
}
