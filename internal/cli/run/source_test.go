package run

import (
	"strings"
	"testing"
)

func TestTheSourcesNameIsShortAndSafe(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "<string>",
		"-":                         "<stdin>",
		"a/b/prog.py":               "prog.py",
		"a\nb\x1b.py":               "a b^[.py",
		"\xff.py":                   `\xff.py`,
		strings.Repeat("\xff", 100): strings.Repeat(`\xff`, 63) + `\xf`,
		strings.Repeat("ü", 200):    strings.Repeat("ü", 127) + "?",
	} {
		if got := (Source{File: in}).name(); got != want {
			t.Errorf("name of %q is %q, want %q", in, got, want)
		}
	}
}
