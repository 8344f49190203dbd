package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// ready refuses what can be known not to work before a sandbox is started. The
// first one starts beside the client's first words, and who would hear of its
// failure is a model. Errors are *sandbox.OpError.
func (o *Options) ready() error {
	if err := o.imageReady(); err != nil {
		return err
	}
	for _, offer := range ceiling.Probe() {
		if string(offer.Enforcement) == o.Limits.Value && offer.Err != nil {
			return notReady("--limits "+o.Limits.Value+" cannot be had", offer.Err)
		}
	}
	if o.Engine.Value == host.Auto {
		return nil // the router asks what it reaches
	}
	p, _, err := host.Open(o.Engine.Value)
	if err != nil {
		return notReady("--engine "+o.Engine.Value+" cannot be had", err)
	}
	_ = p.Close() // nothing was made of it
	return nil
}

func notReady(detail string, err error) error {
	return cli.StartFailure(&sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: detail, Cause: err})
}

// maxPath bounds what is told of the PATH, in characters.
const maxPath = 200

// imageReady looks for the image, or for what can become one.
func (o *Options) imageReady() error {
	dir, err := o.Factory.ImageDir()
	if err != nil {
		return err
	}
	if o.Image != "" {
		_, err := cli.ImageFile(context.Background(), dir, o.Image, nil)
		return err
	}
	store, err := image.OpenStore(dir)
	if err != nil {
		return notReady("no image store", err)
	}
	if _, err := store.Resolve(image.DefaultName); !errors.Is(err, image.ErrNotFound) {
		return nil
	}
	if _, err := exec.LookPath("python3"); err != nil {
		// A desktop starts its applications with another PATH than a shell.
		return notReady(fmt.Sprintf("there is no python3 on the PATH that this process was given, %.*q: '%s image build' in your shell captures one for it", maxPath, os.Getenv("PATH"), cli.Program), image.ErrNoPython)
	}
	return nil
}
