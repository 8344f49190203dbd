package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// help writes the help of c.
func help(s *streams.Streams, c *cobra.Command) error {
	var b strings.Builder
	title := func(word string) {
		if s.Color {
			word = "\x1b[1m" + word + "\x1b[0m"
		}
		fmt.Fprintf(&b, "\n%s\n", word)
	}
	text := c.Long
	if text == "" {
		text = c.Short
	}
	b.WriteString(strings.TrimSpace(text) + "\n")

	title("Usage")
	fmt.Fprintf(&b, "  %s\n", c.UseLine())
	if c.HasAvailableSubCommands() && c.Runnable() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", c.CommandPath())
	}
	if c.Example != "" {
		title("Examples")
		b.WriteString(c.Example + "\n")
	}
	if c.HasAvailableSubCommands() {
		title("Commands")
		var rows [][]string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				rows = append(rows, []string{"", sub.Name(), sub.Short})
			}
		}
		b.WriteString(view.Table(make([]string, 3), rows, false, nil))
	}
	if usages := c.LocalFlags().FlagUsagesWrapped(s.Width()); usages != "" {
		title("Flags")
		b.WriteString(usages)
	}
	return s.WriteOut([]byte(b.String()))
}

// newHelpCmd is "mst help [COMMAND]".
func newHelpCmd(s *streams.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, sub := range cmd.Root().Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("there is no command %q", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return help(s, found)
		},
	}
}
