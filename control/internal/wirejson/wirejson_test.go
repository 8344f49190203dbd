package wirejson

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestOnlyOneObjectIsAMessage(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "1", `"x"`, "{", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1}x`, `{} {}`, "{1:2}", `{"a":NaN}`} {
		if fields, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("Parse(%q) = %v, %v", text, fields, err)
		}
	}
	fields, err := Parse([]byte(` {"a":1, "b":{"c":[]}, "a":2} ` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := fields.Int("a"); n != 2 || err != nil {
		t.Errorf("of equal names %d counts (%v), want the last", n, err)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var many strings.Builder
	for i := range maxFields + 1 {
		fmt.Fprintf(&many, ",\"k%d\":1", i)
	}
	if _, err := Parse([]byte("{" + many.String()[1:] + "}")); err == nil {
		t.Error("an object with too many members was read")
	}
	fields := Fields{"l": json.RawMessage(`["a","b","c"]`)}
	if _, err := fields.Strings("l", 2); err == nil {
		t.Error("a list that is too long was read")
	}
	if got, err := fields.Strings("l", 3); err != nil || len(got) != 3 {
		t.Errorf("Strings = %v, %v", got, err)
	}
}

func TestFieldsAreReadAsTheirTypeOnly(t *testing.T) {
	fields, err := Parse([]byte(`{"s":"x","i":7,"f":1.5,"e":1e2,"big":99999999999999999999,"huge":1e999,"t":true,"n":null,"l":["a"],"m":["a",1],"o":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]func(string) error{
		"text":             func(name string) error { _, err := fields.String(name); return err },
		"text or nothing":  func(name string) error { _, err := fields.OptionalString(name); return err },
		"whole":            func(name string) error { _, err := fields.Int(name); return err },
		"whole or nothing": func(name string) error { _, err := fields.OptionalInt(name); return err },
		"number":           func(name string) error { _, err := fields.Float(name); return err },
		"texts":            func(name string) error { _, err := fields.Strings(name, 9); return err },
	}
	right := map[string]string{
		"text": " s ", "text or nothing": " s n absent ", "whole": " i ", "whole or nothing": " i n absent ",
		"number": " i f e big ", "texts": " l absent ",
	}
	for kind, get := range read {
		for _, name := range []string{"s", "i", "f", "e", "big", "huge", "t", "n", "l", "m", "o", "absent"} {
			err := get(name)
			if want := strings.Contains(right[kind], " "+name+" "); (err == nil) != want {
				t.Errorf("%s as %s: %v", name, kind, err)
			}
			var field *FieldError
			if err != nil && (!errors.As(err, &field) || field.Field != name) {
				t.Errorf("%s as %s: %v names no field", name, kind, err)
			}
		}
	}
}

func TestALongTextIsCutBetweenCharacters(t *testing.T) {
	if got := Cut("short", 5); got != "short" {
		t.Error(got)
	}
	if got := Cut("aäb", 2); got != "a..." {
		t.Error(got)
	}
}

// Foreign bytes give fields or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":["b",1,null],"c":1e5,"d":"\ud800"}`))
	f.Add([]byte(`{"a":{}}x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := Parse(data)
		if (err == nil) == (fields == nil) {
			t.Fatalf("Parse(%q) = %v, %v", data, fields, err)
		}
		if err == nil && !json.Valid(data) {
			t.Fatalf("Parse(%q) took what is no JSON", data)
		}
		for name := range fields {
			var text string
			if got, err := fields.String(name); err == nil && (json.Unmarshal(fields[name], &text) != nil || got != text) {
				t.Fatalf("%s was read as %q", fields[name], got)
			}
			_, _ = fields.Int(name)
			_, _ = fields.Float(name)
			_, _ = fields.Strings(name, 3)
		}
	})
}
