package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

// webAddress is a loopback address of this test's own, so that port 80 is free.
const webAddress = "127.83.12.41"

// web is a server on port 80. Who asks for /wait is told of and never answered.
func web(t *testing.T) (waiting <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(webAddress, "80"))
	if err != nil {
		t.Skipf("needs to listen on port 80: %v", err)
	}
	asked := make(chan struct{}, 1)
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			asked <- struct{}{}
			<-r.Context().Done()
		}
		_, _ = fmt.Fprint(w, "answer")
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return asked
}

// synced is a buffer that loggers of several goroutines write to.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// liveHost is a host over real micro-VMs, with all that a host would decorate.
func liveHost(t *testing.T, s *sdk, timeout time.Duration) (*telemetry.Calls, *codeact.Tool, *synced) {
	t.Helper()
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs a usable /dev/kvm: %v", err)
	}
	_ = kvm.Close()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("needs a Python to capture: %v", err)
	}
	dir, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	log := new(synced)
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	vm, err := microvm.New(microvm.Config{
		Private: true, CacheDir: dir, Enforcement: microvm.EnforceRlimit, StartupTimeout: 2 * time.Minute,
		PrivateHosts: []sandbox.Host{sandbox.MustHost(webAddress)}, Grace: 10 * time.Second, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	i := telemetry.New(s.config)
	b := i.Backend(vm)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := router.New(router.Config{
		Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset, Observer: i.Observer(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	allow, err := sandbox.AllowHosts(webAddress)
	if err != nil {
		t.Fatal(err)
	}
	calls := i.Calls(r)
	tool, err := codeact.NewTool(calls, codeact.Config{
		AgentID: mainKey.AgentID, Timeout: timeout, Allow: allow, Logger: logger, Tools: []sandbox.Tool{{
			Name: "fail", Call: func(_ context.Context, arguments json.RawMessage) (any, error) {
				return nil, errors.New(string(arguments))
			},
		}},
		Caller: func(context.Context) codeact.Caller {
			return codeact.Caller{Scope: mainKey.Scope, ThreadID: mainKey.ThreadID}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls, tool, log
}

// cache is a cache folder for all tests, so that Python is captured once.
var cache = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "telemetry-test-") })

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, err := cache(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// secret is in what the programs below are, print, raise and reach for.
const secret = "s3cret"

func TestACallInARealSandboxIsOneTreeWithoutAWordOfTheProgram(t *testing.T) {
	web(t)
	s := newSDK(t)
	_, tool, log := liveHost(t, s, time.Minute)
	ctx, span := s.tracer.Start(t.Context(), "request")
	outcome := execute(ctx, t, tool, `
try: call_tool("fail", word="`+secret+`")
except Exception as e: print(e)
print("`+secret+`", http_get("http://`+webAddress+`/`+secret+`")["body"])
for url in "http://`+secret+`.example/", "http://`+secret+`.example:8080/", "ftp://`+webAddress+`/`+secret+`":
    try: http_get(url)
    except OSError as e: print(type(e).__name__)
    except ValueError as e: print(type(e).__name__)
import os
os.environ["`+secret+`"] = "`+secret+`"
raise KeyError("`+secret+`")
`)
	span.End()
	if text := outcome.Report(); !strings.Contains(text, secret+" answer") || !strings.Contains(text, "KeyError: '"+secret+"'") {
		t.Fatalf("the program reported %q", text)
	}
	// The sandbox vouches for itself, so that nothing is reset before the run.
	equal(t, "the tree", s.tree("sandbox.tool.name", "sandbox.egress.reason", "server.address", "process.exit.code"), `request
  sandbox.call
    sandbox.acquire
    sandbox.run process.exit.code=1
      sandbox.tool sandbox.tool.name=fail Error: tool_failed
      sandbox.egress sandbox.egress.reason=allowed server.address=`+webAddress+`
      sandbox.egress sandbox.egress.reason=host_not_listed Error: host_not_listed
      sandbox.egress sandbox.egress.reason=port_not_allowed Error: port_not_allowed
      sandbox.egress sandbox.egress.reason=scheme_not_allowed Error: scheme_not_allowed
    sandbox.reset
`)
	const of = "sandbox.egress.decisions{sandbox.backend=microvm,sandbox.egress.allowed="
	equalLines(t, "the decisions", s.series(t, "sandbox.egress"),
		of+"false,sandbox.egress.reason=host_not_listed,sandbox.kind=codeact} 1",
		of+"false,sandbox.egress.reason=port_not_allowed,sandbox.kind=codeact} 1",
		of+"false,sandbox.egress.reason=scheme_not_allowed,sandbox.kind=codeact} 1",
		of+"true,sandbox.egress.reason=allowed,sandbox.kind=codeact} 1")
	equalLines(t, "the count", s.series(t, "sandbox.count"), "sandbox.count{sandbox.backend=microvm,sandbox.kind=codeact,sandbox.state=ready} 1")
	equalLines(t, "the acquisitions", s.series(t, "sandbox.acquisitions"),
		"sandbox.acquisitions{sandbox.adoption=fresh,sandbox.backend=microvm,sandbox.kind=codeact} 1")
	for _, key := range []attribute.Key{"sandbox.isolation", "sandbox.instance.id", "sandbox.code.size", "sandbox.stdout.size"} {
		if value, there := attributeOf(s.span(t, "sandbox.run"), key); !there || value.String() == "" || value.String() == "0" {
			t.Errorf("%s is %q", key, value.String())
		}
	}
	s.silent(t, append(identities, secret)...)
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has the secret: %s", log)
	}
}

func TestHowRealProgramsEndIsInTheirSpans(t *testing.T) {
	waiting := web(t)
	s := newSDK(t)
	calls, tool, log := liveHost(t, s, time.Minute)
	worker := func(ctx context.Context, box sandbox.Sandbox) int {
		reporter, ok := box.(liveness.Reporter)
		if !ok || ctx.Err() != nil {
			t.Fatalf("%T says nothing of its worker", box)
		}
		return reporter.Liveness().ProcessID
	}
	for _, r := range []struct {
		name    string
		code    string
		timeout time.Duration
		killed  bool
		want    string
	}{
		{"it obeys when its time is over", "# " + secret + "\nwhile True: pass", 300 * time.Millisecond, false, `sandbox.call Error: timeout
  sandbox.acquire
  sandbox.run sandbox.usable=true Error: timeout
  sandbox.reset
`},
		{"it ends its interpreter", "import os\nprint('" + secret + "', flush=True)\nos._exit(7)", 0, false, `sandbox.call Error: guest_crash
  sandbox.acquire
  sandbox.run sandbox.usable=false Error: guest_crash
  sandbox.reset sandbox.usable=false Error: worker_lost
  sandbox.dispose
`},
		{"its worker is killed", "http_get('http://" + webAddress + "/wait')", 0, true, `sandbox.call Error: worker_lost
  sandbox.acquire
  sandbox.run sandbox.usable=false Error: worker_lost
    sandbox.egress Error: connection_failed
  sandbox.reset sandbox.usable=false Error: worker_lost
  sandbox.dispose
`},
	} {
		t.Run(r.name, func(t *testing.T) {
			s.spans.Reset()
			err := calls.WithSandbox(t.Context(), mainKey, tool.Spec(), func(ctx context.Context, box sandbox.Sandbox) error {
				ended := make(chan struct{})
				killed := make(chan struct{})
				pid := worker(ctx, box)
				go func() {
					defer close(killed)
					select {
					case <-waiting:
						_ = syscall.Kill(pid, syscall.SIGKILL) // this test's own
					case <-ended:
					}
				}()
				_, err := box.RunCode(ctx, r.code, r.timeout)
				close(ended)
				<-killed
				return err
			})
			if err == nil {
				t.Error("no error")
			}
			equal(t, "the tree", s.tree("sandbox.usable"), r.want)
		})
	}
	var lines []string
	for line := range strings.Lines(log.String()) {
		found := regexp.MustCompile(`"level":"(\w+)".*"error_type":"(\w+)"`).FindStringSubmatch(line)
		if found == nil {
			t.Errorf("logged %s", line)
			continue
		}
		lines = append(lines, found[1]+" "+found[2])
	}
	equalLines(t, "the log", lines, "INFO guest_crash", "WARN worker_lost")
	s.silent(t, append(identities, secret)...)
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has the secret: %s", log)
	}
	var refusal *sandbox.RefusalError
	if err := calls.EnsureCanServe(sandbox.Spec{Kind: "k", MinIsolation: sandbox.IsolationVM}); !errors.As(err, &refusal) {
		t.Errorf("EnsureCanServe = %v", err)
	}
}
