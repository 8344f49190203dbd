package codeact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host/hosttest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// venvEnv names a venv with requests (./check sets it).
const venvEnv = "MAF_SANDBOX_TEST_REQUESTS"

// bounds are small, so that programs can meet them.
var bounds = codeact.Bounds{
	Memory: microvm.MinMemory, MaxOutput: 1000, MaxCode: 2 << 10, HTTPBody: microvm.MaxHTTPBody, HTTPTime: microvm.MaxHTTPTime,
}

// place is a backend with those bounds, whose image is that venv when there is
// one.
type place struct {
	router *router.Router
	facts  sandbox.Facts
	venv   bool
	agents int
}

func newPlace(t *testing.T, private ...sandbox.Host) *place {
	t.Helper()
	hosttest.Open(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	cache, p := t.TempDir(), &place{}
	c := microvm.Config{
		Private: true, CacheDir: cache, Engine: microvm.Engine(hosttest.Engine()), Enforcement: microvm.EnforceRlimit, StartupTimeout: 2 * time.Minute,
		Memory: bounds.Memory, MaxOutput: int(bounds.MaxOutput), MaxCode: int(bounds.MaxCode), PrivateHosts: private,
	}
	if venv := os.Getenv(venvEnv); venv != "" {
		store, err := image.OpenStore(filepath.Join(cache, "images"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Build(t.Context(), image.Options{Venv: venv}, "venv"); err != nil {
			t.Fatal(err)
		}
		c.Image, p.venv = "venv", true
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
	if err := b.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.facts, err = b.Facts(sandbox.Spec{}); err != nil {
		t.Fatal(err)
	}
	floor := sandbox.IsolationMicroVM
	if hosttest.Engine() != host.KVM {
		floor = sandbox.IsolationProcess
	}
	if p.router, err = router.New(router.Config{Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset, MinIsolation: floor}); err != nil {
		t.Fatal(err)
	}
	return p
}

// tool is a tool with sandboxes of its own.
func (p *place) tool(t *testing.T, timeout time.Duration, rules ...sandbox.EgressRule) *codeact.Tool {
	t.Helper()
	p.agents++
	tool, err := codeact.NewTool(p.router, codeact.Config{
		AgentID: fmt.Sprint("agent-", p.agents), Timeout: timeout, Facts: p.facts, Bounds: bounds, Allow: rules, MaxShown: 500,
		Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

type claim struct{ claim, code, want string }

// holds asks a real sandbox whether what the instructions say is so.
func holds(t *testing.T, tool *codeact.Tool, claims ...claim) {
	t.Helper()
	for _, c := range claims {
		if !strings.Contains(tool.Instructions(), c.claim) {
			t.Errorf("the instructions do not say %q", c.claim)
		}
		if got := texts(t, tool, c.code)[0]; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %.80q got %.300q, want %q", c.claim, c.code, got, c.want)
		}
	}
}

const generous = 30 * time.Second

// padded is a program of so many bytes.
func padded(n int64) string {
	const code = "print('ran') #"
	return code + strings.Repeat("x", int(n)-len(code))
}

func TestFactsAndLimitsInTheInstructionsAreTrueOfARealSandbox(t *testing.T) {
	p := newPlace(t)
	tool := p.tool(t, generous)
	holds(t, tool,
		claim{"stock CPython " + p.facts.Python + " ", "import sys; print(sys.version.split()[0].rstrip('+'))", "stdout:\n" + p.facts.Python},
		claim{"Local time is UTC", "import time, datetime; print(time.tzname, time.timezone, datetime.datetime.now().astimezone().utcoffset())", "stdout:\n('UTC', 'UTC') 0 0:00:00"},
		claim{"print 1000 bytes", "print('x' * 999)", "stdout:\nxxx"},
		claim{"Of more than 500 bytes on standard output", "print('x' * 300 + 'y' * 300, end='')", "stdout:\n" + strings.Repeat("x", 250) + "\n[100 bytes left out here]\n" + strings.Repeat("y", 250)},
		claim{"or on standard error", "import sys; print('x' * 300 + 'y' * 300, end='', file=sys.stderr)", "stderr:\n" + strings.Repeat("x", 250) + "\n[100 bytes left out here]\n" + strings.Repeat("y", 250)},
		claim{"print 1000 bytes", "print('x' * 1000)", "Error: the program printed more than it may (1000 bytes)"},
		claim{"and be 2 KiB long", padded(bounds.MaxCode), "stdout:\nran"},
		claim{"and be 2 KiB long", padded(bounds.MaxCode + 1), "Error: the program was not run: "},
		claim{"Memory is 64 MiB, the interpreter's share included", "print(len([bytearray(1 << 20) for _ in range(40)]))", "stdout:\n40"},
		claim{"what does not fit raises MemoryError", "try: bytearray(64 << 20)\nexcept MemoryError: print('refused')", "stdout:\nrefused"},
		claim{"raises MemoryError", "l = []\ntry:\n while 1: l.append(bytearray(1 << 20))\nexcept MemoryError:\n l = None; print('refused')", "stdout:\nrefused"},
		claim{"one that goes beyond is stopped or refused, and told", "print('and the next one runs')", "stdout:\nand the next one runs"},
	)
	holds(t, p.tool(t, time.Second), claim{"run for 1s", "while True: pass", "Error: the program timed out after 1s"})

	t.Run("packages", func(t *testing.T) {
		if !p.venv {
			holds(t, tool, claim{
				"with its standard library and no other package", "import importlib.metadata as m; print(len(list(m.distributions())))", "stdout:\n0",
			})
			t.Skipf("needs a venv with requests, named by %s", venvEnv)
		}
		at := slices.IndexFunc(p.facts.Packages, func(p sandbox.Package) bool { return p.Name == "requests" })
		if at < 0 {
			t.Fatalf("no requests in %+v", p.facts)
		}
		holds(t, tool, claim{
			"the packages certifi ", "import certifi, requests; print(requests.__version__)", "stdout:\n" + p.facts.Packages[at].Version,
		}, claim{
			"requests " + p.facts.Packages[at].Version, "try: import pip\nexcept ImportError: print('nothing can be installed')", "stdout:\nnothing can be installed",
		})
		for _, installed := range p.facts.Packages {
			holds(t, tool, claim{
				installed.Name + " " + installed.Version, "import importlib.metadata as m; print(m.version('" + installed.Name + "'))", "stdout:\n" + installed.Version,
			})
		}
	})
	t.Run("absent modules", func(t *testing.T) {
		_, list, _ := strings.Cut(tool.Instructions(), "Not there: ")
		list, _, _ = strings.Cut(list, ".")
		// Those that no model wants on Linux, and what an import of does something.
		const others = "msilib, msvcrt, nt, winreg, winsound, nis, pydoc_data, turtledemo, antigravity, this"
		holds(t, tool, claim{"Not there: " + list, `import sys, importlib, warnings
warnings.simplefilter('ignore')
for name in getattr(sys, 'stdlib_module_names', ()):
 if name[0] == '_' or name in "` + list + ", " + others + `".split(', '): continue
 try: importlib.import_module(name)
 except ImportError as e: print(name, e)`, nothingPrinted})
	})
}

// website is on loopback; programs reach port 80 there and not the other.
func website(t *testing.T, address string) {
	t.Helper()
	body := make([]byte, microvm.MaxHTTPBody+1)
	for i := range body {
		body[i] = 'x'
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/most", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body[1:]) })
	mux.HandleFunc("/more", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	mux.HandleFunc("/length", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // a body that is cut off is shorter
		_, _ = fmt.Fprint(w, r.Method, n)
	})
	for _, port := range []string{":80", ":8080"} {
		l, err := net.Listen("tcp", address+port)
		if err != nil {
			t.Skipf("needs to serve at %s%s: %v", address, port, err)
		}
		s := &http.Server{Handler: mux}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		t.Cleanup(func() {
			_ = s.Close()
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}

func TestTermsOfTheNetworkInTheInstructionsAreTrue(t *testing.T) {
	const here, there = "127.0.0.78", "127.0.0.79"
	website(t, here)
	website(t, there)
	rules, err := sandbox.AllowHosts(here, there)
	if err != nil {
		t.Fatal(err)
	}
	rules[1].Methods = []string{"PUT"}
	tool := newPlace(t, rules[0].Host, rules[1].Host).tool(t, generous, rules...)
	const prelude = `import urllib.request as u
def ask(url, data=None, method=None):
 try: print(u.urlopen(u.Request('http://' + url, data, method=method)).read()[:20].decode())
 except OSError as e: print('refused')
`
	holds(t, tool,
		claim{"these hosts and nothing else: " + here + ", " + there + " (PUT only)", prelude + "ask('" + there + "/length', b'ab', 'PUT'); ask('" + there + "/length')", "stdout:\nPUT2\nrefused"},
		claim{"GET and POST unless said otherwise", prelude + "ask('" + here + "/length'); ask('" + here + "/length', b'abc'); ask('" + here + "/length', b'abc', 'PUT')", "stdout:\nGET0\nPOST3\nrefused"},
		claim{"ports 80 and 443 only", prelude + "ask('" + here + ":80/length'); ask('" + here + ":8080/length')", "stdout:\nGET0\nrefused"},
		claim{"up to 8 MiB a body, sent or received", "print(len(http_get('http://" + here + "/most')['body']) >> 20)", "stdout:\n8"},
		claim{"up to 8 MiB a body", "try: http_get('http://" + here + "/more')\nexcept OSError: print('refused')", "stdout:\nrefused"},
		claim{"up to 8 MiB a body", prelude + "ask('" + here + "/length', bytes(8 << 20)); ask('" + here + "/length', bytes((8 << 20) + 1))", "stdout:\nPOST8388608\nrefused"},
	)
}
