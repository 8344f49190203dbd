// Package strictjson says whether bytes from a stranger are one JSON value that
// every reader understands alike (RFC 8259, as RFC 7493 narrows it): UTF-8
// without lone surrogates, no name twice in an object, nothing behind the value.
// Numbers may be of any size within the bounds, since nothing here rounds them.
package strictjson

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds are what a text may hold. All must be set.
type Bounds struct {
	// Bytes bounds the text, Depth the lists and objects in one another, Values
	// all values and names together, Digits the bytes of one number without its
	// sign.
	Bytes, Depth, Values, Digits int
}

// Error says what is wrong with a text, and where.
type Error struct {
	// Offset is the byte at which it was noticed.
	Offset int
	// Problem is what is wrong, in words that repeat nothing of the text.
	Problem string
}

// Error is the problem and the place.
func (e *Error) Error() string { return fmt.Sprintf("%s, at byte %d", e.Problem, e.Offset) }

// Facts are what is worth knowing of a text that is in order.
type Facts struct {
	// Kind is the first byte of the value: '{', '[', '"', a digit or minus, or
	// that of true, false and null.
	Kind byte
	// NegativeZeros are the offsets of numbers that are written "-0", which some
	// readers take for an integer that has no sign.
	NegativeZeros []int
}

// Check reports the first problem of a text as an *Error.
func Check(text []byte, b Bounds) (Facts, error) {
	c := checker{text: text, bounds: b, left: b.Values}
	if len(text) > b.Bytes {
		return Facts{}, &Error{b.Bytes, fmt.Sprintf("%d bytes are more than the limit of %d", len(text), b.Bytes)}
	}
	if !utf8.Valid(text) {
		return Facts{}, &Error{invalidAt(text), "text that is not UTF-8"}
	}
	c.space()
	var f Facts
	if c.at < len(text) {
		f.Kind = text[c.at]
	}
	if err := c.value(0); err != nil {
		return Facts{}, err
	}
	if c.space(); c.at < len(text) {
		return Facts{}, c.problem("something behind the value")
	}
	f.NegativeZeros = c.zeros
	return f, nil
}

