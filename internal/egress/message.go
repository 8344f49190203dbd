package egress

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"time"
	"unicode/utf8"
)

// Sizes of messages in bytes. A message is a length, a header in JSON and a
// body; it starts with
//
//	0  the header's length, 4 bytes, little-endian
//	4  the header, UTF-8
//
// and everything after the header is the body.
const (
	prefixBytes = 4
	// MaxHeaderBytes is the largest header, so that prefix and header are 64 KiB
	// at most.
	MaxHeaderBytes = 64<<10 - prefixBytes
)

// Request is what a guest asks for.
type Request struct {
	// Method and URL are judged by the policy.
	Method, URL string
	// Header are the fields to send.
	Header []Field
	// Timeout bounds the request; zero for no bound of the guest's own.
	Timeout time.Duration
	// ConnectTimeout bounds what comes before the request is sent, the lookup of the
	// name and TLS included, and AnswerTimeout everything after that; zero likewise.
	ConnectTimeout, AnswerTimeout time.Duration
	// Unpack asks the server for gzip, unless Header names encodings itself, and
	// unpacks what comes so. Otherwise bodies go through as they are.
	Unpack bool
	// Body is sent when it is not empty.
	Body []byte
}

// Response is what a server answered.
type Response struct {
	// Status is the code, 200 to 599 usually, and Reason the text beside it.
	Status int
	Reason string
	// Header are the fields, sorted by name.
	Header []Field
	// URL is what was requested, in its one spelling.
	URL string
	// Body is complete.
	Body []byte
}

// DecodeRequest reads a guest's message. The request's body is part of the
// message. The error is an [*Error] of KindMalformed or KindTooLarge.
//
// The header is an object with the members method, url, headers (an array of
// arrays of a name and a value), timeout, connect_timeout, answer_timeout (seconds,
// or null) and unpack (true or false). The first two are needed. Unknown members, members that come twice and anything after the
// object are refused, since two readers would take them differently.
func DecodeRequest(message []byte) (Request, error) {
	request, failure := decodeRequest(message)
	if failure != nil {
		return Request{}, failure
	}
	return request, nil
}

func decodeRequest(message []byte) (Request, *Error) {
	if len(message) < prefixBytes {
		return Request{}, malformedMessage("it is too short")
	}
	length, rest := binary.LittleEndian.Uint32(message), message[prefixBytes:]
	if length > MaxHeaderBytes {
		return Request{}, fail(KindTooLarge, nil, "the request's header has %d bytes; at most %d are allowed", length, MaxHeaderBytes)
	}
	if int(length) > len(rest) {
		return Request{}, malformedMessage("its header is cut off")
	}
	header, body := rest[:length], rest[length:]
	if !utf8.Valid(header) {
		return Request{}, malformedMessage("its header is not UTF-8")
	}
	request, err := decodeHeader(header)
	if err != nil {
		return Request{}, malformedMessage(err.Error())
	}
	request.Body = body
	return request, nil
}

func malformedMessage(what string) *Error {
	return fail(KindMalformed, nil, "the request is no message to the broker: %s", what)
}

// headerReader walks the tokens of a header. encoding/json itself would take
// member names in any case, and the last of several.
type headerReader struct{ d *json.Decoder }

func decodeHeader(text []byte) (Request, error) {
	r := headerReader{json.NewDecoder(bytes.NewReader(text))}
	r.d.UseNumber()
	var request Request
	if err := r.delim('{'); err != nil {
		return request, err
	}
	seen := make(map[string]bool, 7)
	for r.d.More() {
		name, err := r.text()
		if err != nil {
			return request, err
		}
		if seen[name] {
			return request, errors.New("a member of its header comes twice")
		}
		switch name {
		case "method":
			request.Method, err = r.text()
		case "url":
			request.URL, err = r.text()
		case "headers":
			request.Header, err = r.fields()
		case "timeout":
			request.Timeout, err = r.seconds()
		case "connect_timeout":
			request.ConnectTimeout, err = r.seconds()
		case "answer_timeout":
			request.AnswerTimeout, err = r.seconds()
		case "unpack":
			request.Unpack, err = r.flag()
		default:
			err = errors.New("its header has an unknown member")
		}
		if err != nil {
			return request, err
		}
		seen[name] = true
	}
	if err := r.delim('}'); err != nil {
		return request, err
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return request, errors.New("something follows its header's object")
	}
	if !seen["method"] || !seen["url"] {
		return request, errors.New("its header has no method or no url")
	}
	return request, nil
}

