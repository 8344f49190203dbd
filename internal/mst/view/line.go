package view

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// Name gives a foreign name as one line that is safe to show: what a terminal
// would obey and what nobody can see is escaped as in Go's strings. Every
// backslash is doubled, so that no two names have the same line, whatever is in
// them: somebody who is about to remove a sandbox must not take it for another.
func Name(s string) string {
	if isPlain(s) && !strings.Contains(s, `\`) && strings.Trim(s, " ") == s {
		return s // nearly all names are
	}
	first, last := edges(s)
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == ' ' && (i < first || i >= last):
			writeEscape(&b, r)
		case r == ' ' || !blank(r):
			b.WriteRune(r)
		default:
			writeEscape(&b, r)
		}
	}
	return b.String()
}

// edges is where the text within leading and trailing spaces begins and ends.
func edges(s string) (first, last int) {
	return len(s) - len(strings.TrimLeft(s, " ")), len(strings.TrimRight(s, " "))
}

// writeEscape writes a character by its number, with four digits or with eight,
// so that what follows does not belong to it.
func writeEscape(b *strings.Builder, r rune) {
	if r > 0xffff {
		fmt.Fprintf(b, `\U%08x`, r)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// blank says whether r takes no place of its own or an empty one, or whether
// nobody can say what it looks like: spaces but U+0020, format characters,
// variation selectors, fillers, private and unassigned characters.
func blank(r rune) bool {
	return !unicode.IsPrint(r) || invisible(r) || slices.Contains(empty, r)
}

// empty are the characters that Unicode calls letters, marks or symbols and
// whose look is empty: braille without dots, the Khitan filler, and the musical
// null note head.
var empty = []rune{0x2800, 0x16fe4, 0x1d159}

// Sentence gives a foreign message as one line that is safe to show. Unlike a
// name it is only read: spaces around it are cut off, those within are spaces,
// controls are written as ^X, and backslashes stay as they are.
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
		writeEscape(b, r)
		return
	}
	b.WriteString(streams.Visible(string(r)))
}

// invisible says whether r takes no place of its own, or an empty one, though it
// is no space: format characters, variation selectors, fillers.
func invisible(r rune) bool {
	return r >= 0x80 && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// IsWord says whether a text has letters of ASCII, digits and . _ : - only, and
// at least one: it can be pasted into a shell, or be completed there, and
// nothing in it is obeyed.
func IsWord(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return s != ""
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
