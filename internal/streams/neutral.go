package streams

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Neutralizer passes text on with everything made visible that a terminal
// would obey: C0 controls as ^X (but for newline, tab and carriage return), C1
// controls and bidirectional overrides as \uXXXX, and bytes that are not UTF-8
// as \xXX (among them the eight-bit C1 controls, which some terminals obey).
//
// It may be written to in any chunks: a character split over two writes is
// held back until it is whole. Close lets go of what is held.
type Neutralizer struct {
	w    io.Writer
	held [utf8.UTFMax]byte // the start of a character, not yet whole
	n    int
	buf  []byte // reused from write to write
}

// NewNeutralizer makes a Neutralizer that writes to w.
func NewNeutralizer(w io.Writer) *Neutralizer { return &Neutralizer{w: w} }

// Write takes all of p. It returns the error of the underlying writer, if any,
// and then n is zero: how much of p came through cannot be told.
func (z *Neutralizer) Write(p []byte) (int, error) {
	total := len(p)
	z.buf = z.buf[:0]
	for z.n > 0 && len(p) > 0 {
		z.held[z.n] = p[0]
		z.n++
		p = p[1:]
		z.release()
	}
	for len(p) > 0 {
		if !utf8.FullRune(p) {
			z.n = copy(z.held[:], p)
			break
		}
		var size int
		z.buf, size = appendVisible(z.buf, p)
		p = p[size:]
	}
	if len(z.buf) == 0 {
		return total, nil
	}
	if _, err := z.w.Write(z.buf); err != nil {
		return 0, err
	}
	return total, nil
}

// release moves whole characters out of the held bytes. When a byte shows that
// those before it were none, they come out as bytes and it may start a
// character of its own.
func (z *Neutralizer) release() {
	held := z.held[:z.n]
	for utf8.FullRune(held) {
		var size int
		z.buf, size = appendVisible(z.buf, held)
		held = held[size:]
	}
	z.n = copy(z.held[:], held)
}

// Close writes out what is held back. It does not close the underlying writer.
func (z *Neutralizer) Close() error {
	if z.n == 0 {
		return nil
	}
	z.buf = z.buf[:0]
	for _, b := range z.held[:z.n] {
		z.buf = fmt.Appendf(z.buf, `\x%02x`, b)
	}
	z.n = 0
	_, err := z.w.Write(z.buf)
	return err
}

// appendVisible appends the first character of p in its visible form and says
// how many bytes of p it took. p starts with a full rune.
func appendVisible(dst, p []byte) ([]byte, int) {
	r, size := utf8.DecodeRune(p)
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Appendf(dst, `\x%02x`, p[0]), 1
	case r == '\n', r == '\t', r == '\r':
		return append(dst, byte(r)), 1
	case r < 0x20, r == 0x7f:
		return append(dst, '^', byte(r)^0x40), 1
	case Obeyed(r):
		return fmt.Appendf(dst, `\u%04x`, r), size
	}
	return append(dst, p[:size]...), size
}

// Obeyed says whether r, from DEL on, is something that a terminal obeys
// rather than shows: DEL, the C1 controls, and the embeddings, overrides and
// isolates that reorder text (Unicode Standard Annex 9).
func Obeyed(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Visible gives s with everything made visible that a terminal would obey.
func Visible(s string) string {
	out := make([]byte, 0, len(s))
	for p := []byte(s); len(p) > 0; {
		var size int
		out, size = appendVisible(out, p)
		p = p[size:]
	}
	return string(out)
}

// OneLine gives s as a single line that is safe to show on a terminal:
// neutralised, with line breaks and tabs turned to spaces.
func OneLine(s string) string {
	return Visible(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(strings.TrimSpace(s)))
}
