package command

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/doctest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

var update = flag.Bool("update", false, "write the tables of docs/mst.md anew")

func TestTheDocumentedTablesAreTheProgramsOwn(t *testing.T) {
	const path = "../../../docs/mst.md"
	table := func(name, head string, rows func(row func(first, second string))) {
		var b strings.Builder
		b.WriteString(head + "\n| --- | --- |\n")
		rows(func(first, second string) { fmt.Fprintf(&b, "| %s | %s |\n", first, second) })
		doctest.Block(t, path, name, b.String(), *update)
	}
	table("commands", "| command | what it does |", func(row func(string, string)) {
		s, _, _ := streams.Test("")
		for _, c := range NewCmd(&Factory{Streams: s}).Commands() {
			if c.IsAvailableCommand() {
				use, _, _ := strings.Cut(c.UseLine(), " [flags]")
				row("`"+use+"`", c.Short)
			}
		}
	})
	table("exits", "| status | meaning |", func(row func(string, string)) {
		for _, e := range exitMeanings {
			row(fmt.Sprint(e.status), e.meaning)
		}
	})
	var b strings.Builder
	b.WriteString("| what | Python 0.1.0 | here |\n| --- | --- | --- |\n")
	for _, d := range differences {
		if !d.process {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", d.what, d.theirs, d.ours)
		}
	}
	doctest.Block(t, path, "differences", b.String(), *update)
	table("environment", "| variable | meaning |", func(row func(string, string)) {
		for _, v := range environment {
			row("`"+v.name+"`", v.meaning)
		}
	})
}
