//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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
	if err == nil {
		err = sound(file)
	}
	switch {
	case err == nil:
		return file, nil
	case !errors.Is(err, image.ErrNotFound):
		return "", unavailable("the image "+name+" cannot be used", err)
	case strings.ContainsRune(name, '/'):
		return "", unavailable("", err)
	}
	if _, statErr := os.Stat(name); statErr == nil {
		return "", unavailable("", fmt.Errorf("%w; a file is named with its folder: ./%s", err, name))
	}
	return "", unavailable("", fmt.Errorf("%w; '%s image ls' lists the images that there are", err, Program))
}

// sound says whether a file is an image, as far as its head tells.
func sound(file string) error {
	im, err := image.Open(file)
	if err != nil {
		return err
	}
	return im.Close()
}

func unavailable(detail string, err error) error {
	class := sandbox.ErrUnavailable
	if errors.Is(err, context.Canceled) {
		class = sandbox.ErrCanceled
	}
	return &sandbox.OpError{Op: "acquire", Class: class, Detail: detail, Cause: err}
}
