package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object that is being written: keys in the order in which
// they were added, and ASCII only, byte for byte as Python's json module writes
// it. That also keeps foreign text from a terminal.
type object struct{ body []byte }

func (o *object) raw(key string, value []byte) {
	if o.body == nil {
		o.body = []byte{'{'}
	} else {
		o.body = append(o.body, ',')
	}
	o.body = append(append(appendText(o.body, key), ':'), value...)
}

func (o *object) text(key, value string) { o.raw(key, appendText(nil, value)) }

// textOrNull adds null for an empty text.
func (o *object) textOrNull(key, value string) {
	if value == "" {
		o.raw(key, []byte("null"))
		return
	}
	o.text(key, value)
}

func (o *object) number(key string, value int) { o.raw(key, strconv.AppendInt(nil, int64(value), 10)) }

// numberOrNull adds null for zero.
func (o *object) numberOrNull(key string, value int) {
	if value == 0 {
		o.raw(key, []byte("null"))
		return
	}
	o.number(key, value)
}

func (o *object) truth(key string, value bool) { o.raw(key, strconv.AppendBool(nil, value)) }

func (o *object) bytes() []byte { return append(o.body, '}') }

// array joins values.
func array(values [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(values, []byte{','})...), ']')
}

// encodeAll encodes values that know how: those of package control.
func encodeAll[T json.Marshaler](values []T) ([]byte, error) {
	all := make([][]byte, len(values))
	for i, value := range values {
		encoded, err := value.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		all[i] = encoded
	}
	return array(all), nil
}

// appendText appends a JSON string in ASCII. What is not UTF-8 becomes the
// replacement character; DEL is escaped too, which Python leaves as it is and
// a terminal might obey.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}

// appendSeconds appends a moment as seconds since 1970, with a decimal point.
// Precondition: the moment is one of a clock, so no exponent is needed.
func appendSeconds(b []byte, t time.Time) []byte {
	seconds := float64(t.Unix()) + float64(t.Nanosecond())/1e9
	text := strconv.FormatFloat(seconds, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return append(b, text...)
}

// format is how a value is written.
type format int

const (
	formatTable format = iota
	formatWide
	formatJSON      // indented by two
	formatJSONLines // one line for a value
)

func (f format) isJSON() bool { return f == formatJSON || f == formatJSONLines }

// writeJSON writes one compact value in the format.
func (f *Factory) writeJSON(how format, value []byte) error {
	var out bytes.Buffer
	if how == formatJSON {
		if err := json.Indent(&out, value, "", "  "); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	} else {
		out.Write(value)
	}
	out.WriteByte('\n')
	return f.Streams.WriteOut(plain(out.Bytes()))
}

// plain escapes DEL, which other encoders leave; it can only stand inside of
// strings.
func plain(p []byte) []byte {
	if !bytes.ContainsRune(p, utf8.RuneSelf-1) {
		return p
	}
	return bytes.ReplaceAll(p, []byte{0x7f}, []byte(`\u007f`))
}
