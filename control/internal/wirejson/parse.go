// Package wirejson reads the JSON of the control protocol field by field: the
// type of every value, and every size, is checked. Package pyjson writes it.
package wirejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// ErrInvalid is the class of every error of this package.
var ErrInvalid = errors.New("invalid control message")

// FieldError says which field of a foreign message is not what it must be.
type FieldError struct {
	// Field is its name; empty for the message itself.
	Field string
	// Want is what it must be.
	Want string
}

// Error is one line without foreign text.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%v: must be %s", ErrInvalid, e.Want)
	}
	return fmt.Sprintf("%v: %s must be %s", ErrInvalid, e.Field, e.Want)
}

// Unwrap gives ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Fields are the members of a foreign JSON object. Of equal names the last
// counts, as in Python.
type Fields map[string]json.RawMessage

// maxFields bounds the members of one object; the protocol's largest has 14.
const maxFields = 256

// shortBytes is the length up to which an object cannot have so many members
// that it matters: it is read in one go, which is three times as fast.
const shortBytes = 4 << 10

// Parse reads an object and nothing after it.
func Parse(data []byte) (Fields, error) {
	invalid := &FieldError{"", "a JSON object"}
	if len(data) <= shortBytes {
		var fields Fields
		if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
			return nil, invalid
		}
		if err := bounded(fields); err != nil {
			return nil, err
		}
		return fields, nil
	}
	in := json.NewDecoder(bytes.NewReader(data))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return nil, invalid
	}
	fields := make(Fields)
	for in.More() {
		if err := bounded(fields); err != nil {
			return nil, err
		}
		name, err := in.Token()
		if err != nil {
			return nil, invalid
		}
		key, isText := name.(string)
		var value json.RawMessage
		if !isText || in.Decode(&value) != nil {
			return nil, invalid
		}
		fields[key] = value
	}
	if _, err := in.Token(); err != nil {
		return nil, invalid
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid
	}
	return fields, nil
}

// bounded refuses an object with more members than a message has.
func bounded(fields Fields) error {
	if len(fields) > maxFields {
		return &FieldError{"", fmt.Sprintf("a JSON object of at most %d members", maxFields)}
	}
	return nil
}

// Missing says whether a member is absent or null.
func (f Fields) Missing(name string) bool {
	raw, there := f[name]
	return !there || string(raw) == "null"
}

// String is a text.
func (f Fields) String(name string) (string, error) {
	raw := f[name]
	if n := len(raw); n >= 2 && raw[0] == '"' && raw[n-1] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1]), nil
	}
	var value string
	if !f.is(name, '"') || json.Unmarshal(f[name], &value) != nil {
		return "", &FieldError{name, "a text"}
	}
	return value, nil
}

// OptionalString is a text, and empty when it is absent or null.
func (f Fields) OptionalString(name string) (string, error) {
	if f.Missing(name) {
		return "", nil
	}
	return f.String(name)
}

// Int is a whole number that was written as one: neither 1.0 nor true.
func (f Fields) Int(name string) (int, error) {
	value, err := strconv.Atoi(string(f[name]))
	if err != nil {
		return 0, &FieldError{name, "a whole number"}
	}
	return value, nil
}

// OptionalInt is a whole number, and zero when it is absent or null.
func (f Fields) OptionalInt(name string) (int, error) {
	if f.Missing(name) {
		return 0, nil
	}
	return f.Int(name)
}

// Float is a finite number.
func (f Fields) Float(name string) (float64, error) {
	// What the JSON parser accepted as a bare word can only be a number,
	// true, false or null, and ParseFloat takes the numbers only.
	value, err := strconv.ParseFloat(string(f[name]), 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		return 0, &FieldError{name, "a finite number"}
	}
	return value, nil
}

// Strings is a list of texts, and nil when it is absent. More than most texts
// are refused.
func (f Fields) Strings(name string, most int) ([]string, error) {
	if _, there := f[name]; !there {
		return nil, nil
	}
	items, err := f.Items(name, most)
	if err != nil {
		return nil, err
	}
	values := make([]string, 0, len(items))
	for _, item := range items {
		value, err := Fields{name: item}.String(name)
		if err != nil {
			return nil, &FieldError{name, "a list of texts"}
		}
		values = append(values, value)
	}
	return values, nil
}

// Items are the elements of a list, unread. More than most are refused before
// anything is made of them.
func (f Fields) Items(name string, most int) ([]json.RawMessage, error) {
	invalid := &FieldError{name, "a list"}
	in := json.NewDecoder(bytes.NewReader(f[name]))
	if start, err := in.Token(); err != nil || start != json.Delim('[') {
		return nil, invalid
	}
	items := []json.RawMessage{}
	for in.More() {
		if len(items) == most {
			return nil, &FieldError{name, fmt.Sprintf("a list of at most %d", most)}
		}
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return nil, invalid
		}
		items = append(items, item)
	}
	if _, err := in.Token(); err != nil {
		return nil, invalid
	}
	return items, nil
}

func (f Fields) is(name string, first byte) bool {
	raw := bytes.TrimLeft(f[name], " \t\r\n")
	return len(raw) > 0 && raw[0] == first
}

// Cut bounds a foreign text for a message, to at most the number of bytes and
// three dots.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "..."
}
