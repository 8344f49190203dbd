package streams

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func neutral(t *testing.T, chunks ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	z := NewNeutralizer(&out)
	for _, c := range chunks {
		if n, err := z.Write(c); n != len(c) || err != nil {
			t.Fatalf("Write(%q) = %d, %v; want all of it", c, n, err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var neutralRows = []struct{ name, in, want string }{
	{"plain text passes", "hello\n", "hello\n"},
	{"tab and carriage return pass", "a\tb\r\n", "a\tb\r\n"},
	{"colours become visible", "\x1b[31mred", "^[[31mred"},
	{"a title change becomes visible", "\x1b]0;owned\a", "^[]0;owned^G"},
	{"backspace and delete become visible", "a\b\x7f", "a^H^?"},
	{"nul becomes visible", "\x00", "^@"},
	{"a C1 control becomes visible", "\u009b31m", `\u009b31m`},
	{"an eight-bit C1 control becomes visible", "\x9b31m", `\x9b31m`},
	{"a text direction override becomes visible", "a\u202eb\u2066", `a\u202eb\u2066`},
	{"a right-to-left mark passes", "a\u200fb", "a\u200fb"},
	{"two, three and four byte characters pass", "é ü € 😀", "é ü € 😀"},
	{"a wrong byte is shown as a byte", "a\xffb", `a\xffb`},
	{"a character cut short is shown as bytes", "\xf0\x9f\x98", `\xf0\x9f\x98`},
	{"an overlong form is shown as bytes", "\xc0\x9b", `\xc0\x9b`},
	{"a surrogate is shown as bytes", "\xed\xa0\xbd", `\xed\xa0\xbd`},
	{"the replacement character itself passes", "\ufffd", "\ufffd"},
	{"a start byte before ASCII is shown as a byte", "\xe2A", `\xe2A`},
}

func TestNeutralizerMakesControlsVisible(t *testing.T) {
	for _, r := range neutralRows {
		t.Run(r.name, func(t *testing.T) {
			if got := neutral(t, []byte(r.in)); got != r.want {
				t.Errorf("got %q, want %q", got, r.want)
			}
		})
	}
}

func TestNeutralizerGivesTheSameForEveryChunking(t *testing.T) {
	for _, r := range neutralRows {
		in := []byte(r.in)
		for cut := 0; cut <= len(in); cut++ {
			if got := neutral(t, in[:cut], nil, in[cut:]); got != r.want {
				t.Errorf("%s, cut at %d: got %q, want %q", r.name, cut, got, r.want)
			}
		}
		single := make([][]byte, 0, len(in))
		for i := range in {
			single = append(single, in[i:i+1])
		}
		if got := neutral(t, single...); got != r.want {
			t.Errorf("%s, byte by byte: got %q, want %q", r.name, got, r.want)
		}
	}
}

func TestNeutralizerReportsAFailingWriter(t *testing.T) {
	z := NewNeutralizer(failing{errors.New("full")})
	if n, err := z.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("Write = %d, %v; want 0 and an error", n, err)
	}
}

func TestOneLineIsOneSafeLine(t *testing.T) {
	if got, want := OneLine(" a\nb\x1b[2J\tc\r\n"), "a b^[[2J c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzNeutralizer(f *testing.F) {
	for _, r := range neutralRows {
		f.Add([]byte(r.in), uint(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, at uint) {
		whole := neutral(t, in)
		cut := int(at % uint(len(in)+1))
		if got := neutral(t, in[:cut], in[cut:]); got != whole {
			t.Errorf("cut at %d: %q, whole: %q", cut, got, whole)
		}
		if !utf8.ValidString(whole) {
			t.Errorf("%q is not UTF-8", whole)
		}
		if i := strings.IndexFunc(whole, func(r rune) bool {
			return r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0
		}); i >= 0 {
			t.Errorf("a control came through: %q", whole[i:])
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
