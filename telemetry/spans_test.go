package telemetry_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

var _ codeact.Router = (*telemetry.Calls)(nil)

// host is a router and a tool over a backend in memory, all of it decorated.
func host(t *testing.T, s *sdk, change func(*router.Config)) (*sandboxtest.Backend, *telemetry.Calls, *codeact.Tool) {
	t.Helper()
	b := memory(sandboxtest.Config{})
	i := telemetry.New(s.config)
	decorated := i.Backend(b)
	t.Cleanup(func() {
		if err := decorated.Close(); err != nil {
			t.Error(err)
		}
	})
	config := router.Config{
		Backends: []sandbox.Backend{decorated}, MinCleanup: sandbox.CleanupReset, Observer: i.Observer(nil),
	}
	if change != nil {
		change(&config)
	}
	r, err := router.New(config)
	if err != nil {
		t.Fatal(err)
	}
	calls := i.Calls(r)
	tool, err := codeact.NewTool(calls, codeact.Config{
		AgentID: mainKey.AgentID, Timeout: 20 * time.Second,
		Caller: func(context.Context) codeact.Caller {
			return codeact.Caller{Scope: mainKey.Scope, ThreadID: mainKey.ThreadID}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, calls, tool
}

func execute(ctx context.Context, t *testing.T, tool *codeact.Tool, code string) codeact.Outcome {
	t.Helper()
	outcome, err := tool.Execute(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func TestACallOfTheToolIsOneTree(t *testing.T) {
	s := newSDK(t)
	_, _, tool := host(t, s, nil)
	ctx, span := s.tracer.Start(t.Context(), "request")
	execute(ctx, t, tool, `print "s3cret"`)
	span.End()
	// The backend in memory vouches for nothing, so that its sandbox is reset
	// before anything reaches it.
	equal(t, "the tree", s.tree("sandbox.kind"), `request
  sandbox.call sandbox.kind=codeact
    sandbox.acquire sandbox.kind=codeact
    sandbox.reset sandbox.kind=codeact
    sandbox.run sandbox.kind=codeact
    sandbox.reset sandbox.kind=codeact
`)
	run := s.span(t, "sandbox.run")
	for key, want := range map[attribute.Key]string{
		"sandbox.backend": "in-memory", "sandbox.isolation": "microvm", "sandbox.code.size": "14", "sandbox.timeout": "20",
		"sandbox.stdout.size": "6", "sandbox.stderr.size": "0", "process.exit.code": "0",
	} {
		if got, there := attributeOf(run, key); !there || got.String() != want {
			t.Errorf("%s is %q, want %q", key, got.String(), want)
		}
	}
	if run.SpanKind() != trace.SpanKindInternal || run.Status().Code != codes.Unset {
		t.Errorf("the run is %v, %v", run.SpanKind(), run.Status())
	}
	s.silent(t, append(identities, "s3cret")...)
}

func TestGenerationsCanBeFollowedOverAReset(t *testing.T) {
	s := newSDK(t)
	b := telemetry.New(s.config).Backend(memory(sandboxtest.Config{}))
	box := acquire(t, b, pythonSpec)
	first := box.ID()
	if err := box.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	reset := s.span(t, "sandbox.reset")
	before, _ := attributeOf(reset, "sandbox.instance.id")
	after, _ := attributeOf(reset, "sandbox.instance.id.next")
	if before.AsString() != first || after.AsString() != box.ID() || first == box.ID() {
		t.Errorf("from %q to %q, want from %q to %q", before.AsString(), after.AsString(), first, box.ID())
	}
}

func TestAnErrorIsItsClassAndNotItsText(t *testing.T) {
	const secret = "s3cret"
	for _, r := range []struct {
		name string
		op   sandboxtest.Op
		err  error
		want string
	}{
		{"a time-out that the sandbox survived", sandboxtest.OpRunCode, &sandbox.OpError{Class: sandbox.ErrTimeout, Usable: true, Detail: secret}, "timeout"},
		{"a lost worker", sandboxtest.OpRunCode, &sandbox.OpError{Class: sandbox.ErrWorkerLost, Detail: secret}, "worker_lost"},
		{"a foreign error", sandboxtest.OpRunCode, errors.New(secret), "internal"},
		{"no sandbox", sandboxtest.OpAcquire, &sandbox.OpError{Class: sandbox.ErrUnavailable, Usable: true, Detail: secret}, "unavailable"},
		{"a disposal", sandboxtest.OpDispose, &sandbox.DisposalFailure{Code: sandbox.DisposalTimeout, Detail: secret}, "disposal_timeout"},
		{"a purge", sandboxtest.OpDisposeScope, &sandbox.DisposalFailure{Code: sandbox.DisposalRefused, Detail: secret}, "disposal_refused"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := newSDK(t)
			memory := memory(sandboxtest.Config{})
			b := telemetry.New(s.config).Backend(memory)
			memory.Always(r.op, sandboxtest.Step{Err: r.err})
			var span string
			switch box, err := b.Acquire(t.Context(), mainKey, pythonSpec); {
			case err != nil:
				span = "sandbox.acquire"
			case r.op == sandboxtest.OpDispose:
				span = "sandbox.dispose"
				_ = b.Dispose(t.Context(), mainKey, sandbox.DisposeOptions{})
			case r.op == sandboxtest.OpDisposeScope:
				span = "sandbox.dispose_scope"
				_ = b.DisposeScope(t.Context(), mainKey.Scope, mainKey.ThreadID)
			default:
				span = "sandbox.run"
				_, runErr := box.RunCode(t.Context(), `print "x"`, 0)
				usable, there := attributeOf(s.span(t, span), "sandbox.usable")
				if !there || usable.AsBool() != sandbox.Usable(runErr) {
					t.Errorf("usable is %v, %t", usable.AsBool(), there)
				}
			}
			ended := s.span(t, span)
			word, _ := attributeOf(ended, "error.type")
			if word.AsString() != r.want || ended.Status() != (sdktrace.Status{Code: codes.Error, Description: r.want}) {
				t.Errorf("error.type %q, status %v, want %q", word.AsString(), ended.Status(), r.want)
			}
			s.silent(t, append(identities, secret)...)
		})
	}
}

func TestIdentitiesAreOnSpansWhenTheHostSaysSo(t *testing.T) {
	s := newSDK(t)
	s.config.Identities = true
	_, calls, _ := host(t, s, nil)
	key := mainKey
	key.CallID = "call-x"
	spec := pythonSpec
	spec.IsolationScope = sandbox.ScopeCall
	if err := calls.WithSandbox(t.Context(), key, spec, func(context.Context, sandbox.Sandbox) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sandbox.call", "sandbox.acquire", "sandbox.dispose"} {
		for key, want := range map[attribute.Key]string{
			"sandbox.scope": "tenant-x", "sandbox.thread.id": "thread-x", "sandbox.agent.id": "agent-x", "sandbox.call.id": "call-x",
		} {
			if got, _ := attributeOf(s.span(t, name), key); got.AsString() != want {
				t.Errorf("%s: %s is %q", name, key, got.AsString())
			}
		}
	}
	for _, line := range s.series(t, "") {
		if strings.Contains(line, "-x") {
			t.Errorf("a metric has an identity: %s", line)
		}
	}
}

func TestARefusalIsOnTheSpanOfTheCall(t *testing.T) {
	s := newSDK(t)
	_, calls, _ := host(t, s, nil)
	spec := pythonSpec
	spec.MinIsolation = sandbox.IsolationVM
	err := calls.WithSandbox(t.Context(), mainKey, spec, func(context.Context, sandbox.Sandbox) error {
		t.Error("it is served")
		return nil
	})
	if !errors.Is(err, sandbox.ErrIsolationNotPermitted) {
		t.Errorf("got %v", err)
	}
	equal(t, "the tree", s.tree(), "sandbox.call Error: isolation_not_permitted\n")
	equalLines(t, "the refusals", s.series(t, "sandbox.refusals"),
		"sandbox.refusals{error.type=isolation_not_permitted,sandbox.kind=python} 1")
}

func TestACallThatPanicsEndsItsSpan(t *testing.T) {
	s := newSDK(t)
	_, calls, _ := host(t, s, nil)
	func() {
		defer func() { _ = recover() }()
		_ = calls.WithSandbox(t.Context(), mainKey, pythonSpec, func(context.Context, sandbox.Sandbox) error { panic("s3cret") })
	}()
	if status := s.span(t, "sandbox.call").Status(); status.Description != "internal" {
		t.Errorf("the call ended with %v", status)
	}
	s.silent(t, "s3cret")
}

func TestSamplersSeeTheKindAtTheStart(t *testing.T) {
	s := newSDK(t, sdktrace.WithSampler(onlyKind("codeact")))
	_, calls, tool := host(t, s, nil)
	execute(t.Context(), t, tool, `print "x"`)
	if err := calls.WithSandbox(t.Context(), mainKey, pythonSpec, func(context.Context, sandbox.Sandbox) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if tree := s.tree("sandbox.kind"); !strings.Contains(tree, "sandbox.run sandbox.kind=codeact") || strings.Contains(tree, "python") {
		t.Errorf("sampled were\n%s", tree)
	}
}

// onlyKind samples the spans of one kind.
type onlyKind string

func (k onlyKind) Description() string { return "one kind" }

func (k onlyKind) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, a := range p.Attributes {
		if a.Key == "sandbox.kind" && a.Value.AsString() == string(k) {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
		}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// A global provider can be set but once in a process, so that this test is
// another one.
func TestGlobalProvidersCanBeSetLater(t *testing.T) {
	const env = "MAF_SANDBOX_TEST_TELEMETRY_LATER"
	if os.Getenv(env) == "" {
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), env+"=1")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	s := newSDK(t)
	b := telemetry.New(telemetry.Config{}).Backend(memory(sandboxtest.Config{}))
	box := acquire(t, b, pythonSpec)
	if _, err := box.RunCode(t.Context(), `print "x"`, 0); err != nil {
		t.Fatal(err)
	}
	equal(t, "the tree before", s.tree(), "")
	otel.SetTracerProvider(s.config.TracerProvider)
	otel.SetMeterProvider(s.config.MeterProvider)
	if _, err := box.RunCode(t.Context(), `print "x"`, 0); err != nil {
		t.Fatal(err)
	}
	equal(t, "the tree", s.tree(), "sandbox.run\n")
	equalLines(t, "the measurements", s.series(t, ""),
		// Sandboxes that were there before are counted too.
		"sandbox.count{sandbox.backend=in-memory,sandbox.kind=python,sandbox.state=unknown} 1",
		"sandbox.operation.duration{sandbox.backend=in-memory,sandbox.kind=python,sandbox.operation=run,sandbox.outcome=ok} 1")
}
