// Package helptext writes the help of commands, the same for both programs. It is
// our own rather than a styling library's: the one at hand asks the terminal for
// its background colour and waits two seconds for terminals that do not answer.
package helptext

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/exits"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Write writes the help of c to standard output.
func Write(s *streams.Streams, c *cobra.Command) error {
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
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", c.CommandPath())
	}
	if c.Example != "" {
		title("Examples")
		b.WriteString(c.Example + "\n")
	}
	if c.HasAvailableSubCommands() {
		title("Commands")
		commands := slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool { return !sub.IsAvailableCommand() })
		width := 0
		for _, sub := range commands {
			width = max(width, len(sub.Name()))
		}
		for _, sub := range commands {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, sub.Name(), sub.Short)
		}
	}
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"Flags", c.LocalFlags()}, {"Global flags", c.InheritedFlags()}} {
		if usages := set.flags.FlagUsagesWrapped(s.Width()); usages != "" {
			title(set.title)
			b.WriteString(usages)
		}
	}
	return s.WriteOut([]byte(b.String()))
}

// NewCmd makes the command help [COMMAND]. A command that there is not is an
// *exits.UsageError.
func NewCmd(s *streams.Streams) *cobra.Command {
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
				return exits.Usagef("there is no command %q", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return Write(s, found)
		},
	}
}
