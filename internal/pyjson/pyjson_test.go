package pyjson

import (
	"encoding/json"
	"math"
	"testing"
)

func TestTextIsWrittenAsPythonWritesIt(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "abc/<>&'", `"abc/<>&'"`},
		{"quoted", `a"b\c`, `"a\"b\\c"`},
		{"controls", "\n\r\t\b\f\x00\x1f\x7f", `"\n\r\t\b\f\u0000\u001f\u007f"`},
		{"beyond ASCII", "tenant/ä b", `"tenant/\u00e4 b"`},
		{"beyond the first plane", "😀", `"\ud83d\ude00"`},
		{"line separators", "\u2028", `"\u2028"`},
		{"not UTF-8", "a\xffb", `"a\ufffdb"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendString(nil, tt.text)); got != tt.want {
				t.Errorf("wrote %s, want %s", got, tt.want)
			}
		})
	}
}

func TestNumbersAreWrittenAsPythonWritesThem(t *testing.T) {
	for _, tt := range []struct {
		number float64
		want   string
	}{
		{0, "0.0"}, {1, "1.0"}, {-1.5, "-1.5"}, {1800000001.5, "1800000001.5"}, {1e15, "1000000000000000.0"},
		{1e16, "1e+16"}, {1e-4, "0.0001"}, {1e-5, "1e-05"}, {1.5e300, "1.5e+300"}, {123456789.123456, "123456789.123456"},
	} {
		if got := string(AppendFloat(nil, tt.number)); got != tt.want {
			t.Errorf("wrote %s, want %s", got, tt.want)
		}
	}
}

func TestAnObjectKeepsTheOrderOfItsMembers(t *testing.T) {
	var o Object
	o.String("b", "x")
	o.OptionalString("n", "")
	o.OptionalString("s", "y")
	o.Int("i", 0)
	o.OptionalInt("p", 0)
	o.OptionalInt("q", 7)
	o.Bool("t", true)
	o.Float("f", 2)
	o.Strings("l", []string{"1", "2"})
	o.Strings("e", nil)
	o.Raw("a", []byte("[]"))
	want := `{"b":"x","n":null,"s":"y","i":0,"p":null,"q":7,"t":true,"f":2.0,"l":["1","2"],"e":[],"a":[]}`
	if got := string(o.Bytes()); got != want {
		t.Errorf("wrote %s, want %s", got, want)
	}
	var empty Object
	if got := string(empty.Bytes()); got != "{}" {
		t.Errorf("an empty object is %s", got)
	}
}

// Whatever text and number are written, every reader of JSON gives them back,
// and a terminal shows them.
func FuzzAppend(f *testing.F) {
	f.Add("ä\x00😀\u2028\"\x7f", 1.5)
	f.Add("\xff\xfe", 1e-300)
	f.Fuzz(func(t *testing.T, text string, number float64) {
		if math.IsInf(number, 0) || math.IsNaN(number) {
			number = 0
		}
		var o Object
		o.String("text", text)
		o.Float("number", number)
		encoded := o.Bytes()
		for _, b := range encoded {
			if b < ' ' || b > '~' {
				t.Fatalf("%q became %q", text, encoded)
			}
		}
		var back struct {
			Text   string
			Number float64
		}
		if err := json.Unmarshal(encoded, &back); err != nil || back.Text != string([]rune(text)) || back.Number != number {
			t.Errorf("%q and %v became %s, %+v, %v", text, number, encoded, back, err)
		}
	})
}
