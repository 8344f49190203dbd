package helptext_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helptext"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

func tree() (root, sub *cobra.Command) {
	run := func(*cobra.Command, []string) {}
	root = &cobra.Command{Use: "tool", Short: "Do things", Long: "Do things.\n\nMore of it.\n", Example: "  tool begin-again", Run: run}
	root.PersistentFlags().Bool("quiet", false, "say nothing")
	root.Flags().String("where", "", "do it in this `FOLDER`")
	sub = &cobra.Command{Use: "begin-again-now [ARG]", Short: "Begin", Run: run}
	root.AddCommand(sub, &cobra.Command{Use: "end", Short: "End", Run: run}, &cobra.Command{Use: "hidden", Hidden: true, Run: run})
	return root, sub
}

func TestHelpShowsTextUsageCommandsAndFlags(t *testing.T) {
	root, sub := tree()
	group := &cobra.Command{Use: "group", Short: "Holds others"}
	group.AddCommand(&cobra.Command{Use: "one", Short: "Be one", Run: func(*cobra.Command, []string) {}})
	for c, want := range map[*cobra.Command]string{
		root: `Do things.

More of it.

Usage
  tool [flags]
  tool COMMAND [flags]

Examples
  tool begin-again

Commands
  begin-again-now  Begin
  end              End

Flags
      --quiet          say nothing
      --where FOLDER   do it in this FOLDER
`,
		sub: `Begin

Usage
  tool begin-again-now [ARG]

Global flags
      --quiet   say nothing
`,
		group: `Holds others

Usage
  group COMMAND [flags]

Commands
  one  Be one
`,
	} {
		s, out, _ := streams.Test("")
		if err := helptext.Write(s, c); err != nil || out.String() != want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.Name(), err, out, want)
		}
	}
}

func TestTitlesAreBoldWhereThatCanBeShown(t *testing.T) {
	root, _ := tree()
	s, out, _ := streams.Test("")
	s.Color = true
	if err := helptext.Write(s, root); err != nil || !strings.Contains(out.String(), "\n\x1b[1mUsage\x1b[0m\n  tool") {
		t.Errorf("%v, %q", err, out)
	}
}
