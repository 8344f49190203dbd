package selfupdate

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheManagerIsFoundFromFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of other systems")
	}
	for name, c := range map[string]struct {
		set    func(t *testing.T, w *world) Options
		want   Manager
		prefix string
		self   bool
	}{
		"uv tool": {func(t *testing.T, w *world) Options { return w.uv(t, "1.0") }, UVTool, "tools/maf-sandbox-mst", true},
		"uv tool by a link": {func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			link := w.path("link")
			if err := os.Symlink(o.Executable, link); err != nil {
				t.Fatal(err)
			}
			o.Executable = link
			return o
		}, UVTool, "tools/maf-sandbox-mst", true},
		"pipx": {func(t *testing.T, w *world) Options { return w.pipx(t, "1.0", pipxOrdinary) }, Pipx, "venvs/maf-sandbox-mst", true},
		"environment": {func(t *testing.T, w *world) Options {
			w.file(t, "project/.venv/pyvenv.cfg", "")
			return w.options(w.file(t, "project/.venv/bin/mst", ""), "1.0")
		}, VirtualEnvironment, "project/.venv", false},
		"system Python": {func(t *testing.T, w *world) Options {
			w.file(t, "[local]/lib/python3.12/site-packages/maf_sandbox_mst-1.0.dist-info/METADATA", "")
			return w.options(w.file(t, "[local]/bin/mst", ""), "1.0")
		}, SystemPython, "[local]", false},
		"go install": {func(t *testing.T, w *world) Options { return w.goInstall(t, "1.0.0") }, GoInstall, "gobin", true},
		"go install, GOBIN set by go env -w": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			delete(w.env, "GOBIN")
			w.env["GOENV"] = w.file(t, "goenv", "GOFLAGS=-v\nGOBIN="+w.path("gobin")+"\n")
			return o
		}, GoInstall, "gobin", true},
		"go install, first folder of GOPATH": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			delete(w.env, "GOBIN")
			w.env["GOPATH"] = w.path("go") + ":/elsewhere"
			o.Executable = w.file(t, "go/bin/mst", "")
			return o
		}, GoInstall, "go/bin", true},
		"go install elsewhere": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			w.env["GOBIN"] = w.path("other")
			return o
		}, File, "gobin", false},
		"built in a checkout": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Build.Main.Sum = ""
			return o
		}, File, "gobin", false},
		"replaced module": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Build.Main.Replace = &debug.Module{Path: "../fork"}
			return o
		}, File, "gobin", false},
		"another module": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Build.Main.Path = "example.org/fork"
			return o
		}, File, "gobin", false},
		"go tool": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Executable = w.file(t, ".cache/go-build/ab/mst", "")
			w.env["GOCACHE"] = w.path(".cache/go-build")
			return o
		}, GoTool, ".cache/go-build/ab", false},
		"go run": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			o.Executable = w.file(t, "tmp/go-build12/b001/exe/mst", "")
			return o
		}, GoTool, "tmp/go-build12/b001/exe", false},
		"file": {func(t *testing.T, w *world) Options { return w.options(w.file(t, "opt/mst", ""), "1.0.0") }, File, "opt", false},
		"Homebrew": {func(t *testing.T, w *world) Options {
			return w.options(w.file(t, "Cellar/maf-mst/1.0/bin/mst", ""), "1.0.0")
		}, Distribution, "Cellar/maf-mst/1.0/bin", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			got, err := Detect(t.Context(), c.set(t, w))
			if err != nil {
				t.Fatal(err)
			}
			if got.Manager != c.want || got.Prefix != w.path(c.prefix) || got.SelfUpdatable != c.self {
				t.Errorf("%+v", got)
			}
			if got.SelfUpdatable == (got.Reason != "") {
				t.Errorf("reason %q", got.Reason)
			}
			if c.want != UVTool && c.want != Pipx && len(w.ran) > 0 {
				t.Errorf("ran %q", w.commands())
			}
			left, err := os.ReadDir(w.path("tmp"))
			if err != nil || c.want != GoTool && len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestWhatKeepsAnOwnerFromUpdatingIsSaid(t *testing.T) {
	metadata := func(from, to string) string { return strings.Replace(pipxOrdinary, from, to, 1) }
	for name, c := range map[string]struct {
		set  func(t *testing.T, w *world) Options
		want string
	}{
		"no uv": {func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			w.tools["uv"] = false
			return o
		}, "uv, which installed this program, is not on PATH"},
		"another folder of uv": {func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			w.answer("uv tool dir", "/else\n")
			return o
		}, "uv keeps its tools in /else, not in"},
		"with another tool of uv": {func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			if err := os.Rename(w.path("tools/maf-sandbox-mst"), w.path("tools/other")); err != nil {
				t.Fatal(err)
			}
			o.Executable = w.path("tools/other/bin/mst")
			return o
		}, "belongs to uv's tool other"},
		"uv on Windows": {func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			o.OS = "windows"
			return o
		}, "Windows does not let"},
		"an old pipx": {func(t *testing.T, w *world) Options {
			o := w.pipx(t, "1.0", pipxOrdinary)
			w.answer("pipx install --help", "  --force  Modify existing\n")
			return o
		}, "upgrade pipx to 1.16 or newer"},
		"no pipx": {func(t *testing.T, w *world) Options {
			o := w.pipx(t, "1.0", pipxOrdinary)
			w.tools["pipx"] = false
			return o
		}, "pipx, which installed this program, is not on PATH"},
		"another folder of pipx": {func(t *testing.T, w *world) Options {
			o := w.pipx(t, "1.0", pipxOrdinary)
			w.answer("pipx environment --value PIPX_LOCAL_VENVS", "/else\n")
			w.answers["pipx environment --global"] = answer{err: os.ErrInvalid}
			return o
		}, "pipx keeps its environments in /else, not in"},
		"suffix": {func(t *testing.T, w *world) Options {
			return w.pipx(t, "1.0", metadata(`"suffix":""`, `"suffix":"_two"`))
		}, `with the suffix "_two"`},
		"injected": {func(t *testing.T, w *world) Options {
			return w.pipx(t, "1.0", metadata(`"package":"maf-sandbox-mst"`, `"package":"tox\u001b[2J"`))
		}, `belongs to pipx's package "tox\x1b[2J"`},
		"pinned": {func(t *testing.T, w *world) Options {
			return w.pipx(t, "1.0", metadata(`"pinned":false`, `"pinned":true`))
		}, "pipx unpin maf-sandbox-mst"},
		"no go": {func(t *testing.T, w *world) Options {
			o := w.goInstall(t, "1.0.0")
			w.tools["go"] = false
			return o
		}, "go, which installed this program, is not on PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := c.set(t, w)
			got, err := Detect(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if got.SelfUpdatable || !strings.Contains(got.Reason, c.want) {
				t.Errorf("%+v", got)
			}
			o.To = "3.0.0"
			r := refusal(t, runErr(t, o))
			if !strings.HasPrefix(r.Reason, got.Reason) || !strings.Contains(r.Command, "3.0.0") || r.Installation != got {
				t.Errorf("%+v", r)
			}
			for _, ran := range w.commands() {
				if strings.Contains(ran, "3.0.0") {
					t.Errorf("ran %s", ran)
				}
			}
		})
	}
}

