package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

func TestRowsAreChosenByVariantAndPackage(t *testing.T) {
	for _, c := range []struct {
		variants, packages string
		want               string // "variant package", or a part of the refusal after "!"
	}{
		{"root", "internal/kvm", "root internal/kvm"},
		{"", "internal/kvm", "root internal/kvm"},
		{"", "internal/cli", "root internal/cli"}, // has no row
		{"root,unprivileged", "internal/owner", "unprivileged internal/owner, root internal/owner"},
		{"systemd", "internal/cgroup", "systemd-root internal/cgroup, systemd-user internal/cgroup"},
		{"unprivileged", "internal/kvm", "!unprivileged runs none of the packages internal/kvm"},
		{"unprivileged", "internal/owner,internal/kvm", "!internal/kvm does not run"},
		{"systemd,root", "internal/owner", "!systemd runs none"},
		{"docker", "", "!root, systemd, unprivileged"},
	} {
		t.Run(c.variants+" "+c.packages, func(t *testing.T) {
			chosen, err := choose(list(c.variants), list(c.packages))
			if refusal, refused := strings.CutPrefix(c.want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), refusal) {
					t.Errorf("%v, %v", chosen, err)
				}
				return
			}
			var got []string
			for _, r := range chosen {
				got = append(got, string(r.variant)+" "+r.pkg)
			}
			if err != nil || strings.Join(got, ", ") != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if all, err := choose(nil, nil); err != nil || !slices.Equal(all, rows) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestEveryVariantIsChosenSomehowAndPromisesSomething(t *testing.T) {
	for _, v := range []plan.Variant{plan.Root, plan.Unprivileged, plan.SystemdRoot, plan.SystemdUser} {
		var by []string
		for name, of := range groups {
			if slices.Contains(of, v) {
				by = append(by, name)
			}
		}
		if len(by) != 1 || len(promises[v]) == 0 || !slices.ContainsFunc(rows, func(r row) bool { return r.variant == v }) {
			t.Errorf("%s: chosen by %q, promises %v", v, by, promises[v])
		}
	}
}

func TestWithoutDebiansProgramsOnlyRootIsLeft(t *testing.T) {
	rest, needing := withoutUserland(rows)
	if want := []plan.Variant{plan.Unprivileged, plan.SystemdRoot, plan.SystemdUser}; !slices.Equal(needing, want) {
		t.Errorf("%q", needing)
	}
	if len(rest) == 0 || slices.ContainsFunc(rest, func(r row) bool { return r.variant != plan.Root }) {
		t.Errorf("%v", rest)
	}
}

func TestStepsKnowWhatTheyArePromised(t *testing.T) {
	b := &built{programs: map[string]string{"internal/engine": "/w/1-engine.test", "internal/cgroup": "/w/2-cgroup.test"}}
	steps := b.steps([]row{{plan.Root, "internal/engine", ""}, {plan.SystemdUser, "internal/cgroup", realSystemd}}, options{args: []string{"-test.count=2"}})
	engine, systemd := steps[0], steps[1]
	if engine.Path != "/test/1-engine.test" || engine.Dir != "/src/internal/engine" || !slices.Contains(engine.Args, skipFlag+skipPattern("internal/engine")) {
		t.Errorf("%+v", engine)
	}
	if !slices.Contains(engine.Env, "MAF_SANDBOX_TEST_EXPECT=kvm,cgroup,webports") || !slices.Contains(systemd.Env, "MAF_SANDBOX_TEST_EXPECT=kvm,systemd") {
		t.Errorf("%q, %q", engine.Env, systemd.Env)
	}
	if !slices.Contains(systemd.Args, "-test.run="+realSystemd) || systemd.Args[len(systemd.Args)-1] != "-test.count=2" {
		t.Errorf("%q", systemd.Args)
	}
}
