package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// Patterns of the tests that run below systemd.
const (
	// realSystemd is in the name of tests that talk to the machine's systemd.
	realSystemd = "RealSystemd"
	// controlGroup finds tests of supervised workers in control groups.
	controlGroup = "ControlGroup|MemoryLimit"
	// backend finds the conformance suite over the real backend and what else
	// depends on the machine: what a program sees of it, who dies with whom, the
	// ceiling. The rest is the same on every machine, and slow in emulation.
	backend = "TheBackendConforms$|SeesNothing|IsKilledCosts|" + ceiling
	// ceiling finds the backend's test of its memory ceiling.
	ceiling = "TheCeilingIs"
	// bothSelections finds CodeAct under both of a router's selections; the other
	// scenarios are the same for root, and slow in emulation.
	bothSelections = "BothSelections"
	// forGood finds what cannot be taken back before the next start of the VM.
	forGood = "ForbiddenForGood"
)

// row is one run of the tests of a package in the VM.
type row struct {
	variant plan.Variant
	pkg     string // folder
	// tests is a pattern of the names of those that run; empty: all.
	tests string
}

// rows are what the VM runs, in this order. The recipe comes first, to meet the
// machine as it boots.
var rows = []row{
	{plan.Unprivileged, "internal/owner", ""},
	{plan.Unprivileged, "internal/cgroup", ""},
	{plan.Unprivileged, "internal/supervise", ""},
	{plan.Unprivileged, "microvm", backend},
	{plan.Unprivileged, "test/live", ""},

	{plan.Root, "internal/kvm", ""},
	{plan.Root, "internal/platform/kvmvm", ""},
	{plan.Root, "internal/platform/ptrace", ""},
	{plan.Root, "internal/helper", ""},
	{plan.Root, "internal/owner", ""},
	{plan.Root, "internal/cgroup", ""},
	{plan.Root, "internal/jail", ""},
	{plan.Root, "internal/worker", ""},
	{plan.Root, "internal/supervise", ""},
	{plan.Root, "internal/engine", ""},
	{plan.Root, "test/live", bothSelections},

	{plan.SystemdRoot, "internal/cgroup", realSystemd},
	{plan.SystemdRoot, "internal/supervise", controlGroup},
	{plan.SystemdUser, "internal/cgroup", realSystemd},
	{plan.SystemdUser, "internal/supervise", controlGroup},
	{plan.SystemdRoot, "microvm", ceiling},
	{plan.SystemdUser, "microvm", ceiling},

	// Nothing is traced any more after this.
	{plan.SystemdRoot, "internal/platform/ptrace", forGood},
}

// promises are what tests may rely on in each variant.
var promises = map[plan.Variant][]expect.Thing{
	plan.Root:         {expect.KVM, expect.Cgroup, expect.WebPorts},
	plan.Unprivileged: {expect.KVM, expect.Cgroup, expect.Unprivileged, expect.WebPorts},
	plan.SystemdRoot:  {expect.KVM, expect.Systemd},
	plan.SystemdUser:  {expect.KVM, expect.Systemd},
}

// groups are the variants by the names that a user gives them.
var groups = map[string][]plan.Variant{
	"root":         {plan.Root},
	"unprivileged": {plan.Unprivileged},
	"systemd":      {plan.SystemdRoot, plan.SystemdUser},
}

func groupNames() string { return strings.Join(slices.Sorted(maps.Keys(groups)), ", ") }

// choose gives the rows of variants and packages; with none of a kind, of all. A
// package without a row runs as root. What was named and is not in the choice is
// an error.
func choose(variants, packages []string) ([]row, error) {
	chosen := slices.Clone(rows)
	for _, p := range packages {
		if !slices.ContainsFunc(chosen, func(r row) bool { return r.pkg == p }) {
			chosen = append(chosen, row{variant: plan.Root, pkg: p})
		}
	}
	var wanted []plan.Variant
	for _, v := range variants {
		if groups[v] == nil {
			return nil, fmt.Errorf("unknown variant %q: known are %s", v, groupNames())
		}
		wanted = append(wanted, groups[v]...)
	}
	chosen = slices.DeleteFunc(chosen, func(r row) bool {
		return len(variants) > 0 && !slices.Contains(wanted, r.variant) || len(packages) > 0 && !slices.Contains(packages, r.pkg)
	})
	for _, v := range variants {
		if !slices.ContainsFunc(chosen, func(r row) bool { return slices.Contains(groups[v], r.variant) }) {
			return nil, fmt.Errorf("variant %s runs none of the packages %s", v, strings.Join(packages, ", "))
		}
	}
	for _, p := range packages {
		if !slices.ContainsFunc(chosen, func(r row) bool { return r.pkg == p }) {
			return nil, fmt.Errorf("package %s does not run in the variants %s", p, strings.Join(variants, ", "))
		}
	}
	return chosen, nil
}

// withoutUserland parts the rows: those that need no programs of Debian, and the
// variants that do.
func withoutUserland(all []row) (rest []row, needing []plan.Variant) {
	for _, r := range all {
		if !r.variant.NeedsUserland() {
			rest = append(rest, r)
		} else if !slices.Contains(needing, r.variant) {
			needing = append(needing, r.variant)
		}
	}
	return rest, needing
}
