//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

const mark = "MARK"

// reports gives lines as collect.py prints them.
func reports(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("\n\x1e" + mark + " " + l + "\n")
	}
	return b.String()
}

func TestOutcomesAreFoundInWhatTestsPrint(t *testing.T) {
	text := "noise" + reports(`{"start":0,"id":"m.A.test_a"}`) + "half a line\x00" + reports(`{"done":0,"outcome":"pass","reason":""}`) +
		strings.Repeat("x", 3*maxLine) + reports(`{"start":1,"id":"m.A.test_b"}`, `{"done":1,"outcome":"fail","reason":"AssertionError: 1"}`,
		`{"fixture":"setUpClass (m.B)","outcome":"skip","reason":"no"}`) + "\n\x1eOTHER {\"end\":9}\n" + reports(`{"end":2}`)
	want := Tests{"m.A.test_a": {Pass, ""}, "m.A.test_b": {Fail, "AssertionError: 1"}, "setUpClass (m.B)": {Skip, "no"}}
	for _, size := range []int{1, 7, len(text)} {
		heard := 0
		c := newCollector(mark, func() { heard++ })
		for at := 0; at < len(text); at += size {
			if _, err := c.Write([]byte(text[at:min(at+size, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if c.err != nil || !c.ended || heard != 6 || !maps.Equal(c.tests, want) {
			t.Errorf("pieces of %d: %v, ended %v, %d reports, %v", size, c.err, c.ended, heard, c.tests)
		}
	}
}

func TestReportsThatMakeNoSenseAreErrors(t *testing.T) {
	for name, line := range map[string]string{
		"not JSON":           "{",
		"end without start":  `{"done":3,"outcome":"pass"}`,
		"unknown outcome":    `{"fixture":"f","outcome":"good"}`,
		"number of a string": `{"start":"x"}`,
	} {
		c := newCollector(mark, func() {})
		_, _ = c.Write([]byte(reports(line)))
		if c.err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzCollectorTakesAnyOutput(f *testing.F) {
	f.Add([]byte(reports(`{"start":0,"id":"a"}`, `{"done":0,"outcome":"pass"}`, `{"end":1}`)))
	f.Add([]byte(reports(`{"start":-1,"id":"a"}`, `{"done":-1,"outcome":"?"}`, `{`)))
	f.Add([]byte("\n\x1e" + mark))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newCollector(mark, func() {})
		if n, err := c.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		if len(c.line) > maxLine {
			t.Errorf("a line of %d bytes is kept", len(c.line))
		}
		for name, x := range c.tests {
			if !outcomes[x.Outcome] {
				t.Errorf("%q is %q", name, x.Outcome)
			}
		}
	})
}

// scripted is an interpreter that prints what the test says, once for each
// program that it is given.
type scripted struct {
	prints [][]string
	hang   bool
	runs   []string
}

func (s *scripted) run(ctx context.Context, program string, _ time.Duration, out *collector) (string, error) {
	i := len(s.runs)
	s.runs = append(s.runs, program[strings.LastIndex(program, "main("):])
	for _, line := range s.prints[i] {
		_, _ = out.Write(append(append([]byte("\n"), out.head...), line+"\n"...))
	}
	if s.hang && i == 0 {
		<-ctx.Done()
	}
	return "the interpreter is gone", nil
}

func TestATestThatEndsTheInterpreterCostsOnlyItself(t *testing.T) {
	before := []string{`{"start":0,"id":"m.a"}`, `{"done":0,"outcome":"pass"}`, `{"start":1,"id":"m.b"}`}
	after := []string{`{"start":2,"id":"m.c"}`, `{"done":2,"outcome":"skip","reason":"r"}`, `{"end":3}`}
	for name, tt := range map[string]struct {
		hang bool
		want Outcome
	}{"crash": {false, Crash}, "hang": {true, Stall}} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{prints: [][]string{before, after}, hang: tt.hang}
			got, err := runModule(t.Context(), s, "m", Limits{Module: time.Minute, Stall: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			want := Tests{"m.a": {Pass, ""}, "m.b": {tt.want, "the interpreter is gone"}, "m.c": {Skip, "r"}}
			if !maps.Equal(got, want) {
				t.Errorf("outcomes %v, want %v", got, want)
			}
			if len(s.runs) != 2 || !strings.Contains(s.runs[1], ", 2)") {
				t.Errorf("programs %q", s.runs)
			}
		})
	}
}

func TestAModuleThatCannotBeLoadedHasOneOutcome(t *testing.T) {
	s := &scripted{prints: [][]string{{`{"stopped":"MemoryError at x.py:1"}`}}}
	got, err := runModule(t.Context(), s, "m", Limits{Module: time.Minute, Stall: time.Minute})
	if want := (Tests{"(module)": {Crash, "MemoryError at x.py:1"}}); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestACancelledRunHasNoOutcomes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &scripted{prints: [][]string{{`{"end":0}`}}}
	if _, err := runModule(ctx, s, "m", Limits{Module: time.Minute, Stall: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAModuleThatFailsOnOneSideIsRunOnceMore(t *testing.T) {
	fails := []string{`{"start":0,"id":"m.a"}`, `{"done":0,"outcome":"fail","reason":"too late"}`, `{"end":1}`}
	passes := []string{`{"start":0,"id":"m.a"}`, `{"done":0,"outcome":"pass"}`, `{"end":1}`}
	for name, tt := range map[string]struct {
		before    Tests
		second    []string
		again     bool
		different int
	}{
		"late":      {Tests{"m.a": {Fail, "too late"}}, passes, true, 0},
		"wrong":     {Tests{"m.a": {Fail, "too late"}}, fails, true, 1},
		"equal":     {Tests{"m.a": {Pass, ""}}, nil, false, 0},
		"explained": {Tests{"m.a": {Pass, ""}, "m.known": {Fail, "no such thing"}}, nil, false, 1},
		"crash":     {Tests{"m.a": {Fail, "too late"}, "m.b": {Crash, "gone"}}, nil, false, 2},
		"hang":      {Tests{"m.a": {Stall, "gone"}}, nil, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := Manifest{{Module: "m", Test: "known", Guest: []Outcome{Fail}, Native: []Outcome{Absent}}}
			j := &judged{module: "m", guest: tt.before, native: Tests{"m.a": {Pass, ""}}}
			var said []string
			o := options{limits: Limits{Module: time.Minute, Stall: time.Minute}, say: func(s string) { said = append(said, s) }}
			again := m.shaky(j)
			if again {
				if err := j.repeat(t.Context(), &scripted{prints: [][]string{tt.second}}, &scripted{prints: [][]string{passes}}, o); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(compare("m", j.guest, j.native)); again != tt.again || n != tt.different {
				t.Errorf("run again: %v, want %v; %d differences, want %d", again, tt.again, n, tt.different)
			}
			if settled := again && tt.different == 0; settled != (len(said) == 1) {
				t.Errorf("said %q", said)
			}
		})
	}
}