// invalidAt is where text that is not UTF-8 begins not to be.
func invalidAt(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

type checker struct {
	text   []byte
	at     int
	bounds Bounds
	left   int
	zeros  []int
}

func (c *checker) problem(words string) error { return &Error{c.at, words} }

// peek is the next byte; zero, which no JSON has outside a string, at the end.
func (c *checker) peek() byte {
	if c.at < len(c.text) {
		return c.text[c.at]
	}
	return 0
}

func (c *checker) space() {
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

func (c *checker) count() error {
	if c.left--; c.left < 0 {
		return c.problem(fmt.Sprintf("more than %d values", c.bounds.Values))
	}
	return nil
}

// value checks one value. depth is how many lists and objects it lies in.
func (c *checker) value(depth int) error {
	if err := c.count(); err != nil {
		return err
	}
	switch first := c.peek(); {
	case first == '{' || first == '[':
		if depth >= c.bounds.Depth {
			return c.problem(fmt.Sprintf("nested deeper than %d", c.bounds.Depth))
		}
		c.at++
		if first == '{' {
			return c.object(depth + 1)
		}
		return c.list(depth + 1)
	case first == '"':
		_, err := c.str()
		return err
	case first == '-' || first >= '0' && first <= '9':
		return c.number()
	case first == 't':
		return c.word("true")
	case first == 'f':
		return c.word("false")
	case first == 'n':
		return c.word("null")
	}
	return c.problem("no JSON value")
}

func (c *checker) word(w string) error {
	if len(c.text)-c.at < len(w) || string(c.text[c.at:c.at+len(w)]) != w {
		return c.problem("no JSON value")
	}
	c.at += len(w)
	return nil
}

// next goes on to the next element of what ends with a byte. first says that
// there has been none.
func (c *checker) next(end byte, first bool) (more bool, err error) {
	c.space()
	switch b := c.peek(); {
	case b == end:
		c.at++
		return false, nil
	case first:
		return true, nil
	case b == ',':
		c.at++
		c.space()
		return true, nil
	}
	return false, c.problem(fmt.Sprintf("neither , nor %c", end))
}

func (c *checker) list(depth int) error {
	for first := true; ; first = false {
		more, err := c.next(']', first)
		if err != nil || !more {
			return err
		}
		if err := c.value(depth); err != nil {
			return err
		}
	}
}

func (c *checker) object(depth int) error {
	var seen names
	for first := true; ; first = false {
		more, err := c.next('}', first)
		if err != nil || !more {
			return err
		}
		if c.peek() != '"' {
			return c.problem("no name of an object's member")
		}
		if err := c.count(); err != nil {
			return err
		}
		start := c.at
		name, err := c.str()
		if err != nil {
			return err
		}
		if seen.add(name) {
			c.at = start
			return c.problem("a name twice in an object")
		}
		if c.space(); c.peek() != ':' {
			return c.problem("no : behind a name")
		}
		c.at++
		c.space()
		if err := c.value(depth); err != nil {
			return err
		}
	}
}

// names are those of an object; few of them need no map.
type names struct {
	few  [8]string
	n    int
	many map[string]struct{}
}

// add reports whether the name was there.
func (s *names) add(name []byte) bool {
	if s.many != nil {
		if _, twice := s.many[string(name)]; twice {
			return true
		}
		s.many[string(name)] = struct{}{}
		return false
	}
	for _, other := range s.few[:s.n] {
		if other == string(name) {
			return true
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = string(name)
		s.n++
		return false
	}
	s.many = make(map[string]struct{}, 2*len(s.few))
	for _, other := range s.few {
		s.many[other] = struct{}{}
	}
	s.many[string(name)] = struct{}{}
	return false
}

// number checks a number of the grammar of RFC 8259, section 6.
func (c *checker) number() error {
	start := c.at
	if c.peek() == '-' {
		c.at++
	}
	switch {
	case c.peek() == '0':
		c.at++
	case !c.digits():
		return c.problem("no JSON number")
	}
	whole := true
	if c.peek() == '.' {
		whole = false
		c.at++
		if !c.digits() {
			return c.problem("no JSON number")
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		whole = false
		c.at++
		if b := c.peek(); b == '+' || b == '-' {
			c.at++
		}
		if !c.digits() {
			return c.problem("no JSON number")
		}
	}
	token := c.text[start:c.at]
	switch {
	case len(bytes.TrimPrefix(token, []byte("-"))) > c.bounds.Digits:
		return c.problem(fmt.Sprintf("a number of more than %d digits", c.bounds.Digits))
	case whole && string(token) == "-0":
		c.zeros = append(c.zeros, start)
	case !whole:
		// Some readers make infinity of it.
		if v, err := strconv.ParseFloat(string(token), 64); err != nil || math.IsInf(v, 0) {
			return c.problem("a number beyond what a float holds")
		}
	}
	return nil
}

// digits goes over digits and reports whether there were any.
func (c *checker) digits() bool {
	start := c.at
	for b := c.peek(); b >= '0' && b <= '9'; b = c.peek() {
		c.at++
	}
	return c.at > start
}

// str checks a string and gives what it stands for, which may lie in the text.
func (c *checker) str() ([]byte, error) {
	c.at++
	start := c.at
	var decoded []byte // what has been read when there was an escape
	plain := start     // from where on there was none
	for {
		switch b := c.peek(); {
		case b == '"':
			s := c.text[plain:c.at]
			c.at++
			if decoded == nil {
				return s, nil
			}
			return append(decoded, s...), nil
		case b < ' ':
			if c.at == len(c.text) {
				return nil, c.problem("a string without an end")
			}
			return nil, c.problem("a control character in a string")
		case b == '\\':
			if decoded == nil {
				decoded = make([]byte, 0, 64)
			}
			decoded = append(decoded, c.text[plain:c.at]...)
			r, err := c.escape()
			if err != nil {
				return nil, err
			}
			decoded, plain = utf8.AppendRune(decoded, r), c.at
		default:
			c.at++
			c.plain()
		}
	}
}

// plain goes over eight bytes at once while none of them means anything in a
// string. The tests for a byte of some value, and for one below a value, are
// those of "Bit Twiddling Hacks" (Anderson): exact as to whether there is one.
func (c *checker) plain() {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(c.text)-c.at >= 8 {
		x := binary.LittleEndian.Uint64(c.text[c.at:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		special := (x-ones*' ')&^x | (quote-ones)&^quote | (slash-ones)&^slash
		if special&tops != 0 {
			return
		}
		c.at += 8
	}
}

func (c *checker) escape() (rune, error) {
	c.at++
	b := c.peek()
	c.at++
	switch b {
	case '"', '\\', '/':
		return rune(b), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return c.unicode()
	}
	return 0, c.problem("no JSON escape")
}

func (c *checker) unicode() (rune, error) {
	r, ok := c.hex()
	if !ok {
		return 0, c.problem("no JSON escape")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if len(c.text)-c.at >= 2 && c.text[c.at] == '\\' && c.text[c.at+1] == 'u' {
		c.at += 2
		if low, ok := c.hex(); ok {
			if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
				return r, nil
			}
		}
	}
	return 0, c.problem("a lone surrogate")
}

func (c *checker) hex() (rune, bool) {
	if len(c.text)-c.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(c.text[c.at:c.at+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	c.at += 4
	return rune(n), true
}
