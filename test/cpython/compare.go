//go:build linux && amd64

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Difference is a test with two outcomes.
type Difference struct {
	Module, Test  string
	Guest, Native Test
}

func (d *Difference) String() string {
	why := d.Guest.Reason
	if why == "" {
		why = d.Native.Reason
	}
	return fmt.Sprintf("%s %s: %s in the sandbox, %s outside: %s", d.Module, d.Test, d.Guest.Outcome, d.Native.Outcome, why)
}

// compare gives the differences of a module, sorted by test. Names of tests are
// made relative to the module.
func compare(module string, guest, native Tests) []*Difference {
	relative := func(tests Tests) Tests {
		r := make(Tests, len(tests))
		for name, t := range tests {
			r[strings.TrimPrefix(name, module+".")] = t
		}
		return r
	}
	guest, native = relative(guest), relative(native)
	names := make(map[string]bool, len(native))
	for _, tests := range []Tests{guest, native} {
		for name := range tests {
			names[name] = true
		}
	}
	var ds []*Difference
	for name := range names {
		d := &Difference{Module: module, Test: name, Guest: Test{Outcome: Absent}, Native: Test{Outcome: Absent}}
		if t, ok := guest[name]; ok {
			d.Guest = t
		}
		if t, ok := native[name]; ok {
			d.Native = t
		}
		if d.Guest.Outcome != d.Native.Outcome {
			ds = append(ds, d)
		}
	}
	slices.SortFunc(ds, func(a, b *Difference) int { return cmp.Compare(a.Test, b.Test) })
	return ds
}

// explain takes away the differences that the manifest explains.
func (m Manifest) explain(ds []*Difference) []*Difference {
	var rest []*Difference
	for _, d := range ds {
		found := false
		for _, e := range m {
			if e.covers(d) {
				e.used, found = true, true
			}
		}
		if !found {
			rest = append(rest, d)
		}
	}
	return rest
}

// stale gives the lines about the modules that no longer explain anything.
func (m Manifest) stale(modules map[string]bool) []*Expectation {
	var list []*Expectation
	for _, e := range m {
		if modules[e.Module] && !e.used && !e.mayAgree() {
			list = append(list, e)
		}
	}
	return list
}

// unreasoned gives the lines about the modules that have no reason yet.
func (m Manifest) unreasoned(modules map[string]bool) []*Expectation {
	var list []*Expectation
	for _, e := range m {
		if modules[e.Module] && strings.HasPrefix(e.Reason, unexplained) {
			list = append(list, e)
		}
	}
	return list
}
