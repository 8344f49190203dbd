package test

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/maf-sandbox/maf-sandbox-go/"

// mayImport says which packages of this module each package may import,
// directly or not. Dependencies point one way.
var mayImport = map[string][]string{
	"guest":               {},
	"sandbox":             {},
	"sandbox/sandboxtest": {"internal/places", "sandbox"},
	"internal/places":     {"sandbox"},
	"internal/wire":       {},
	"internal/worker": {
		"guest", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm", "internal/linux",
		"internal/linux/vfs", "internal/platform", "internal/platform/kvmvm", "internal/private", "internal/snapshot", "internal/vdso",
		"internal/wire",
	},
	"internal/helper":    {},
	"internal/supervise": {"internal/cgroup", "internal/helper", "internal/wire"},
	"internal/owner":     {},
	"microvm": {
		"guest", "internal/cgroup", "internal/egress", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm",
		"internal/linux", "internal/linux/vfs", "internal/owner", "internal/places", "internal/platform", "internal/platform/kvmvm",
		"internal/private", "internal/snapshot", "internal/supervise", "internal/vdso", "internal/wire", "internal/worker", "sandbox",
	},
	"internal/cli/ceiling": {
		"microvm",
		"guest", "internal/cgroup", "internal/egress", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm",
		"internal/linux", "internal/linux/vfs", "internal/owner", "internal/places", "internal/platform", "internal/platform/kvmvm",
		"internal/private", "internal/snapshot", "internal/supervise", "internal/vdso", "internal/wire", "internal/worker", "sandbox",
	},
	"internal/kvm":            {},
	"internal/vdso":           {},
	"internal/private":        {},
	"internal/streams":        {},
	"internal/platform":       {},
	"internal/platform/kvmvm": {"internal/kvm", "internal/platform", "internal/vdso"},
	"internal/linux/vfs":      {},
	"internal/linux":          {"internal/linux/vfs", "internal/platform"},
	"internal/image":          {"internal/private"},
	"internal/snapshot":       {"internal/linux", "internal/linux/vfs", "internal/platform", "internal/private"},
	"internal/engine": {
		"guest", "internal/image", "internal/linux", "internal/linux/vfs", "internal/platform",
		"internal/private", "internal/snapshot", "internal/vdso",
	},
}

func TestDependenciesPointOneWay(t *testing.T) {
	for pkg, allowed := range mayImport {
		out, err := exec.Command("go", "list", "-deps", module+pkg).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", pkg, err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			dep, ours := strings.CutPrefix(dep, module)
			if !ours || dep == pkg {
				continue
			}
			ok := false
			for _, a := range allowed {
				ok = ok || a == dep
			}
			if !ok {
				t.Errorf("%s imports %s", pkg, dep)
			}
		}
	}
}
