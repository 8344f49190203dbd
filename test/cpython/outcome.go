//go:build linux && amd64

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Outcome is what became of a test.
type Outcome string

// The outcomes. Those of collect.py come from unittest; the others are given by
// the runner.
const (
	Pass   Outcome = "pass"
	Skip   Outcome = "skip"
	XFail  Outcome = "xfail" // failed, as its author expects
	XPass  Outcome = "xpass" // passed, against its author's expectation
	Fail   Outcome = "fail"
	Error  Outcome = "error"
	Crash  Outcome = "crash"  // the interpreter ended in the middle of it
	Stall  Outcome = "stall"  // nothing was heard for too long
	Absent Outcome = "absent" // the module has no such test here
)

var outcomes = map[Outcome]bool{
	Pass: true, Skip: true, XFail: true, XPass: true, Fail: true, Error: true,
	Crash: true, Stall: true, Absent: true,
}

// Test is one test's outcome and, unless it passed, why.
type Test struct {
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
}

// Tests are the outcomes of one module by the tests' names, which are relative
// to the module.
type Tests map[string]Test

const (
	// maxLine bounds a line of collect.py, in bytes: a name and a reason.
	maxLine = 16 << 10
	// maxTests bounds how many tests a module may report.
	maxTests = 200_000
)

// event is one line of collect.py.
type event struct {
	Start   *int    `json:"start"`
	ID      string  `json:"id"`
	Done    *int    `json:"done"`
	Fixture string  `json:"fixture"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	Stopped string  `json:"stopped"`
	End     *int    `json:"end"`
}

// collector reads what collect.py reports out of everything that an
// interpreter prints. Its memory is bounded whatever is written to it.
type collector struct {
	// heard is called for each report.
	heard func()
	head  []byte
	line  []byte
	long  bool // the line is too long and is dropped up to its end

	tests   Tests
	current *int // the number of the test under way
	name    string
	stopped string // why the interpreter left the suite
	ended   bool   // the suite came to its end
	err     error  // the first report that makes no sense
}

func newCollector(mark string, heard func()) *collector {
	return &collector{heard: heard, head: []byte("\x1e" + mark + " "), tests: Tests{}}
}

// Write takes output. It never fails.
func (c *collector) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(c.line)+len(part) > maxLine {
			c.long = true
		}
		if !c.long {
			c.line = append(c.line, part...)
		}
		if whole {
			if !c.long {
				c.take(c.line)
			}
			c.line, c.long = c.line[:0], false
		}
		b = rest
	}
	return n, nil
}

// take takes a whole line.
func (c *collector) take(line []byte) {
	text, ours := bytes.CutPrefix(line, c.head)
	if !ours {
		return
	}
	var e event
	err := json.Unmarshal(text, &e)
	if err == nil {
		err = c.apply(&e)
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("report %.200q: %w", text, err)
	}
	c.heard()
}

func (c *collector) apply(e *event) error {
	switch {
	case len(c.tests) >= maxTests:
		return fmt.Errorf("more than %d tests", maxTests)
	case e.Start != nil:
		c.current, c.name = e.Start, e.ID
	case e.Done != nil:
		if c.current == nil || *c.current != *e.Done {
			return fmt.Errorf("test %d ended without having begun", *e.Done)
		}
		c.current = nil
		return c.add(c.name, e.Outcome, e.Reason)
	case e.Fixture != "":
		return c.add(e.Fixture, e.Outcome, e.Reason)
	case e.End != nil:
		c.ended = true
	default:
		c.stopped = e.Stopped
	}
	return nil
}

func (c *collector) add(name string, o Outcome, reason string) error {
	if !outcomes[o] {
		return fmt.Errorf("unknown outcome %q", o)
	}
	if o == Pass {
		reason = ""
	}
	c.tests[name] = Test{o, reason}
	return nil
}
