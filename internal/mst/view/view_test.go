package view

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestAgeIsTheLargestWholeUnitAndNeverNegative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m", 59 * time.Minute: "59m",
		time.Hour: "1h", 23*time.Hour + 59*time.Minute: "23h", 24 * time.Hour: "1d", 400 * 24 * time.Hour: "400d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestMomentsAreReadableInTheZoneOfTheReader(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	if got, want := Moment(noon.Add(-5*time.Minute), noon.In(zone)), "2026-11-30 12:55:00 CET (5m ago)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTablesAlignWideTextAndEndWithoutSpaces(t *testing.T) {
	got := Table([]string{"A", "KEY", "LAST"}, [][]string{{"x", "会議室", ""}, {"long", "é", "1"}}, true, nil)
	want := strings.Join([]string{
		"A     KEY     LAST",
		"----  ------  ----",
		"x     会議室",
		"long  é       1",
		"",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := Table([]string{"TITLE"}, [][]string{{"a"}}, false, nil), "a\n"; got != want {
		t.Errorf("without headers got %q, want %q", got, want)
	}
}

func TestStylesDoNotChangeTheAlignment(t *testing.T) {
	style := func(i int, cell string) string {
		if i == 0 {
			return "<" + cell + ">"
		}
		return cell
	}
	if got, want := Table([]string{"A", "B"}, [][]string{{"x", "y"}}, false, style), "<x>  y\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func some() []control.Record {
	var records []control.Record
	for i, state := range []control.State{control.StateFailed, control.StateReady, control.StateStarting} {
		records = append(records, control.Record{
			SourceID: "src", Backend: "microvm", Scope: "team", ThreadID: string(rune('a' + i)), AgentID: "x", Kind: "python",
			InstanceID: string(rune('z' - i)), State: state, ProcessID: 10 * i,
			CreatedAt: control.At(noon.Add(-time.Duration(i) * time.Hour)), LastActivityAt: control.At(noon.Add(-time.Duration(i) * time.Minute)),
		})
	}
	return records
}

func ids(records []control.Record) string {
	var b strings.Builder
	for _, r := range records {
		b.WriteString(r.InstanceID)
	}
	return b.String()
}

func TestOrdersSortByWhatTheColumnMeans(t *testing.T) {
	for text, want := range map[string]string{
		"key": "zyx", "-key": "xyz", "instance": "xyz", "state": "xyz", "-state": "zyx", "age": "zyx", "-age": "xyz", "signal": "zyx",
		"process": "zyx", " Process ": "zyx", "source": "zyx", "-source": "zyx",
	} {
		order, err := ParseOrder(text)
		if err != nil {
			t.Fatal(err)
		}
		records := some()
		slices.Reverse(records)
		order.Sort(records)
		if got := ids(records); got != want {
			t.Errorf("%q sorts to %s, want %s", text, got, want)
		}
	}
}

func TestColumnsThatDoNotExistAreRefusedWithThoseThatDo(t *testing.T) {
	for _, list := range []string{"nope", "", "key,", "key,nope", "key,key", "key,,kind"} {
		if columns, err := ParseColumns(list); err == nil {
			t.Errorf("%q gives %v", list, columns)
		}
	}
	_, err := ParseColumns("nope")
	if err == nil || !strings.Contains(err.Error(), "source, backend, state") {
		t.Errorf("got %v", err)
	}
	if columns, err := ParseColumns(" KEY , instance"); err != nil || len(columns) != 2 || columns[1].Title != "INSTANCE" {
		t.Errorf("got %v, %v", columns, err)
	}
}

func TestCellsAreSafeSingleLines(t *testing.T) {
	r := control.Record{SourceID: "a\x1b[2J\nb", ThreadID: "\u009b", EgressTargets: []string{"x\ty", "\u202e"}}
	for _, c := range Columns() {
		cell := c.Cell(&r, noon)
		if i := strings.IndexFunc(cell, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' }); i >= 0 {
			t.Errorf("%s: %q", c.Name, cell)
		}
	}
}

func TestNamesThatDifferInWhatNobodySeesLookDifferent(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{
		"incident-184", "incident-\u200b184", "incident-\u200d184", "incident\u00ad-184", "incident-184\ufe0f", "incident-184\U000e0001",
		"incident-184\u3164", "incident-184\u2028", "incident-184\ufeff", "incident-184 ", "incident-184\n", "incident-184\u200e", "\u2060incident-184",
	} {
		line := Name(name)
		if other, there := seen[line]; there || Width(line) < len("incident-184") {
			t.Errorf("%q looks like %q: %q", name, other, line)
		}
		seen[line] = name
	}
	for text, want := range map[string]string{
		"": "", " a b ": `\u0020a b\u0020`, "é会": "é会", "e\u0301": "e\u0301", "a\u200db": `a\u200db`, "a\x1b": `a\x1b`, "a\n\tb": `a\x0a\x09b`,
		"\xff\ufffd": "\\xff\ufffd", "\u3000会\u3000社": `\u3000会\u3000社`, `a\b`: `a\\b`, "a\u2800b": `a\u2800b`, "a\x7f": `a\x7f`,
		"\U000e0041": `\U000e0041`, "\ue0041": `\ue0041`,
	} {
		if got := Name(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got, want := Sentence(" a\nb\u200b\xff\x1b "), `a b\u200b\xff^[`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// original reads a line of Name back: there is one name for it.
func original(t *testing.T, line string) string {
	t.Helper()
	var b []byte
	for line != "" {
		r, multibyte, tail, err := strconv.UnquoteChar(line, 0)
		if err != nil {
			t.Fatalf("%q cannot be read back: %v", line, err)
		}
		if r < utf8.RuneSelf || !multibyte {
			b = append(b, byte(r))
		} else {
			b = utf8.AppendRune(b, r)
		}
		line = tail
	}
	return string(b)
}

func TestNoTwoNamesHaveTheSameLine(t *testing.T) {
	for _, pair := range [][2]string{
		{"a\u200bb", `a\u200bb`}, {"a\nb", "a^Jb"}, {"a\nb", `a\x0ab`}, {`a\`, `a\\`}, {"\xff", `\xff`}, {"\x85", "\u0085"},
		{"\U000e0041", "\ue0041"}, {" a", `\u0020a`}, {"a b", "a\u2800b"},
	} {
		if Name(pair[0]) == Name(pair[1]) {
			t.Errorf("%q and %q are both shown as %s", pair[0], pair[1], Name(pair[0]))
		}
	}
	for _, r := range []rune{
		0xa0, 0xad, 0x34f, 0x115f, 0x1680, 0x17b4, 0x180e, 0x2000, 0x2003, 0x2009, 0x200b, 0x202f, 0x205f, 0x2060, 0x2061, 0x206a, 0x2800, 0x3000, 0x3164,
		0xe000, 0xfe0f, 0xffa0, 0xfff9, 0x13430, 0x16fe4, 0x1bca0, 0x1d159, 0x1d173, 0xe0041, 0xf0000, '\n', '\\', 0x7f, 0x85, 0x202e,
	} {
		line := Name("a" + string(r) + "b")
		if !isPlain(line) || !strings.Contains(line, `\`) || original(t, line) != "a"+string(r)+"b" {
			t.Errorf("U+%04X is shown as %q", r, line)
		}
	}
}

func FuzzNamesCanBeReadBack(f *testing.F) {
	for _, seed := range []string{"", " a b ", "a\\\xff\n\x00\u200b\U000e0041", "会\u3000\u2800", "\ufffd\x85\u0085"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		line := Name(name)
		if got := original(t, line); got != name {
			t.Errorf("%q is shown as %q, which is %q", name, line, got)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return r != ' ' && blank(r) }); i >= 0 {
			t.Errorf("%q is shown as %q", name, line)
		}
	})
}

func TestWordsHaveNothingThatAShellObeys(t *testing.T) {
	for text, want := range map[string]bool{
		"9f15a25d8c0d": true, "kvm:a.B_2-z": true, "": false, "a b": false, "a\n": false, "a;b": false, "$(a)": false, "a/b": false, "é": false, `a\`: false, "a\xff": false,
	} {
		if got := IsWord(text); got != want {
			t.Errorf("%q is a word: %v", text, got)
		}
	}
}

func TestOneLongCellDoesNotMakeAllOthersLong(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	rows := [][]string{{long, "first"}}
	for range 500 {
		rows = append(rows, []string{"a", "b"})
	}
	table := Table([]string{"A", "B"}, rows, true, nil)
	if most := len(long) + len(rows)*2*maxPad; len(table) > most {
		t.Errorf("the table has %d bytes, more than %d", len(table), most)
	}
	if !strings.Contains(table, long+"  first\na"+strings.Repeat(" ", maxPad+1)+"b\n") {
		t.Error("the long cell is cut, or the others are not aligned")
	}
}

func TestSelectionsAreExact(t *testing.T) {
	r := some()[2]
	for _, row := range []struct {
		name string
		s    Selection
		want bool
	}{
		{"nothing asked", Selection{}, true},
		{"all equal", Selection{Exact: map[string]string{"source": "src", "scope": "team", "thread": "c", "kind": "python", "state": "starting"}}, true},
		{"a part is not equal", Selection{Exact: map[string]string{"scope": "tea"}}, false},
		{"empty is a value", Selection{Exact: map[string]string{"call": ""}}, true},
		{"empty is not anything", Selection{Exact: map[string]string{"scope": ""}}, false},
		{"case counts", Selection{Exact: map[string]string{"scope": "Team"}}, false},
		{"old enough", Selection{OlderThan: 2 * time.Minute}, true},
		{"too young", Selection{OlderThan: 2*time.Minute + 1}, false},
	} {
		if got := row.s.Keeps(&r, noon); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

func TestQueriesTakeEveryText(t *testing.T) {
	r := some()[1]
	for text, want := range map[string]bool{
		"": true, "  ": true, "!": true, "TEAM": true, "team ready": true, "team failed": false, "!failed": true, "!ready": false,
		"key:/b/": true, "key:c": false, "!key:c": true, "kind:": true, "nofield:x": false, "process:10": true, ":": false, "::": false,
	} {
		if got := ParseQuery(text).Keeps(&r, noon); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzQueryAndColumnsTakeAnything(f *testing.F) {
	for _, seed := range []string{"", "!a b:c", "key:\x1b", "state:ready,!x", "-age"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		r := control.Record{SourceID: text, ThreadID: text, InstanceID: text, ExecutionContract: text, EgressTargets: []string{text}}
		q := ParseQuery(query)
		kept := q.Keeps(&r, noon)
		if len(q) == 1 {
			q[0].not = !q[0].not
			if q.Keeps(&r, noon) == kept {
				t.Errorf("%q and its opposite agree", query)
			}
		}
		_, _ = ParseColumns(query)
		_, _ = ParseOrder(query)
		for _, c := range Columns() {
			cell := c.Cell(&r, noon)
			if Width(Cut(cell, 10)) > 10 {
				t.Errorf("%q is wider than 10", Cut(cell, 10))
			}
			if strings.ContainsAny(cell, "\x1b\n\r\t") {
				t.Errorf("%q is not safe", cell)
			}
		}
	})
}
