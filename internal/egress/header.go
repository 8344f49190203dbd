package egress

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a request's or an answer's header.
const (
	maxFields     = 128
	maxNameBytes  = 256
	maxValueBytes = 16 << 10
)

// userAgent is sent when the guest names none. It says nothing of the host.
const userAgent = "maf-sandbox"

// Field is one line of a header. A value has one character for each byte, as
// ISO-8859-1 does and Python's http.client takes it.
type Field struct{ Name, Value string }

// treatment is what happens to a field that is the connection's matter, and the
// connection is the broker's.
type treatment uint8

const (
	passed treatment = iota
	// dropped: ordinary clients send it, and the broker knows better.
	dropped
	// refused: whoever sends it wants something that does not exist here.
	refused
)

// own are the fields of the connection (RFC 9110, sections 7.6.1, 7.8, 10.1.1;
// RFC 9112, section 6.1).
var own = map[string]treatment{
	"Connection": dropped, "Keep-Alive": dropped, "Proxy-Connection": dropped, "Expect": dropped,
	"Te": refused, "Trailer": refused, "Transfer-Encoding": refused, "Upgrade": refused, "Http2-Settings": refused,
	"Proxy-Authorization": refused, "Proxy-Authenticate": refused, "Proxy-Authentication-Info": refused,
}

// requestHeader checks a guest's fields. Host and Content-Length must agree
// with the URL and the body; both are sent anew.
func requestHeader(fields []Field, target Target, bodyBytes int) (http.Header, *Error) {
	malformed := func(format string, a ...any) (http.Header, *Error) {
		return nil, fail(KindMalformed, nil, format, a...)
	}
	if len(fields) > maxFields {
		return malformed("the request has %d header fields; at most %d are allowed", len(fields), maxFields)
	}
	header := make(http.Header, len(fields)+1)
	for _, field := range fields {
		if len(field.Name) > maxNameBytes || !isToken(field.Name) {
			return malformed("%+.40q is no name of a header field", field.Name)
		}
		value, ok := latin1Bytes(field.Value)
		if !ok || len(value) > maxValueBytes || !isFieldValue(value) {
			return malformed("the value of the header field %s holds what no header can, or more than %d bytes", field.Name, maxValueBytes)
		}
		value = strings.Trim(value, " \t")
		name := http.CanonicalHeaderKey(field.Name)
		switch name {
		case "Host":
			if !isHostField(value, target) {
				return malformed("the Host header must be that of the URL, %s", target.Name())
			}
			continue
		case "Content-Length":
			if value != strconv.Itoa(bodyBytes) {
				return malformed("the Content-Length header must be that of the body, %d", bodyBytes)
			}
			continue
		}
		switch own[name] {
		case refused:
			return malformed("the header field %s belongs to the connection, which the program does not have", name)
		case dropped:
			continue
		}
		header.Add(name, value)
	}
	if _, named := header["User-Agent"]; !named {
		header.Set("User-Agent", userAgent)
	}
	return header, nil
}

func isHostField(value string, target Target) bool {
	value = strings.ToLower(value)
	return value == target.Name() || value == fmt.Sprintf("%s:%d", target.Name(), target.Port())
}

// responseFields gives an answer's header, sorted by name, without what is the
// connection's and what has no name that a program could use.
func responseFields(header http.Header) ([]Field, *Error) {
	fields := make([]Field, 0, len(header))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if own[name] != passed || !isToken(name) {
			continue
		}
		for _, value := range header[name] {
			if !isFieldValue(value) {
				return nil, fail(KindConnect, nil, "the answer is not HTTP: the value of %s holds what no header can", name)
			}
			fields = append(fields, Field{name, latin1Text(value)})
		}
	}
	if len(fields) > maxFields {
		return nil, fail(KindTooLarge, nil, "the answer has %d header fields; at most %d are allowed", len(fields), maxFields)
	}
	return fields, nil
}

// isToken accepts a token: RFC 9110, section 5.6.2.
func isToken(name string) bool {
	for _, c := range []byte(name) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isFieldValue accepts what can stand in one line: RFC 9110, section 5.5.
func isFieldValue(value string) bool {
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// latin1Bytes turns each character into one byte. It says no to others.
func latin1Bytes(text string) (string, bool) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return "", false
		}
		b = append(b, byte(r))
	}
	return string(b), true
}

// latin1Text turns each byte into one character.
func latin1Text(bytes string) string {
	var b strings.Builder
	b.Grow(len(bytes))
	for i := range len(bytes) {
		b.WriteRune(rune(bytes[i]))
	}
	return b.String()
}