func TestUnreadableStateOfAnOwnerIsAnErrorOfTheProbe(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, w *world) Options{
		"no JSON": func(t *testing.T, w *world) Options { return w.pipx(t, "1.0", "{") },
		"too large": func(t *testing.T, w *world) Options {
			return w.pipx(t, "1.0", pipxOrdinary+strings.Repeat(" ", maxReceipt))
		},
		"large receipt": func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			w.file(t, "tools/maf-sandbox-mst/"+uvReceipt, strings.Repeat("#", maxReceipt+1))
			return o
		},
		"uv fails": func(t *testing.T, w *world) Options {
			o := w.uv(t, "1.0")
			w.answers["uv tool dir"] = answer{err: os.ErrPermission, stderr: "first\n\x1b[31mbad \xff thing\n"}
			return o
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Detect(t.Context(), set(t, newWorld(t)))
			if step := stepError(t, err); step.Step != StepProbe {
				t.Errorf("%+v", step)
			}
			if strings.ContainsAny(err.Error(), "\x1b\n") || !utf8.ValidString(err.Error()) {
				t.Errorf("%q", err)
			}
		})
	}
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	w := newWorld(t)
	if inst, err := Detect(t.Context(), w.options(filepath.Join(w.root, "gone"), "1.0")); err == nil {
		t.Errorf("%+v", inst)
	}
}

func TestFoldersOfTheSystemAreTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of other systems")
	}
	for dir, want := range map[string]bool{
		"/usr/bin": true, "/usr/local/bin": false, "/usrlocal": false, "/nix/store/x/bin": true, "/snap/mst/1/bin": true,
		"/opt/homebrew/Cellar/mst/1/bin": true, "/usr/local/Cellar/mst/1/bin": true, "/opt/mst": false, "/home/me/bin": false,
	} {
		if got := systemFolder(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
}
