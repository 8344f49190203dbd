//go:build linux && amd64

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Expectation is one line of the manifest: tests whose outcome in the sandbox
// differs from the one outside, and why.
type Expectation struct {
	Module string
	// Test is a test's name relative to the module; "*" in it stands for any
	// text.
	Test string
	// Guest and Native list the outcomes that are expected.
	Guest, Native []Outcome
	Reason        string

	used bool
}

// mayAgree says that the line allows the outcomes to be the same: it is about
// tests that depend on the host, or on chance, and is never stale.
func (e *Expectation) mayAgree() bool {
	return slices.ContainsFunc(e.Guest, func(o Outcome) bool { return slices.Contains(e.Native, o) })
}

func (e *Expectation) covers(d *Difference) bool {
	return e.Module == d.Module && matches(e.Test, d.Test) &&
		slices.Contains(e.Guest, d.Guest.Outcome) && slices.Contains(e.Native, d.Native.Outcome)
}

// matches reports whether name fits a pattern in which "*" stands for any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(name, p)
		if i < 0 {
			return false
		}
		name = name[i+len(p):]
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// unexplained begins a reason that nobody has thought about yet.
const unexplained = "UNEXPLAINED: "

// Manifest is what is known to differ.
type Manifest []*Expectation

// readManifest reads tab-separated lines of module, test, guest outcomes,
// native outcomes and reason. Outcomes are separated by "|". Lines that begin
// with "#" are comments.
func readManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	var errs []error
	err := eachLine(r, func(n int, line string) {
		f := strings.Split(line, "\t")
		if len(f) != 5 || slices.Contains(f, "") {
			errs = append(errs, fmt.Errorf("line %d: want module, test, guest, native and reason with tabs between", n))
			return
		}
		e := &Expectation{Module: f[0], Test: f[1], Reason: f[4]}
		for i, to := range []*[]Outcome{&e.Guest, &e.Native} {
			*to = parseOutcomes(f[2+i])
			for _, o := range *to {
				if !outcomes[o] {
					errs = append(errs, fmt.Errorf("line %d: unknown outcome %q", n, o))
				}
			}
		}
		m = append(m, e)
	})
	return m, errors.Join(append(errs, err)...)
}

// readList reads lines of one or two fields with a tab between; it maps the
// first to the second.
func readList(r io.Reader) (map[string]string, error) {
	list := make(map[string]string)
	var errs []error
	err := eachLine(r, func(n int, line string) {
		k, v, _ := strings.Cut(line, "\t")
		if _, ok := list[k]; ok {
			errs = append(errs, fmt.Errorf("line %d: %s is there twice", n, k))
		}
		list[k] = v
	})
	return list, errors.Join(append(errs, err)...)
}

// eachLine calls f for each line that is neither empty nor a comment.
func eachLine(r io.Reader, f func(n int, line string)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for n := 1; s.Scan(); n++ {
		if line := strings.TrimRight(s.Text(), " \t"); line != "" && line[0] != '#' {
			f(n, line)
		}
	}
	return s.Err()
}

// parseOutcomes undoes join.
func parseOutcomes(s string) []Outcome {
	var list []Outcome
	for o := range strings.SplitSeq(s, "|") {
		list = append(list, Outcome(o))
	}
	return list
}

func join(list []Outcome) string {
	s := make([]string, len(list))
	for i, o := range list {
		s[i] = string(o)
	}
	return strings.Join(s, "|")
}

const manifestHead = `# Tests of CPython whose outcome in the sandbox differs from the one outside.
# module, test ("*" stands for any text), outcome in the sandbox, outcome
# outside, reason; tabs between. An outcome list with "|" that has an outcome on
# both sides is about tests that depend on the host or on chance.
# Written by: go run ./test/cpython -update
`

// write writes the manifest, sorted.
func (m Manifest) write(w io.Writer) error {
	lines := make([]string, len(m))
	for i, e := range m {
		lines[i] = strings.Join([]string{e.Module, e.Test, join(e.Guest), join(e.Native), e.Reason}, "\t")
	}
	slices.Sort(lines)
	_, err := io.WriteString(w, manifestHead+strings.Join(append(slices.Compact(lines), ""), "\n"))
	return err
}
