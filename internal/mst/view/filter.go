package view

import (
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// Selection keeps the sandboxes whose properties are exactly these.
type Selection struct {
	// Exact has the wanted values by the names of their columns, an empty one
	// too.
	Exact map[string]string
	// OlderThan is the least age of the last signal; zero keeps all.
	OlderThan time.Duration
}

// Keeps says whether a sandbox is selected.
func (s Selection) Keeps(r *control.Record, now time.Time) bool {
	for name, want := range s.Exact {
		c, err := ColumnNamed(name)
		if err != nil || c.raw(r, now) != want {
			return false
		}
	}
	return s.OlderThan == 0 || r.LastActivityAt.Age(now) >= s.OlderThan
}

// Query is what an operator types to narrow a table: words that must all be
// found, each anywhere in a sandbox's properties or, as field:value, in one of
// them; a word that starts with an exclamation mark must not be found. Letters
// match in either case.
type Query []term

type term struct {
	column *Column // nil: any
	text   string
	not    bool
}

// searched are the properties that a word without a field is looked for in:
// those that do not change by themselves.
var searched = []string{"source", "backend", "state", "key", "kind", "process", "contract", "egress", "instance"}

// ParseQuery reads a query. Every text is one: what is no column's name before
// a colon belongs to the word.
func ParseQuery(text string) Query {
	var query Query
	for _, word := range strings.Fields(strings.ToLower(text)) {
		var t term
		t.text, t.not = strings.CutPrefix(word, "!")
		if field, value, found := strings.Cut(t.text, ":"); found {
			if c, err := ColumnNamed(field); err == nil {
				t.column, t.text = &c, value
			}
		}
		if t.text != "" {
			query = append(query, t)
		}
	}
	return query
}

// Keeps says whether a sandbox matches all words.
func (q Query) Keeps(r *control.Record, now time.Time) bool {
	for _, t := range q {
		if t.found(r, now) == t.not {
			return false
		}
	}
	return true
}

func (t term) found(r *control.Record, now time.Time) bool {
	has := func(c *Column) bool { return strings.Contains(strings.ToLower(c.Cell(r, now)), t.text) }
	if t.column != nil {
		return has(t.column)
	}
	for _, name := range searched {
		if c, err := ColumnNamed(name); err == nil && has(&c) {
			return true
		}
	}
	return false
}
