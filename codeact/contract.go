package codeact

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
)

// contract is the execution contract of programs that were written under these
// instructions, as the Python original of that shape makes it: the SHA-256 of the
// JSON text [instructions, null], and since 0.25 [instructions, null, true]. The
// others are the folder of a file channel, which this tool has not, and whether
// calls have folders of their own. Equal instructions give equal contracts in
// both languages.
func contract(instructions string, shape Shape) string {
	rest := ", null, true]"
	if shape == ShapePlain {
		rest = ", null]"
	}
	sum := sha256.Sum256([]byte("[" + asciiJSON(instructions) + rest))
	return "codeact:run_code:" + hex.EncodeToString(sum[:])
}

// asciiJSON is a text as Python's json.dumps writes it. Package encoding/json
// escapes other characters.
func asciiJSON(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteByte('\\')
			b.WriteByte("btn?fr"[r-'\b'])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