var errSyntax = errors.New("its header is not the JSON that was expected")

func (r headerReader) delim(want json.Delim) error {
	if token, err := r.d.Token(); err != nil || token != want {
		return errSyntax
	}
	return nil
}

func (r headerReader) text() (string, error) {
	token, err := r.d.Token()
	text, ok := token.(string)
	if err != nil || !ok {
		return "", errSyntax
	}
	return text, nil
}

func (r headerReader) fields() ([]Field, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	var fields []Field
	for r.d.More() {
		if len(fields) == maxFields {
			return nil, errors.New("it has too many header fields")
		}
		if err := r.delim('['); err != nil {
			return nil, err
		}
		name, err := r.text()
		if err != nil {
			return nil, err
		}
		value, err := r.text()
		if err != nil {
			return nil, err
		}
		if err := r.delim(']'); err != nil {
			return nil, err
		}
		fields = append(fields, Field{name, value})
	}
	return fields, r.delim(']')
}

func (r headerReader) flag() (bool, error) {
	token, err := r.d.Token()
	flag, ok := token.(bool)
	if err != nil || !ok {
		return false, errSyntax
	}
	return flag, nil
}

func (r headerReader) seconds() (time.Duration, error) {
	token, err := r.d.Token()
	if err != nil {
		return 0, errSyntax
	}
	if token == nil {
		return 0, nil
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, errSyntax
	}
	seconds, err := number.Float64()
	if err != nil || !(seconds > 0) {
		return 0, errors.New("its timeout is no number of seconds above 0")
	}
	// More than fits is as good as for ever; less than a nanosecond is not.
	if seconds > math.MaxInt64/float64(2*time.Second) {
		return math.MaxInt64, nil
	}
	return max(1, time.Duration(seconds*float64(time.Second))), nil
}

type replyHeader struct {
	Status  int         `json:"status"`
	Reason  string      `json:"reason"`
	Headers [][2]string `json:"headers"`
	URL     string      `json:"url"`
}

type replyError struct {
	Error struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
		// Connecting is that of the error.
		Connecting bool `json:"connecting,omitempty"`
	} `json:"error"`
}

// encodeHeader gives the reply for an answer up to its body, or an error when that
// is beyond MaxHeaderBytes.
func encodeHeader(response *Response) ([]byte, *Error) {
	header := replyHeader{
		Status: response.Status, Reason: response.Reason, URL: response.URL,
		Headers: make([][2]string, 0, len(response.Header)),
	}
	for _, field := range response.Header {
		header.Headers = append(header.Headers, [2]string{field.Name, field.Value})
	}
	text := encodeJSON(header)
	if len(text) > MaxHeaderBytes {
		return nil, fail(KindTooLarge, nil, "the answer's header is larger than %d bytes", MaxHeaderBytes)
	}
	return prefixed(text), nil
}

// encodeError gives the reply for an error.
func encodeError(e *Error) []byte {
	var reply replyError
	reply.Error.Kind, reply.Error.Message, reply.Error.Connecting = e.Kind.String(), e.Message, e.Connecting
	return prefixed(encodeJSON(reply))
}

func encodeJSON(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	// Structures of strings and numbers always have a JSON text.
	_ = encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// prefixed is a message without a body.
func prefixed(header []byte) []byte {
	message := make([]byte, 0, prefixBytes+len(header))
	message = binary.LittleEndian.AppendUint32(message, uint32(len(header)))
	return append(message, header...)
}
