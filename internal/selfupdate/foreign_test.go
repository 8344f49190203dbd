package selfupdate

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestOtherInstallationsAreRefusedWithTheirCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of other systems")
	}
	venv := func(lock string) func(t *testing.T, w *world) Options {
		return func(t *testing.T, w *world) Options {
			w.tools["uv"] = true
			w.answer("uv pip compile", "maf-sandbox-mst==2.0\n")
			w.file(t, "app/.venv/pyvenv.cfg", "")
			if lock != "" {
				w.file(t, "app/"+lock, "")
			}
			return w.options(w.file(t, "app/.venv/bin/mst", ""), "1.0")
		}
	}
	file := func(t *testing.T, w *world) Options {
		w.tools["go"] = true
		w.answer("go list", `{"Versions":["v2.0.0"]}`)
		return w.options(w.file(t, "opt/my tools/mst", ""), "1.0.0")
	}
	const project = "MST is running from a project or manually managed virtual environment. Use that environment's package manager to install 'maf-sandbox-mst==2.0' and update its lock file"
	for name, c := range map[string]struct {
		set             func(t *testing.T, w *world) Options
		reason, command string // ROOT stands for the world's
		requirement     string
	}{
		"uv project":     {venv("uv.lock"), project, "uv add maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"poetry project": {venv("poetry.lock"), project, "poetry add maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"pdm project":    {venv("pdm.lock"), project, "pdm add maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"pipenv project": {venv("Pipfile.lock"), project, "pipenv install maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"environment":    {venv(""), project, "ROOT/app/.venv/bin/python -m pip install maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"environment without uv": {func(t *testing.T, w *world) Options {
			o := venv("")(t, w)
			w.tools["uv"] = false
			w.answer("python -m pip install --dry-run", `{"install":[{"metadata":{"name":"maf-sandbox-mst","version":"2.0"}}]}`)
			return o
		}, project, "ROOT/app/.venv/bin/python -m pip install maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"environment without an index": {func(t *testing.T, w *world) Options {
			o := venv("")(t, w)
			w.tools["uv"] = false
			return o
		}, strings.Replace(project, "==2.0", "", 1), "ROOT/app/.venv/bin/python -m pip install --upgrade maf-sandbox-mst", "maf-sandbox-mst"},
		"system Python": {func(t *testing.T, w *world) Options {
			w.tools["python3.12"] = true
			w.answer("python3.12 -m pip install --dry-run", `{"install":[{"metadata":{"name":"maf-sandbox-mst","version":"2.0"}}]}`)
			w.file(t, "lib/python3.12/site-packages/maf_sandbox_mst-1.0.dist-info/METADATA", "")
			return w.options(w.file(t, "bin/mst", ""), "1.0")
		}, project, "python3.12 -m pip install maf-sandbox-mst==2.0", "maf-sandbox-mst==2.0"},
		"tool of a module": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Executable = w.file(t, "tmp/go-build1/b001/exe/mst", "")
			return o
		}, "it is a tool of a go.mod (go tool or go run), which pins its version; in that project", "go get -tool " + testPackage + "@v1.10.0", testPackage + "@v1.10.0"},
		"file": {file, "no package manager owns ROOT/opt/my tools/mst; to replace it", "GOBIN='ROOT/opt/my tools' go install " + testPackage + "@v2.0.0", testPackage + "@v2.0.0"},
		"file without an index": {func(t *testing.T, w *world) Options {
			o := file(t, w)
			w.tools["go"] = false
			return o
		}, "no package manager owns ROOT/opt/my tools/mst; to replace it", "GOBIN='ROOT/opt/my tools' go install " + testPackage + "@latest", testPackage + "@latest"},
		"file of another name": {func(t *testing.T, w *world) Options {
			o := file(t, w)
			o.Executable = w.file(t, "opt/console", "")
			return o
		}, "no package manager owns ROOT/opt/console; to replace it", "go install " + testPackage + "@v2.0.0", testPackage + "@v2.0.0"},
		"Homebrew": {func(t *testing.T, w *world) Options {
			o := file(t, w)
			o.Executable = w.file(t, "Cellar/maf-mst/1.0/bin/mst", "")
			return o
		}, "ROOT/Cellar/maf-mst/1.0/bin/mst is part of the package maf-mst; its package manager updates it", "brew upgrade maf-mst", testPackage + "@v2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := refusal(t, runErr(t, c.set(t, w)))
			root := func(s string) string { return strings.ReplaceAll(s, "ROOT", w.root) }
			if r.Reason != root(c.reason) || r.Command != root(c.command) || r.Requirement != c.requirement {
				t.Errorf("%q\n%q\n%q", r.Reason, r.Command, r.Requirement)
			}
		})
	}
}

// The file is a real one of the system, which nothing here can make.
func TestThePackageOfADistributionIsNamed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the folders of Linux")
	}
	exe, err := exec.LookPath("/usr/bin/env")
	if err != nil {
		t.Skip("needs /usr/bin/env")
	}
	for name, c := range map[string]struct{ tool, start, out, want string }{
		"Debian": {"dpkg-query", "dpkg-query -S", "maf-mst: /usr/bin/mst\n", "sudo apt-get update && sudo apt-get install --only-upgrade maf-mst"},
		"Fedora": {"rpm", "rpm -q", "maf-mst\n", "sudo dnf upgrade maf-mst"},
		"Arch":   {"pacman", "pacman -Qqo", "maf-mst\n", "sudo pacman -Syu maf-mst"},
		"Alpine": {"apk", "apk info", "maf-mst\n", "sudo apk add --upgrade maf-mst"},
		// Some print a sentence and end well.
		"a sentence":  {"rpm", "rpm -q", "file /usr/bin/mst is not owned by any package\n", ""},
		"not a name":  {"pacman", "pacman -Qqo", "$(reboot)\n", ""},
		"not owned":   {"pacman", "nothing", "", ""},
		"not a flag":  {"rpm", "rpm -q", "--root=/\n", ""},
		"no managers": {"", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tools[c.tool] = true
			w.answer(c.start, c.out)
			delete(w.answers, "")
			o := w.options(exe, "1.0.0")
			o.To = "2.0.0"
			r := refusal(t, runErr(t, o))
			if r.Installation.Manager != Distribution {
				t.Errorf("%+v", r.Installation)
			}
			if c.want != "" && r.Command != c.want || c.want == "" && r.Command != "go install "+testPackage+"@v2.0.0" {
				t.Errorf("%q", r.Command)
			}
		})
	}
}
