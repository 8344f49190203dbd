package egress_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
)

func TestARequestIsReadAsItIsWritten(t *testing.T) {
	for header, want := range map[string]egress.Request{
		`{"method":"GET","url":"u"}`:                                          {Method: "GET", URL: "u"},
		` { "url" : "u", "timeout" : null, "headers" : [ ], "method" : "" } `: {URL: "u"},
		`{"method":"PUT","url":"u","headers":[["A","b"],["A","\u00e9"]],"timeout":1.5}`: {
			Method: "PUT", URL: "u", Header: []egress.Field{{Name: "A", Value: "b"}, {Name: "A", Value: "é"}}, Timeout: 1500 * time.Millisecond},
		`{"method":"G","url":"u","unpack":true}`:  {Method: "G", URL: "u", Unpack: true},
		`{"method":"G","url":"u","unpack":false}`: {Method: "G", URL: "u"},
		`{"method":"G","url":"u","connect_timeout":2,"answer_timeout":0.5}`: {
			Method: "G", URL: "u", ConnectTimeout: 2 * time.Second, AnswerTimeout: 500 * time.Millisecond},
		`{"method":"G","url":"u","connect_timeout":null,"answer_timeout":null}`: {Method: "G", URL: "u"},
		`{"method":"G","url":"u","timeout":1e-300}`:                             {Method: "G", URL: "u", Timeout: 1},
		`{"method":"G","url":"u","timeout":1e300}`:                              {Method: "G", URL: "u", Timeout: 1<<63 - 1},
	} {
		got, err := egress.DecodeRequest(message(header, 'b', 0))
		want.Body = []byte{'b', 0}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", header, got, err)
		}
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	fields := strings.TrimSuffix(strings.Repeat(`["a","b"],`, 129), ",")
	for name, b := range map[string][]byte{
		"nothing":              nil,
		"half a length":        {1, 0},
		"a header cut off":     {9, 0, 0, 0, '{', '}'},
		"a huge header":        {0xff, 0xff, 0xff, 0xff, '{', '}'},
		"no header":            message(""),
		"no object":            message(`[]`),
		"no members":           message(`{}`),
		"no url":               message(`{"method":"GET"}`),
		"no method":            message(`{"url":"u"}`),
		"a member twice":       message(`{"method":"GET","url":"u","url":"v"}`),
		"capitals":             message(`{"METHOD":"GET","url":"u"}`),
		"an unknown member":    message(`{"method":"GET","url":"u","proxy":"p"}`),
		"unpack as a number":   message(`{"method":"GET","url":"u","unpack":1}`),
		"null for unpack":      message(`{"method":"GET","url":"u","unpack":null}`),
		"a number for a text":  message(`{"method":1,"url":"u"}`),
		"null for a text":      message(`{"method":"GET","url":null}`),
		"two objects":          message(`{"method":"GET","url":"u"}{}`),
		"an open object":       message(`{"method":"GET","url":"u"`),
		"no comma":             message(`{"method":"GET" "url":"u"}`),
		"bytes beyond UTF-8":   message("{\"method\":\"GET\",\"url\":\"\xff\"}"),
		"a header of one":      message(`{"method":"GET","url":"u","headers":[["a"]]}`),
		"a header of three":    message(`{"method":"GET","url":"u","headers":[["a","b","c"]]}`),
		"headers as an object": message(`{"method":"GET","url":"u","headers":{"a":"b"}}`),
		"null for headers":     message(`{"method":"GET","url":"u","headers":null}`),
		"deep headers":         message(`{"method":"GET","url":"u","headers":` + strings.Repeat("[", 20000) + `}`),
		"many headers":         message(`{"method":"GET","url":"u","headers":[` + fields + `]}`),
		"no time":              message(`{"method":"GET","url":"u","timeout":0}`),
		"time below 0":         message(`{"method":"GET","url":"u","timeout":-1}`),
		"no time to connect":   message(`{"method":"GET","url":"u","connect_timeout":0}`),
		"no time to answer":    message(`{"method":"GET","url":"u","answer_timeout":false}`),
		"two times":            message(`{"method":"GET","url":"u","answer_timeout":1,"answer_timeout":1}`),
		"time as a text":       message(`{"method":"GET","url":"u","timeout":"1"}`),
		"time beyond numbers":  message(`{"method":"GET","url":"u","timeout":1e999}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := egress.DecodeRequest(b)
			var failure *egress.Error
			if !errors.As(err, &failure) {
				t.Fatalf("taken, or refused with %v", err)
			}
			want := egress.KindMalformed
			if name == "a huge header" {
				want = egress.KindTooLarge
			}
			if failure.Kind != want {
				t.Errorf("refused as %v", failure)
			}
		})
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(message(`{"method":"GET","url":"http://api.example.com/","headers":[["A","b"]],"timeout":1.5}`, 'b'))
	f.Add(message(`{"method":"GET","url":"\ud800","timeout":null,"unpack":true}`))
	f.Add(message(`{"method":"GET","url":"u","url":"v"}`))
	f.Add(message(`{"method":"GET","url":"u","timeout":1,"connect_timeout":2,"answer_timeout":1e-9}`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		request, err := egress.DecodeRequest(b)
		if err != nil {
			var failure *egress.Error
			if !errors.As(err, &failure) || failure.Kind != egress.KindMalformed && failure.Kind != egress.KindTooLarge {
				t.Fatalf("refused with %v", err)
			}
			for _, c := range []byte(failure.Message) {
				if c < ' ' || c > '~' {
					t.Fatalf("a message of more than visible ASCII: %q", failure.Message)
				}
			}
			return
		}
		if min(request.Timeout, request.ConnectTimeout, request.AnswerTimeout) < 0 || len(request.Header) > 128 || !utf8.ValidString(request.Method+request.URL) {
			t.Fatalf("taken: %+v", request)
		}
		// Another reader of the same header finds the same in it.
		var other struct {
			Method, URL string
			Headers     [][2]string
			Timeout     *float64
			Connect     *float64 `json:"connect_timeout"`
			Answer      *float64 `json:"answer_timeout"`
			Unpack      bool
		}
		header := b[4 : 4+binary.LittleEndian.Uint32(b)]
		if err := json.Unmarshal(header, &other); err != nil || other.Method != request.Method || other.URL != request.URL ||
			len(other.Headers) != len(request.Header) || (other.Timeout == nil) != (request.Timeout == 0) ||
			(other.Connect == nil) != (request.ConnectTimeout == 0) || (other.Answer == nil) != (request.AnswerTimeout == 0) || other.Unpack != request.Unpack {
			t.Errorf("%q is %+v to encoding/json (%v) and %+v here", header, other, err, request)
		}
		if len(b) != 4+len(header)+len(request.Body) {
			t.Errorf("%d bytes became a header of %d and a body of %d", len(b), len(header), len(request.Body))
		}
	})
}

// FuzzServe gives a broker any message: there is always a reply, and only the
// listed host is ever reached.
func FuzzServe(f *testing.F) {
	w := newWeb(f, nil)
	b := w.broker(f, newPolicy(f, listing("api.example.com", "10.0.0.1")), func(c *egress.Config) {
		c.Limits.Time = time.Nanosecond // nothing is sent
		c.Observe = nil
	})
	for _, row := range egresstest.Cases() {
		f.Add(message(fmt.Sprintf(`{"method":%q,"url":%q}`, row.Method, row.URL)))
		f.Add(message(fmt.Sprintf(`{"method":%q,"url":%q,"headers":[["Host","evil.test"],["A","\u0100"]]}`, row.Method, row.URL)))
	}
	f.Fuzz(func(t *testing.T, b0 []byte) {
		got := decodeReply(t, b.Serve(t.Context(), b0, nil))
		if got.Error == nil || got.Error.Kind == "connect" {
			t.Errorf("%q is answered with %+v", b0, got)
		}
		if lookups, dials := w.did(); len(dials) > 0 || len(lookups) > 0 && lookups[0] != "api.example.com" {
			t.Errorf("%q looks up %q and dials %q", b0, lookups, dials)
		}
	})
}
