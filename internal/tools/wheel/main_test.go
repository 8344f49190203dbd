package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel"
)

func TestTheCommandLineIsRead(t *testing.T) {
	o, err := parse(strings.Fields("-package ./cmd/mst -name n -version 1.0 -targets linux/amd64,windows/arm64 -stamp main.version"), "1700000000")
	if err != nil {
		t.Fatal(err)
	}
	if o.command != "mst" || len(o.targets) != 2 || o.targets[1].String() != "windows/arm64" || !o.time.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%+v", o)
	}
	if o, err = parse(strings.Fields("-package ./cmd/mst -name n -version 1.0"), ""); err != nil || len(o.targets) != len(wheel.Targets()) || !o.time.IsZero() {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse(strings.Fields("-package ./cmd/mst -version 1.0"), ""); err != nil || o.name != "maf-sandbox-mst" || !strings.HasSuffix(o.stamp, ".stamped") || o.readme == "" || o.summary == "" {
		t.Errorf("a product: %+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"-name n -version 1.0":                               "-package and -binary",
		"-package p -binary b -name n -version 1":            "-package and -binary",
		"-package p -version 1.0":                            "-name and -version",
		"-package p -name n -version 1.0 -targets plan9/386": "plan9/386",
		"-binary b -name n -version 1.0":                     "-command",
		"-binary b -command c -name n -version 1.0":          "exactly one target",
		"-package p -name n -version 1.0 extra":              "extra",
	} {
		if _, err := parse(strings.Fields(args), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := parse(strings.Fields("-package p -name n -version 1.0"), "yesterday"); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
}

// The same source twice, in two folders and with two configurations of Go: a path
// or a setting in a binary would show.
func TestAProgramBecomesTheSameWheelTwice(t *testing.T) {
	host, err := wheel.ParseTarget(runtime.GOOS + "/" + runtime.GOARCH)
	if err != nil {
		t.Skipf("no wheel is made for this machine: %v", err)
	}
	var wheels [][]byte
	for i := range 2 {
		source := t.TempDir()
		if i == 1 {
			t.Setenv("GOENV", filepath.Join(source, "env"))
			t.Setenv("GOEXPERIMENT", "nogreenteagc")
		}
		for name, text := range map[string]string{
			"go.mod":  "module example.org/hello\n\ngo 1.26.0\n",
			"LICENSE": "the licence\n",
			"env":     "GOFIPS140=latest\nGOAMD64=v3\nGOFLAGS=-race\n",
			"go.work": "a mistake",
			"main.go": "package main\n\nvar version string\n\nfunc main() { println(version) }\n",
		} {
			if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(source)
		out := t.TempDir()
		paths, err := run(t.Context(), options{
			pkg: ".", stamp: "main.version", name: "hello", command: "hello", version: "1.0-rc.1", license: "MIT", out: out,
			targets: []wheel.Target{host}, goCommand: "go",
		})
		if err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(out)
		if err != nil || len(paths) != 1 || len(left) != 1 || filepath.Join(out, left[0].Name()) != paths[0] {
			t.Fatalf("%v, %v, %v", paths, left, err)
		}
		b, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		wheels = append(wheels, b)
	}
	if !bytes.Equal(wheels[0], wheels[1]) {
		t.Error("the wheels differ")
	}
	z, err := zip.NewReader(bytes.NewReader(wheels[0]), int64(len(wheels[0])))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if !strings.HasSuffix(f.Name, "/hello") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		exe, err := io.ReadAll(r)
		if err != nil || !bytes.Contains(exe, []byte("1.0rc1")) {
			t.Errorf("the program does not hold its version: %v", err)
		}
		_ = r.Close()
	}
	if !slices.Contains(names, "hello-1.0rc1.dist-info/licenses/example.org_hello-LICENSE") {
		t.Errorf("%v", names)
	}
}

func TestABinaryIsTakenAsItIs(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "built")
	if err := os.WriteFile(binary, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	windows, err := wheel.ParseTarget("windows/amd64")
	if err != nil {
		t.Fatal(err)
	}
	o := options{binary: binary, name: "hello", command: "hello", version: "1.0", out: filepath.Join(dir, "dist"), targets: []wheel.Target{windows}}
	paths, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	if z.File[0].Name != "hello-1.0.data/scripts/hello.exe" || z.File[0].UncompressedSize64 != 2 {
		t.Errorf("%+v", z.File[0].FileHeader)
	}
	for name, change := range map[string]func(*options){
		"no binary":  func(o *options) { o.binary = filepath.Join(dir, "gone") },
		"no version": func(o *options) { o.version = "main" },
		"no name":    func(o *options) { o.name = "/" },
		"no readme":  func(o *options) { o.readme = filepath.Join(dir, "gone") },
	} {
		bad := o
		bad.out = t.TempDir()
		change(&bad)
		paths, err := run(t.Context(), bad)
		if left, dirErr := os.ReadDir(bad.out); err == nil || dirErr != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v, left %v", name, paths, err, left)
		}
	}
}

// Each product as it is distributed, for every target.
func TestEveryProductIsBuiltForEveryTarget(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every product six times")
	}
	t.Chdir("../../..")
	for pkg, product := range products {
		out := t.TempDir()
		o, err := parse([]string{"-package", pkg, "-version", "1.2.3", "-out", out}, "")
		if err != nil {
			t.Fatal(err)
		}
		paths, err := run(t.Context(), o)
		if err != nil || len(paths) != len(wheel.Targets()) {
			t.Fatalf("%s: %v, %v", pkg, paths, err)
		}
		for _, path := range paths {
			if !strings.HasPrefix(filepath.Base(path), strings.ReplaceAll(product.name, "-", "_")+"-1.2.3-py3-none-") {
				t.Errorf("%s: %s", pkg, path)
			}
		}
	}
}
