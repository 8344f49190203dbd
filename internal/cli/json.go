package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// WriteJSON writes v to standard output as one line. What a terminal would
// obey is escaped, which JSON leaves open for the characters from U+007F to
// U+009F.
func WriteJSON(s *streams.Streams, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return s.WriteOut(escapeControls(buf.Bytes()))
}

// escapeControls escapes DEL, the C1 controls and the characters that reorder
// text. All of them can only stand inside strings.
func escapeControls(p []byte) []byte {
	out := make([]byte, 0, len(p))
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if streams.Obeyed(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, p[:size]...)
		}
		p = p[size:]
	}
	return out
}
