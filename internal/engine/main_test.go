//go:build linux && amd64

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
)

// scratch is the folder of this test run.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "engine-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// grace is generous in tests: a machine under load must not turn a program
// that obeys into one that does not.
var grace = patience(2 * time.Second)

// inTestVM says that this is the project's test VM (test/vm/run): its kernel's
// KVM is ordinary, its processor emulated, and nothing may be skipped for want
// of KVM.
var inTestVM = os.Getenv("MAF_SANDBOX_TEST_VM") != ""

// patience is a bound that only has to end a hang, or that a program must be
// able to keep: longer where the processor is emulated, which is some twelve
// times slower.
func patience(d time.Duration) time.Duration {
	if inTestVM {
		return 12 * d
	}
	return d
}

// openPlatform gives the KVM platform or skips the test by name and reason.
func openPlatform(t testing.TB) *kvmvm.Platform {
	t.Helper()
	p, err := kvmvm.New()
	if err != nil && inTestVM {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("needs a usable /dev/kvm: %v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

var images = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// readyImage is an image file that stands for the machine's own Python where
// there is none; empty: capture it.
var readyImage = os.Getenv("MAF_SANDBOX_TEST_IMAGE")

// imageOf captures an interpreter, once in a test run; python is empty for the
// machine's own.
func imageOf(t testing.TB, o image.Options) string {
	t.Helper()
	if readyImage != "" && o.Python == "" && o.Venv == "" {
		return readyImage
	}
	images.Lock()
	defer images.Unlock()
	key := o.Python + "\x00" + o.Venv
	if p, ok := images.paths[key]; ok {
		return p
	}
	s, err := image.OpenStore(filepath.Join(scratch, "images"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Build(context.Background(), o, fmt.Sprintf("test-%d", len(images.paths)))
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Resolve(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	images.paths[key] = p
	return p
}

// template boots the machine's own Python with a configuration.
func template(t testing.TB, change func(*engine.Config)) *engine.Template {
	t.Helper()
	c := engine.Config{Platform: openPlatform(t), Grace: grace, Cache: filepath.Join(scratch, "templates")}
	if change != nil {
		change(&c)
	}
	if c.Image == "" {
		c.Image = imageOf(t, image.Options{})
	}
	tm, err := engine.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tm.Close(); err != nil {
			t.Error(err)
		}
	})
	return tm
}

// machine makes a machine of a template.
func machine(t testing.TB, tm *engine.Template) *engine.VM {
	t.Helper()
	vm, err := tm.New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	return vm
}

// run runs code that must not fail in the sandbox's own terms.
func run(t testing.TB, vm *engine.VM, code string) engine.Result {
	t.Helper()
	res, err := vm.Run(context.Background(), engine.Request{Code: []byte(code), Timeout: patience(engine.DefaultTimeout)})
	if err != nil {
		t.Fatalf("run %q: %v\nstdout %q\nstderr %q", code, err, res.Stdout, res.Stderr)
	}
	return res
}

// output runs code and expects exit 0 and a standard output.
func output(t testing.TB, vm *engine.VM, code, want string) {
	t.Helper()
	res := run(t, vm, code)
	if string(res.Stdout) != want || res.ExitCode != 0 {
		t.Fatalf("run %.300q: exit %d, stdout %.2000q, want %q\nstderr %.3000s", code, res.ExitCode, res.Stdout, want, res.Stderr)
	}
}
