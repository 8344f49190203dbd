package root

import (
	"fmt"

	mango "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
)

// newManCmd makes the command that writes the manual page, for packagers.
func newManCmd(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Write the manual page to standard output",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := mango.NewManPage(1, cmd.Root())
			if err != nil {
				return fmt.Errorf("manual page: %w", err)
			}
			return f.Streams.WriteOut([]byte(page.Build(roff.NewDocument())))
		},
	}
}
