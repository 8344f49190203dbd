// Package image is the group of commands about captured Pythons.
package image

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
)

// Store is what the commands need of *image.Store.
type Store interface {
	Build(ctx context.Context, o image.Options, name string) (image.Info, error)
	List() ([]image.Info, error)
	Show(what string) (image.Info, error)
	Remove(what string) error
}

// NewCmd makes the group of commands.
func NewCmd(f *cli.Factory) *cobra.Command {
	return newCmd(f, func(dir string) (Store, error) { return image.OpenStore(dir) })
}

func newCmd(f *cli.Factory, open func(dir string) (Store, error)) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "image",
		Short: "Capture Pythons and manage what was captured",
		Long: `Capture Pythons and manage what was captured.

An image holds an interpreter, the libraries it needs, its standard library and,
for a virtual environment, its packages. Nothing else of this machine is in it.
The image called "` + image.DefaultName + `" is the one that is used when none is named.`,
	})
	c := &common{factory: f, open: open}
	cmd.AddCommand(newBuildCmd(c), newListCmd(c), newShowCmd(c), newRemoveCmd(c))
	return cmd
}

// common is what the four commands are made from.
type common struct {
	factory *cli.Factory
	open    func(dir string) (Store, error)
}

func (c *common) store() (Store, error) {
	dir, err := c.factory.ImageDir()
	if err != nil {
		return nil, err
	}
	return c.open(dir)
}
