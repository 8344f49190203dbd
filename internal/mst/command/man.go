package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCmd makes the command that writes the manual page, for packagers.
func newManCmd(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Write the manual page to standard output",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.Streams.WriteOut([]byte(manual(cmd.Root())))
		},
	}
}

// manual is the manual page mst(1) in roff, with all commands on it. The
// requests are those of man(7).
func manual(root *cobra.Command) string {
	var m page
	m.request("TH", strings.ToUpper(Program), "1", "", Program+" "+Version(), "User Commands")
	m.request("SH", "NAME")
	m.text(Program + ` \- ` + escapeRoff(root.Short))
	m.request("SH", "SYNOPSIS")
	m.text(`\fB` + Program + `\fR [\fIoptions\fR]`)
	m.request("br")
	m.text(`\fB` + Program + `\fR \fICOMMAND\fR [\fIoptions\fR]`)
	m.request("SH", "DESCRIPTION")
	m.paragraphs(root.Long)
	m.request("SH", "OPTIONS")
	m.text("These stand before a command or after it.")
	m.flags(root)
	m.request("SH", "COMMANDS")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			m.command(c)
		}
	}
	m.request("SH", "EXIT STATUS")
	for _, e := range exitMeanings {
		m.request("TP")
		m.text(fmt.Sprintf(`\fB%d\fR`, e.status))
		m.text(escapeRoff(e.meaning))
	}
	m.request("SH", "ENVIRONMENT")
	for _, v := range environment {
		m.request("TP")
		m.text(`\fB` + escapeRoff(v.name) + `\fR`)
		m.text(escapeRoff(v.meaning))
	}
	m.request("SH", "EXAMPLES")
	m.example(root.Example)
	return m.String()
}

// page is a manual page that grows.
type page struct{ strings.Builder }

// request writes a request, with its arguments in quotes.
func (m *page) request(name string, args ...string) {
	m.WriteString("." + name)
	for _, arg := range args {
		m.WriteString(` "` + strings.ReplaceAll(escapeRoff(arg), `"`, `\(dq`) + `"`)
	}
	m.WriteByte('\n')
}

// text writes a line of text that is escaped already.
func (m *page) text(line string) { m.WriteString(line + "\n") }

// paragraphs writes text whose paragraphs are apart by empty lines.
func (m *page) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			m.request("PP")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			m.text(escapeRoff(line))
		}
	}
}

// example writes lines as they are.
func (m *page) example(text string) {
	m.request("PP")
	m.request("nf")
	for line := range strings.SplitSeq(text, "\n") {
		m.text(escapeRoff(strings.TrimPrefix(line, "  ")))
	}
	m.request("fi")
}

func (m *page) command(c *cobra.Command) {
	m.request("SS", strings.Replace(strings.TrimPrefix(c.UseLine(), Program+" "), "[flags]", "[options]", 1))
	if c.Long != "" && !c.HasAvailableSubCommands() {
		m.paragraphs(c.Long)
	} else {
		m.text(escapeRoff(c.Short) + ".")
	}
	m.flags(c)
	if c.Example != "" {
		m.example(c.Example)
	}
}

func (m *page) flags(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" || c.HasParent() && c.Root().Flags().Lookup(flag.Name) != nil {
			return // the last ones are on the page already
		}
		value, usage := pflag.UnquoteUsage(flag)
		m.request("TP")
		head := `\fB` + escapeRoff("--"+flag.Name) + `\fR`
		if flag.Shorthand != "" {
			head = `\fB` + escapeRoff("-"+flag.Shorthand) + `\fR, ` + head
		}
		if value != "" {
			head += ` \fI` + escapeRoff(value) + `\fR`
		}
		m.text(head)
		m.text(escapeRoff(usage))
	})
}

// escapeRoff spells text so that roff shows it as it is: backslashes are the
// escape character, a dash would become a hyphen that cannot be pasted into a
// shell, and a dot or quote at the start of a line would be a request.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
