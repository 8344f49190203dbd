package repl

import (
	"reflect"
	"strings"
	"testing"
)

func feed(lines ...string) (statements []string, rest string) {
	var b block
	for _, l := range lines {
		statements = append(statements, b.feed(l)...)
	}
	return statements, b.take()
}

func TestBlockGathersWholeStatements(t *testing.T) {
	for _, r := range []struct {
		name  string
		lines []string
		want  []string
		rest  string
	}{
		{"one line is one statement", []string{"x = 1", "print(x)"}, []string{"x = 1\n", "print(x)\n"}, ""},
		{"empty lines and comments are nothing", []string{"", "   ", "# note"}, nil, ""},
		{"an open bracket goes on", []string{"f(1,", "", "  2)"}, []string{"f(1,\n\n  2)\n"}, ""},
		{"brackets nest", []string{"a = [(", "], {", ")", "]"}, []string{"a = [(\n], {\n)\n]\n"}, ""},
		{"a bracket in a string is text", []string{`x = "("`}, []string{"x = \"(\"\n"}, ""},
		{"a bracket in a comment is text", []string{"x = 1  # ("}, []string{"x = 1  # (\n"}, ""},
		{"a closing bracket too many is for Python to refuse", []string{")"}, []string{")\n"}, ""},
		{"a triple-quoted string goes on over empty lines", []string{`s = """a`, "", `b"""`}, []string{"s = \"\"\"a\n\nb\"\"\"\n"}, ""},
		{"the other quote does not end it", []string{"s = '''a", `"""`, "'''"}, []string{"s = '''a\n\"\"\"\n'''\n"}, ""},
		{"an escaped quote does not end it", []string{`s = """\"""`, `"""`}, []string{"s = \"\"\"\\\"\"\"\n\"\"\"\n"}, ""},
		{"an empty string is closed", []string{`s = ""`}, []string{"s = \"\"\n"}, ""},
		{"a string that is not closed is for Python to refuse", []string{"s = 'a", "t = 1"}, []string{"s = 'a\n", "t = 1\n"}, ""},
		{"a backslash joins", []string{`x = 1 + \`, "2"}, []string{"x = 1 + \\\n2\n"}, ""},
		{"a backslash joins inside a string", []string{`s = 'a\`, "b'"}, []string{"s = 'a\\\nb'\n"}, ""},
		{"a compound statement goes on until an empty line", []string{"def f():", "  return 1", "", "f()"}, []string{"def f():\n  return 1\n", "f()\n"}, ""},
		{"a body with an empty-looking comment goes on", []string{"if x:", "# why", "  y", ""}, []string{"if x:\n# why\n  y\n"}, ""},
		{"later clauses belong to it", []string{"try:", "  x", "except E:", "  y", "else:", "  z", "finally:", "  w", ""}, []string{"try:\n  x\nexcept E:\n  y\nelse:\n  z\nfinally:\n  w\n"}, ""},
		{"one line with a body still waits", []string{"if x: y", "else: z", ""}, []string{"if x: y\nelse: z\n"}, ""},
		{"pasted code ends where the next statement begins", []string{"def f():", "  return 1", "f()"}, []string{"def f():\n  return 1\n", "f()\n"}, ""},
		{"one compound statement after another", []string{"for x in y:", "  a", "for x in z:", "  b", ""}, []string{"for x in y:\n  a\n", "for x in z:\n  b\n"}, ""},
		{"a decorator waits for what it decorates", []string{"@dec", "def f():", "  pass", ""}, []string{"@dec\ndef f():\n  pass\n"}, ""},
		{"match is told by its colon", []string{"match x:", "  case 1:", "    y", ""}, []string{"match x:\n  case 1:\n    y\n"}, ""},
		{"match as a name is a name", []string{"match = 1"}, []string{"match = 1\n"}, ""},
		{"a word that only begins like one is a name", []string{"format(1)", "iffy = 2"}, []string{"format(1)\n", "iffy = 2\n"}, ""},
		{"an annotation is no body", []string{"x: int = 1"}, []string{"x: int = 1\n"}, ""},
		{"a slice is no body", []string{"a[1:]"}, []string{"a[1:]\n"}, ""},
		{"a colon before a comment begins a body", []string{"while x:  # loop", "  y", ""}, []string{"while x:  # loop\n  y\n"}, ""},
		{"a multi-line header", []string{"if (a and", "b):", "  c", ""}, []string{"if (a and\nb):\n  c\n"}, ""},
		{"what is not finished is kept", []string{"if x:", "  y"}, nil, "if x:\n  y\n"},
		{"a missing body is for Python to refuse", []string{"if x:", ""}, []string{"if x:\n"}, ""},
		{"an unindented line after a header is part of it", []string{"if x:", "y", ""}, []string{"if x:\ny\n"}, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			got, rest := feed(r.lines...)
			if !reflect.DeepEqual(got, r.want) || rest != r.rest {
				t.Errorf("got %q and %q, want %q and %q", got, rest, r.want, r.rest)
			}
		})
	}
}

func FuzzBlockKeepsEveryLine(f *testing.F) {
	f.Add("def f():\n  return 1\n\nf()")
	f.Add("s = '''\n(\n'''\nx = [1,\n2]\\\n")
	f.Add("@a\nclass B: pass\n\"\\")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r") {
			return
		}
		lines := strings.Split(text, "\n")
		got, rest := feed(lines...)
		var want, have []string
		for _, l := range lines {
			if !isBlank(l) {
				want = append(want, l)
			}
		}
		for _, l := range strings.Split(strings.Join(got, "")+rest, "\n") {
			if !isBlank(l) {
				have = append(have, l)
			}
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("lines %q became %q", want, have)
		}
	})
}
