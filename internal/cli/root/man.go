package root

import (
	"fmt"
	"strings"

	mango "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
)

// newManCmd makes the command that writes the manual page, for packagers.
func newManCmd(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Write the manual page to standard output",
		Hidden: true,
		Args:   cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plain(cmd.Root())
			page, err := mango.NewManPage(1, cmd.Root())
			if err != nil {
				return fmt.Errorf("manual page: %w", err)
			}
			return f.Streams.WriteOut([]byte(page.Build(roff.NewDocument())))
		},
	}
}

// plain takes out of a command's texts what is not for a page: the marks round a
// flag's placeholder, and the ends of lines of a terminal. The program ends after
// this.
func plain(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	paragraphs := strings.Split(c.Long, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
		}
	}
	c.Long = strings.Join(paragraphs, "\n\n")
	for _, sub := range c.Commands() {
		plain(sub)
	}
}
