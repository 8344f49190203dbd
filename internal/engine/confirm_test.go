//go:build linux && amd64

package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/guest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
)

// imageFile captures the machine's Python, unless a ready image is named.
func imageFile(t *testing.T) string {
	t.Helper()
	if file := os.Getenv("MAF_SANDBOX_TEST_IMAGE"); file != "" {
		return file
	}
	store, err := image.OpenStore(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := store.Default(context.Background(), nil)
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A driver that does not reseed, as damage or a hostile image could have it,
// never gets a program's output out.
func TestARestoreThatIsNotConfirmedFailsClosed(t *testing.T) {
	p := hosttest.Open(t)
	im, err := image.Open(imageFile(t))
	if err != nil {
		t.Fatal(err)
	}
	tm := &Template{config: Config{Platform: p, Grace: defaultGrace}, memory: DefaultMemory, image: im}
	if tm.base, err = newBase(im); err != nil {
		t.Fatal(err)
	}
	name := path.Join(guest.Dir, guest.Driver)
	whole, err := tm.base.Content(name)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Replace(whole, []byte("                    confirm(nonce)\n"), []byte("                    pass\n"), 1)
	if bytes.Equal(broken, whole) {
		t.Fatal("the driver has no confirmation to take out")
	}
	tm.base.own[name] = newOwnFile(int64(len(broken)), func() ([]byte, error) { return broken, nil })
	if err := tm.load(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tm.Close() })
	for _, code := range []string{"pass", "print('leak')", "print('leak', flush=True)", "1/0", "import os; os._exit(0)", "import os; print('leak'); os.abort()"} {
		vm, err := tm.New(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		res, err := vm.Run(context.Background(), Request{Code: []byte(code)})
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindInternal || e.Usable {
			t.Errorf("%s: error %v", code, err)
		}
		if len(res.Stdout)+len(res.Stderr) > 0 {
			t.Errorf("%s: %q %q came out", code, res.Stdout, res.Stderr)
		}
		if _, err := vm.Run(context.Background(), Request{Code: []byte("pass")}); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: the machine was used again: %v", code, err)
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	}
}
