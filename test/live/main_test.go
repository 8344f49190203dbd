//go:build linux && amd64

// Package live has the scenarios of a whole host over real sandboxes: router,
// tool, backend, network policy, and real servers on ports 80 and 443.
package live

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/root"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/webports"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// imageEnv names a ready image where there is no Python to capture.
const imageEnv = "MAF_SANDBOX_TEST_IMAGE"

// scratch is the cache folder; empty until a test needs one.
var scratch string

// cache is a cache folder with an image, made once for all tests.
var cache = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "live-test-")
	if err != nil {
		return "", err
	}
	scratch = dir
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
	if filepath.Base(os.Args[0]) == cli.Program {
		os.Exit(root.Main()) // see program
	}
	status := webports.Run(m)
	if scratch != "" {
		_ = os.RemoveAll(scratch)
	}
	os.Exit(status)
}

// patience is how long something may take that a program must be able to keep.
func patience(d time.Duration) time.Duration {
	if os.Getenv("MAF_SANDBOX_TEST_VM") != "" {
		return 12 * d
	}
	return d
}

// overrun is the time of a program that goes on until it is up: it only needs the
// time to begin.
func overrun(d time.Duration) time.Duration {
	return min(patience(d), max(3*d, 2*time.Second))
}

// newBackend makes a backend of real sandboxes that ends with the test.
func newBackend(t *testing.T, change func(*microvm.Config)) *microvm.Backend {
	t.Helper()
	hosttest.Open(t)
	dir, err := cache()
	if errors.Is(err, image.ErrNoPython) {
		t.Skipf("needs a Python: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := microvm.Config{
		CacheDir: dir, Image: os.Getenv(imageEnv), Private: true, Engine: microvm.Engine(hosttest.Engine()),
		Enforcement: enforcement(), StartupTimeout: patience(microvm.DefaultStartupTimeout),
		CleanupTimeout: patience(microvm.DefaultCleanupTimeout),
		// Whether programs obey is what counts here, not how soon.
		Grace: microvm.MaxGrace,
	}
	if change != nil {
		change(&c)
	}
	b, err := microvm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// enforcement is the strongest that the place has promised; without a promise the
// one that needs nobody's permission.
func enforcement() microvm.Enforcement {
	if expect.Unprivileged.Promised() {
		return microvm.EnforceCgroup
	}
	return microvm.EnforceRlimit
}

// onSite has a backend trust a site and its names, and reach it though it is on
// loopback.
func onSite(s *site) func(*microvm.Config) {
	return func(c *microvm.Config) {
		c.Roots = x509.NewCertPool()
		c.Roots.AddCert(s.authority)
		c.Resolver = s.names.Resolver()
		c.PrivateHosts = []sandbox.Host{sandbox.MustHost(insideName), sandbox.MustHost(apiName)}
	}
}

// newRouter makes a router whose floor is what this machine's engine gives.
func newRouter(t *testing.T, b *microvm.Backend, c router.Config) *router.Router {
	t.Helper()
	c.MinIsolation = b.Isolation()
	if c.Backends == nil {
		c.Backends = []sandbox.Backend{b}
	}
	r, err := router.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listing is a spec that lists hosts.
func listing(hosts ...string) sandbox.Spec {
	spec := sandbox.Spec{Kind: "code", Requires: sandbox.SetOf(sandbox.CapRunCode)}
	for _, h := range hosts {
		spec.Egress = sandbox.EgressAllowlist
		spec.EgressAllow = append(spec.EgressAllow, sandbox.EgressRule{Host: sandbox.MustHost(h)})
	}
	return spec
}

func conversation(n int) sandbox.Key {
	return sandbox.Key{Scope: "tenant", ThreadID: fmt.Sprint("thread-", n), AgentID: "analyst"}
}

// acquire gets a sandbox outside of calls.
func acquire(t *testing.T, b sandbox.Backend, key sandbox.Key, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := b.Acquire(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// prints runs a program that must succeed and gives what it printed.
func prints(t *testing.T, s sandbox.Sandbox, code string) string {
	t.Helper()
	r, err := s.RunCode(t.Context(), code, patience(30*time.Second))
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%.100q: exit %d, stderr %s, %v", code, r.ExitCode, r.StderrText(), err)
	}
	return r.StdoutText()
}

// shapes are the states of a sandbox in which every case is asked. Each one is
// made of the one before it.
var shapes = []struct {
	name    string
	prepare func(t *testing.T, s sandbox.Sandbox)
}{
	{"fresh", func(*testing.T, sandbox.Sandbox) {}},
	{"after a failure", func(t *testing.T, s sandbox.Sandbox) {
		t.Helper()
		r, err := s.RunCode(t.Context(), "left = 1\nhttp_get('http://refused.test/')", patience(30*time.Second))
		if err != nil || r.ExitCode != 1 {
			t.Fatalf("exit %d, %v", r.ExitCode, err)
		}
	}},
	{"after a reset", func(t *testing.T, s sandbox.Sandbox) {
		t.Helper()
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := prints(t, s, "print('left' in globals())"); got != "False\n" {
			t.Fatalf("something is left: %s", got)
		}
	}},
}
