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
	"guest":                           {},
	"sandbox":                         {},
	"sandbox/sandboxtest":             {"internal/hosttool", "internal/places", "internal/strictjson", "sandbox"},
	"internal/hosttool":               {"internal/strictjson", "sandbox"},
	"internal/strictjson":             {},
	"internal/places":                 {"sandbox"},
	"internal/pyjson":                 {},
	"internal/wire":                   {},
	"internal/egress":                 {"internal/speakfirst", "sandbox"},
	"internal/tools/testvm/expect":    {},
	"router":                          {"sandbox"},
	"control":                         {"control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/pyjson", "internal/places", "sandbox"},
	"control/fence":                   {"router", "sandbox"},
	"control/internal/rundir":         {},
	"control/internal/wirejson":       {},
	"control/liveness":                {},
	"codeact":                         {"internal/pyjson", "internal/strictjson", "router", "sandbox"},
	"telemetry":                       {"control/liveness", "router", "sandbox"},
	"internal/mcp":                    {"codeact", "control/fence", "internal/pyjson", "internal/strictjson", "router", "sandbox"},
	"internal/wheel/pep440":           {},
	"internal/wheel":                  {"internal/wheel/pep440"},
	"internal/selfupdate":             {"internal/wheel/pep440"},
	"internal/platform/host/hosttest": {"internal/kvm", "internal/platform", "internal/platform/host", "internal/platform/kvmvm", "internal/platform/pagemap", "internal/platform/ptrace", "internal/platform/x86", "internal/tools/testvm/expect", "internal/vdso"},
	"internal/helptext":               {"internal/exits", "internal/streams"},
	"internal/mst/view":               {"control", "control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/pyjson", "internal/places", "internal/streams", "sandbox"},
	"internal/mst/fleet":              {"control", "control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/pyjson", "internal/places", "sandbox"},
	"internal/mst/command":            {"control", "control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/exits", "internal/helptext", "internal/mst/fleet", "internal/mst/view", "internal/pyjson", "internal/places", "internal/selfupdate", "internal/streams", "internal/wheel/pep440", "sandbox"},
	"internal/console":                {"control", "control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/mst/view", "internal/pyjson", "internal/places", "internal/streams", "sandbox"},
	// mst never imports the engine.
	"cmd/mst":                    {"control", "control/internal/rundir", "control/internal/wirejson", "internal/speakfirst", "control/liveness", "internal/console", "internal/exits", "internal/helptext", "internal/mst/command", "internal/mst/fleet", "internal/mst/view", "internal/pyjson", "internal/places", "internal/selfupdate", "internal/streams", "internal/wheel/pep440", "sandbox"},
	"internal/egress/egresstest": {"internal/egress", "internal/speakfirst", "sandbox"},
	"internal/tools/webports":    {},
	"internal/mst/doctest":       {},
	"internal/askedtest":         {},
	"internal/worker": {
		"guest", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm", "internal/linux",
		"internal/linux/vfs", "internal/platform", "internal/platform/host", "internal/platform/kvmvm", "internal/platform/pagemap",
		"internal/platform/ptrace", "internal/platform/x86", "internal/private", "internal/snapshot", "internal/vdso", "internal/wire",
	},
	"internal/helper":    {},
	"internal/supervise": {"internal/cgroup", "internal/helper", "internal/wire"},
	"internal/owner":     {},
	"microvm": {
		"control/liveness", "guest", "internal/cgroup", "internal/egress", "internal/speakfirst", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm",
		"internal/linux", "internal/linux/vfs", "internal/owner", "internal/places", "internal/platform", "internal/platform/host", "internal/platform/kvmvm", "internal/platform/pagemap",
		"internal/platform/ptrace", "internal/platform/x86",
		"internal/hosttool", "internal/strictjson",
		"internal/private", "internal/snapshot", "internal/supervise", "internal/vdso", "internal/wire", "internal/worker", "sandbox",
	},
	"internal/cli/ceiling": {
		"microvm",
		"control/liveness", "guest", "internal/cgroup", "internal/egress", "internal/speakfirst", "internal/engine", "internal/helper", "internal/image", "internal/jail", "internal/kvm",
		"internal/linux", "internal/linux/vfs", "internal/owner", "internal/places", "internal/platform", "internal/platform/host", "internal/platform/kvmvm", "internal/platform/pagemap",
		"internal/platform/ptrace", "internal/platform/x86",
		"internal/hosttool", "internal/strictjson",
		"internal/private", "internal/snapshot", "internal/supervise", "internal/vdso", "internal/wire", "internal/worker", "sandbox",
	},
	"internal/kvm":              {},
	"internal/vdso":             {},
	"internal/private":          {},
	"internal/exits":            {},
	"internal/streams":          {},
	"internal/platform":         {},
	"internal/platform/x86":     {},
	"internal/platform/pagemap": {"internal/kvm"},
	"internal/platform/kvmvm":   {"internal/kvm", "internal/platform", "internal/platform/pagemap", "internal/platform/x86", "internal/vdso"},
	"internal/platform/ptrace":  {"internal/kvm", "internal/platform", "internal/platform/pagemap", "internal/platform/x86", "internal/vdso"},
	"internal/platform/host": {
		"internal/kvm", "internal/platform", "internal/platform/kvmvm", "internal/platform/pagemap", "internal/platform/ptrace",
		"internal/platform/x86", "internal/vdso",
	},
	"internal/platform/platformtest": {"internal/platform"},
	"internal/linux/vfs":             {},
	"internal/linux":                 {"internal/linux/vfs", "internal/platform"},
	"internal/image":                 {"internal/private"},
	"internal/snapshot":              {"internal/linux", "internal/linux/vfs", "internal/platform", "internal/private"},
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
