package strictjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/strictjson"
)

var bounds = strictjson.Bounds{Bytes: 4096, Depth: 8, Values: 100, Digits: 40}

var valid = []string{
	`null`, ` true `, "\t\r\nfalse", `0`, `-0`, `-0.0`, `1e5`, `1E+5`, `1.25e-7`, `9223372036854775808`, `1000000000000000000000000000000`,
	`-1234567890123456789012345678901234567890`,
	`""`, `"a\"\\\/\b\f\n\r\t\u00e4"`, `"\ud83d\ude00"`, "\"\U0001F600\"", `[]`, `[ ]`, `[1,2 , 3]`, `{}`, `{"a":1}`, `{ "a" : [ { } ] , "b" : null }`,
	`{"":{"a":1},"a":{"a":1}}`, strings.Repeat("[", 8) + strings.Repeat("]", 8),
	`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1}`,
}

func TestTextsThatEveryoneReadsAlikePass(t *testing.T) {
	for _, text := range valid {
		if _, err := strictjson.Check([]byte(text), bounds); err != nil || !json.Valid([]byte(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestEverythingElseIsRefusedInWords(t *testing.T) {
	many := `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1`
	for text, want := range map[string]string{
		``: "no JSON value, at byte 0", `nul`: "no JSON value", `NaN`: "no JSON value", `Infinity`: "no JSON value", `-Infinity`: "no JSON number",
		`01`: "something behind the value, at byte 1", `-`: "no JSON number", `1.`: "no JSON number", `1e`: "no JSON number", `+1`: "no JSON value", `.5`: "no JSON value",
		`1 2`: "something behind the value", `1e400`: "beyond what a float holds", `-1e400`: "beyond what a float holds",
		strings.Repeat("1", 41):      "a number of more than 40 digits",
		`"`:                          "a string without an end",
		"\"\x00\"":                   "a control character",
		"\"\n\"":                     "a control character",
		`"\x"`:                       "no JSON escape",
		`"\`:                         "no JSON escape",
		`"\u12"`:                     "no JSON escape",
		`"\u+123"`:                   "no JSON escape",
		`"\ud800"`:                   "a lone surrogate",
		`"\ud800\u0041"`:             "a lone surrogate",
		`"\ud800\ud800"`:             "a lone surrogate",
		`"\udc00"`:                   "a lone surrogate",
		"\"\xed\xa0\x80\"":           "not UTF-8, at byte 1",
		"\xff":                       "not UTF-8, at byte 0",
		`[1,]`:                       "no JSON value",
		`[1 2]`:                      "neither , nor ]",
		`[`:                          "no JSON value",
		`{"a":1,}`:                   "no name",
		`{a:1}`:                      "no name",
		`{"a" 1}`:                    "no : behind a name",
		`{"a":1`:                     "neither , nor }",
		`{"a":1,"a":2}`:              "a name twice in an object, at byte 7",
		`{"a":1,"\u0061":2}`:         "a name twice",
		many + `,"9":2}`:             "a name twice",
		many + `,"10":1,"\u0031":2}`: "a name twice",
		strings.Repeat("[", 9) + strings.Repeat("]", 9): "nested deeper than 8, at byte 8",
		"[" + strings.Repeat("0,", 99) + "0]":           "more than 100 values",
		`"` + strings.Repeat("x", 4096) + `"`:           "4098 bytes are more than the limit of 4096",
	} {
		_, err := strictjson.Check([]byte(text), bounds)
		var e *strictjson.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: got %v, want %s", text, err, want)
		}
	}
}

func TestDepthIsNoMatterOfTheStack(t *testing.T) {
	deep := bounds
	deep.Bytes = 4 << 20
	if _, err := strictjson.Check([]byte(strings.Repeat("[", 4<<20)), deep); err == nil {
		t.Error("passed")
	}
}

func TestZerosWithASignAreFound(t *testing.T) {
	f, err := strictjson.Check([]byte(` [-0, 0, -0.0, "-0", {"-0": -0}]`), bounds)
	if err != nil || !slices.Equal(f.NegativeZeros, []int{2, 28}) || f.Kind != '[' {
		t.Errorf("got %+v, %v", f, err)
	}
}

// Whatever passes, encoding/json reads too, and it keeps its kind.
func FuzzCheck(f *testing.F) {
	for _, text := range valid {
		f.Add([]byte(text))
	}
	for _, text := range []string{`{"a":1,"\u0061":2}`, `"\ud800"`, `1e400`, `[[[[[[[[[`, "\"\xed\xa0\x80\"", `{"":0,"":0}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		facts, err := strictjson.Check(text, bounds)
		if err != nil {
			var e *strictjson.Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(text)+1 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q passed and is no JSON", text)
		}
		for _, at := range facts.NegativeZeros {
			if string(text[at:at+2]) != "-0" {
				t.Fatalf("no -0 at %d of %q", at, text)
			}
		}
		var v any
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := strictjson.Check(again, strictjson.Bounds{Bytes: 6 * bounds.Bytes, Depth: bounds.Depth, Values: bounds.Values, Digits: bounds.Digits}); err != nil {
			t.Fatal(fmt.Errorf("%q, written again as %q: %w", text, again, err))
		}
	})
}

// Strings are gone over eight bytes at a time.
func TestWhatMeansSomethingInAStringIsSeenAtEveryPlace(t *testing.T) {
	for at := range 40 {
		for what, ok := range map[string]bool{`\n`: true, "\x1f": false, "\x00": false, `\x`: false, "\x7f": true, "\u00e9": true, "!": true, "#": true, "[": true, "]": true} {
			text := `["` + strings.Repeat("y", at) + what + strings.Repeat("z", 40-at) + `",1]`
			if _, err := strictjson.Check([]byte(text), bounds); (err == nil) != ok {
				t.Errorf("%q: %v", text, err)
			}
		}
		if _, err := strictjson.Check([]byte(`"`+strings.Repeat("y", at)+`"`+strings.Repeat("z", 40-at)), bounds); err == nil && at < 40 {
			t.Errorf("the end of a string was missed at %d", at)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	text := []byte(`{"text":"` + strings.Repeat("x", 15<<10) + `"}`)
	wide := strictjson.Bounds{Bytes: 1 << 20, Depth: 64, Values: 1000, Digits: 40}
	for b.Loop() {
		if _, err := strictjson.Check(text, wide); err != nil {
			b.Fatal(err)
		}
	}
}
