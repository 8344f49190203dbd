package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// imageEnv names a ready image where there is no Python to capture.
const imageEnv = "MAF_SANDBOX_TEST_IMAGE"

// cache is a cache folder with an image, made once for all tests.
var cache = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "microvm-test-")
	if err != nil {
		return "", err
	}
	if os.Getenv(imageEnv) != "" {
		return dir, nil
	}
	store, err := image.OpenStore(filepath.Join(dir, "images"))
	if err == nil {
		_, _, err = store.Default(context.Background(), nil)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	if duty := os.Getenv(hostEnv); duty != "" {
		if err := hostMain(duty); err != nil {
			fmt.Fprintln(os.Stderr, duty+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	status := m.Run()
	if dir, _ := cache(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// live is the configuration of a backend that works on this machine; the test is
// skipped where there can be none.
func live(t testing.TB) Config {
	t.Helper()
	p, err := kvmvm.New()
	if err != nil {
		expect.KVM.Skip(t, "needs a usable /dev/kvm: %v", err)
	}
	_ = p.Close()
	dir, err := cache()
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		CacheDir: dir, Image: os.Getenv(imageEnv), Private: true, Enforcement: enforcement(),
		StartupTimeout: patience(DefaultStartupTimeout), CleanupTimeout: patience(DefaultCleanupTimeout),
	}
}

// enforcement is the strongest that the place has promised; without a promise
// the one that needs nobody's permission.
func enforcement() Enforcement {
	switch {
	case expect.Unprivileged.Promised():
		return EnforceCgroup
	case expect.Systemd.Promised():
		return EnforceSystemd
	}
	return EnforceRlimit
}
