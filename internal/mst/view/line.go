package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Name gives a foreign name as one line that is safe to show: what a terminal
// would obey and what nobody can see is made visible. Two names that differ in
// an invisible character must not look the same to somebody who is about to
// remove one of them; and terminals disagree about the width of such characters.
func Name(s string) string {
	if isPlain(s) && strings.TrimSpace(s) == s {
		return s // nearly all names are
	}
	first, last := edges(s)
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteString("^" + string(r^0x40))
		case unicode.IsSpace(r) && (i < first || i >= last):
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			writeVisible(&b, r)
		}
	}
	return b.String()
}

// edges is where the text within leading and trailing spaces begins and ends.
func edges(s string) (first, last int) {
	return len(s) - len(strings.TrimLeftFunc(s, unicode.IsSpace)), len(strings.TrimRightFunc(s, unicode.IsSpace))
}

// Sentence gives a foreign message as one line that is safe to show: as Name
// does, but spaces around it are cut off and those within are spaces.
func Sentence(s string) string {
	line := streams.OneLine(s)
	if isPlain(line) {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		writeVisible(&b, r)
	}
	return b.String()
}

func writeVisible(b *strings.Builder, r rune) {
	if invisible(r) {
		fmt.Fprintf(b, `\u%04x`, r)
		return
	}
	b.WriteString(streams.Visible(string(r)))
}

// invisible says whether r takes no place of its own, or an empty one, though it
// is no space: format characters, variation selectors, fillers.
func invisible(r rune) bool {
	return r >= 0x80 && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// isPlain says whether s has printable ASCII only: a byte is a column then.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
