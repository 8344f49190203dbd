// Package pyjson writes JSON byte for byte as Python's json module does with
// compact separators: keys in the order in which they were added, ASCII only,
// floats with a decimal point.
//
// The Python originals and this module are read by the same consoles and
// scripts, and hash the same texts. Package encoding/json escapes other
// characters and writes 1.0 as 1. That only printable ASCII is written also
// keeps foreign text from a terminal.
package pyjson

import (
	"math"
	"strconv"
	"unicode/utf16"
)

// Object is a JSON object that is being written; its zero value is empty. Keys
// appear in the order in which they were added.
type Object struct{ body []byte }

// key begins a member.
func (o *Object) key(name string) {
	if len(o.body) == 0 {
		o.body = append(o.body, '{')
	} else {
		o.body = append(o.body, ',')
	}
	o.body = append(AppendString(o.body, name), ':')
}

// String adds a text.
func (o *Object) String(name, value string) {
	o.key(name)
	o.body = AppendString(o.body, value)
}

// OptionalString adds a text, or null for an empty one.
func (o *Object) OptionalString(name, value string) {
	if value == "" {
		o.Raw(name, []byte("null"))
		return
	}
	o.String(name, value)
}

// Int adds a whole number.
func (o *Object) Int(name string, value int) {
	o.key(name)
	o.body = strconv.AppendInt(o.body, int64(value), 10)
}

// OptionalInt adds a whole number, or null for zero.
func (o *Object) OptionalInt(name string, value int) {
	if value == 0 {
		o.Raw(name, []byte("null"))
		return
	}
	o.Int(name, value)
}

// Bool adds a truth value.
func (o *Object) Bool(name string, value bool) {
	o.key(name)
	o.body = strconv.AppendBool(o.body, value)
}

// Float adds a number with a decimal point or an exponent. Precondition: it is
// finite.
func (o *Object) Float(name string, value float64) {
	o.key(name)
	o.body = AppendFloat(o.body, value)
}

// Strings adds a list of texts.
func (o *Object) Strings(name string, values []string) {
	o.key(name)
	o.body = append(o.body, '[')
	for i, value := range values {
		if i > 0 {
			o.body = append(o.body, ',')
		}
		o.body = AppendString(o.body, value)
	}
	o.body = append(o.body, ']')
}

// Raw adds a value that is JSON already.
func (o *Object) Raw(name string, value []byte) {
	o.key(name)
	o.body = append(o.body, value...)
}

// Bytes ends the object. Nothing may be added afterwards.
func (o *Object) Bytes() []byte {
	if len(o.body) == 0 {
		return []byte("{}")
	}
	return append(o.body, '}')
}

const hexDigits = "0123456789abcdef"

// AppendString writes a text as a JSON string: everything beyond printable
// ASCII is escaped, DEL too. Bytes that are not UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r <= 0xffff:
			b = appendUnit(b, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = appendUnit(appendUnit(b, high), low)
		}
	}
	return append(b, '"')
}

func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// AppendFloat writes the shortest text that reads back as the same number, in
// the form of Python's repr: plain between 1e-4 and 1e16, else with an
// exponent; always recognisable as no whole number.
func AppendFloat(b []byte, f float64) []byte {
	start := len(b)
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, '.', '0')
}
