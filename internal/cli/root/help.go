package root

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// help writes the help of c. It is our own rather than a styling library's: the
// one at hand asks the terminal for its background colour and waits two seconds
// for terminals that do not answer.
func help(s *streams.Streams, c *cobra.Command) {
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
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", c.CommandPath())
	}
	if c.Example != "" {
		title("Examples")
		b.WriteString(c.Example + "\n")
	}
	if c.HasAvailableSubCommands() {
		title("Commands")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", c.NamePadding(), sub.Name(), sub.Short)
			}
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
	// Help has no way to report a failure; a closed pipe is none anyway.
	_ = s.WriteOut([]byte(b.String()))
}
