package wheel

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/maf-sandbox/maf-sandbox-go/internal/selfupdate"
)

// goVersions are on the module proxy; go.mod of the last retracts one of them.
var goVersions = []string{"v0.1.0", "v0.2.0", "v0.3.0-rc.1"}

// proxy writes a module proxy of files (https://go.dev/ref/mod#goproxy-protocol)
// that serves this module, cut down to the test's program, and gives its
// address. Modules that it needs come from the developer's module cache.
func proxy(t *testing.T) (url, dir string) {
	t.Helper()
	dir = t.TempDir()
	root := filepath.Join(dir, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	mod, sum := cutMod(t)
	for _, v := range goVersions {
		write(t, filepath.Join(root, v+".info"), fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, v))
		write(t, filepath.Join(root, v+".mod"), mod)
		moduleZip(t, filepath.Join(root, v+".zip"), module+"@"+v+"/", mod, sum)
	}
	write(t, filepath.Join(root, "list"), []byte(strings.Join(goVersions, "\n")+"\n"))
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	return "file://" + dir + ",file://" + filepath.Join(strings.TrimSpace(string(cache)), "cache/download"), dir
}

// cutMod gives go.mod and go.sum of the module with what the program needs.
func cutMod(t *testing.T) (mod, sum []byte) {
	t.Helper()
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	const xmod = "golang.org/x/mod"
	for _, r := range f.Require {
		if r.Mod.Path != xmod {
			if err := f.DropRequire(r.Mod.Path); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Cleanup()
	if mod, err = f.Format(); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile("../../go.sum"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, xmod+" ") {
			sum = append(sum, line...)
		}
	}
	return mod, sum
}

// moduleZip writes what https://go.dev/ref/mod#zip-files describes.
func moduleZip(t *testing.T, path, prefix string, mod, sum []byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	add := func(name string, text []byte) {
		w, err := z.Create(prefix + name)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("go.mod", mod)
	add("go.sum", sum)
	for from, to := range map[string]string{"testdata/mst": "cmd/mst", "../../internal/selfupdate": "internal/selfupdate", "../../internal/wheel/pep440": "internal/wheel/pep440"} {
		err := fs.WalkDir(os.DirFS(from), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != ".go" {
				return err
			}
			r, err := os.Open(filepath.Join(from, name))
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }()
			text, err := io.ReadAll(r)
			add(to+"/"+name, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// goWorld has a GOBIN and a module cache of its own; what the compiler makes
// goes to the developer's build cache, which spares minutes.
func goWorld(t *testing.T) (w *world, bin, proxyDir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a module several times: left out with -short")
	}
	url, proxyDir := proxy(t)
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	w = newWorld(t, "")
	bin = t.TempDir()
	w.set("GOPROXY="+url, "GOSUMDB=off", "GOBIN="+bin, "GOPATH="+t.TempDir(), "GOFLAGS=-modcacherw", "GOCACHE="+strings.TrimSpace(string(cache)),
		"GOTOOLCHAIN=local", "CGO_ENABLED=0")
	return w, bin, proxyDir
}

const command = module + "/cmd/mst"

func TestAProgramOfGoInstallUpdatesItself(t *testing.T) {
	w, bin, proxyDir := goWorld(t)
	w.must(t, "go", "install", command+"@v0.1.0")
	mst := filepath.Join(bin, "mst")
	w.version(t, mst, "0.1.0")
	lifecycle(t, w, mst, selfupdate.GoInstall, "0.3.0-rc.1")

	// A release that was taken back is not the newest any more.
	mod, sum := cutMod(t)
	mod = append(mod, "\nretract v0.2.0\n"...)
	at := filepath.Join(proxyDir, filepath.FromSlash(module), "@v")
	write(t, filepath.Join(at, "v0.2.1.info"), []byte(`{"Version":"v0.2.1","Time":"2026-01-02T00:00:00Z"}`))
	write(t, filepath.Join(at, "v0.2.1.mod"), append(mod, "retract v0.2.1\n"...))
	moduleZip(t, filepath.Join(at, "v0.2.1.zip"), module+"@v0.2.1/", append(mod, "retract v0.2.1\n"...), sum)
	write(t, filepath.Join(at, "list"), []byte("v0.1.0\nv0.2.0\nv0.2.1\n"))
	if r := w.report(t, mst, "--check"); r.Status != "current" || r.Latest != "0.1.0" {
		t.Errorf("after the retraction: %+v", r)
	}
	left, err := os.ReadDir(bin)
	if err != nil || len(left) != 1 {
		t.Errorf("left in GOBIN: %v, %v", left, err)
	}
}

func TestGoHeedsNoModuleAboveTheTemporaryFolder(t *testing.T) {
	w, bin, _ := goWorld(t)
	w.must(t, "go", "install", command+"@v0.1.0")
	w.above(t, map[string]string{"go.mod": "module elsewhere\n\ngo 1.26.0\n\nexclude " + module + " v0.2.0\n"})
	if r := w.report(t, filepath.Join(bin, "mst"), "--check"); r.Latest != "0.2.0" {
		t.Errorf("%+v", r)
	}
}

func TestABinaryThatWasMovedIsRefusedWithTheCommandForItsFolder(t *testing.T) {
	w, bin, _ := goWorld(t)
	w.must(t, "go", "install", command+"@v0.1.0")
	mst := filepath.Join(t.TempDir(), "mst")
	if err := os.Rename(filepath.Join(bin, "mst"), mst); err != nil {
		t.Fatal(err)
	}
	msg := w.refused(t, mst)
	want := "GOBIN=" + filepath.Dir(mst) + " go install " + command + "@v0.2.0\n"
	if !strings.HasSuffix(msg, want) {
		t.Errorf("%s does not end in %s", msg, want)
	}
	// The command does what it promises.
	w.must(t, "sh", "-c", want)
	w.version(t, mst, "0.2.0")
}

func TestAToolOfAModuleIsRefusedWithTheCommandForItsProject(t *testing.T) {
	w, _, _ := goWorld(t)
	write(t, filepath.Join(w.home, "go.mod"), []byte("module example.org/project\n\ngo 1.26.0\n"))
	w.set("GOFLAGS=-modcacherw -mod=mod")
	w.must(t, "go", "get", "-tool", command+"@v0.1.0")
	_, msg, err := w.run(t, "go", "tool", "mst", "update", "--to", "0.2.0")
	const want = "go get -tool " + command + "@v0.2.0"
	if err == nil || !strings.Contains(msg, want+"\n") {
		t.Fatalf("%v: %s", err, msg)
	}
	w.must(t, "sh", "-c", want)
	if out := w.must(t, "go", "tool", "mst", "version"); out != "mst 0.2.0\n" {
		t.Error(out)
	}
	// go run keeps its programs in the same place.
	if out := w.must(t, "go", "run", command+"@v0.1.0", "detect"); !strings.Contains(out, `"manager":"go-tool","self_updatable":false`) {
		t.Error(out)
	}
}
