package telemetry

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The fakes answer with what they were asked, so that nothing can get lost on the
// way.
type (
	fakeSandbox struct{ said *[]any }
	fakeExec    struct{ said *[]any }
	fakeWriter  struct{ said *[]any }
	fakeReader  struct{ said *[]any }
	fakeLister  struct{ said *[]any }
	fakeRemover struct{ said *[]any }
	fakeReclaim struct{ said *[]any }
)

func say(said *[]any, what ...any) { *said = append(*said, what...) }

// failure is what every fake returns.
var failure = &sandbox.OpError{Op: "fake", Class: sandbox.ErrMemory, Usable: true}

func (f fakeSandbox) ID() string { return "id" }

func (f fakeSandbox) RunCode(_ context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	say(f.said, code, timeout)
	return sandbox.ExecResult{Stdout: []byte("out"), ExitCode: 3}, failure
}
func (f fakeSandbox) Reset(context.Context) error { say(f.said, "reset"); return failure }

func (f fakeExec) Exec(_ context.Context, argv []string, dir string, timeout time.Duration) (sandbox.ExecResult, error) {
	say(f.said, argv, dir, timeout)
	return sandbox.ExecResult{Stderr: []byte("err"), ExitCode: 4}, failure
}

func (f fakeWriter) WriteFile(_ context.Context, path string, data []byte) error {
	say(f.said, path, data)
	return failure
}

func (f fakeReader) Stat(_ context.Context, path string) (sandbox.Entry, error) {
	say(f.said, path)
	return sandbox.Entry{Path: path}, failure
}

func (f fakeReader) ReadFile(_ context.Context, path string, maxBytes int64) ([]byte, error) {
	say(f.said, path, maxBytes)
	return []byte("data"), failure
}

func (f fakeLister) List(_ context.Context, dir string) ([]sandbox.Entry, error) {
	say(f.said, dir)
	return []sandbox.Entry{{Path: dir}}, failure
}

func (f fakeRemover) Remove(_ context.Context, path string) error { say(f.said, path); return failure }

func (f fakeRemover) RemoveAll(_ context.Context, path string) error {
	say(f.said, "all", path)
	return failure
}
func (f fakeReclaim) Reclaim(context.Context) error { say(f.said, "reclaim"); return failure }

// fakeWith is a sandbox with some of the optional interfaces. Reflection cannot
// make such a type, so that these are chosen by hand: none, each, and all.
func fakeWith(said *[]any) map[string]sandbox.Sandbox {
	base := fakeSandbox{said}
	return map[string]sandbox.Sandbox{
		"none": base,
		"exec": struct {
			fakeSandbox
			fakeExec
		}{base, fakeExec{said}},
		"writer": struct {
			fakeSandbox
			fakeWriter
		}{base, fakeWriter{said}},
		"reader": struct {
			fakeSandbox
			fakeReader
		}{base, fakeReader{said}},
		"lister": struct {
			fakeSandbox
			fakeLister
		}{base, fakeLister{said}},
		"remover": struct {
			fakeSandbox
			fakeRemover
		}{base, fakeRemover{said}},
		"reclaimer": struct {
			fakeSandbox
			fakeReclaim
		}{base, fakeReclaim{said}},
		"all": struct {
			fakeSandbox
			fakeExec
			fakeWriter
			fakeReader
			fakeLister
			fakeRemover
			fakeReclaim
		}{base, fakeExec{said}, fakeWriter{said}, fakeReader{said}, fakeLister{said}, fakeRemover{said}, fakeReclaim{said}},
	}
}

// optionals are the optional interfaces of sandboxes whose absence says something.
var optionals = []reflect.Type{
	reflect.TypeFor[sandbox.Executor](), reflect.TypeFor[sandbox.FileWriter](), reflect.TypeFor[sandbox.FileReader](),
	reflect.TypeFor[sandbox.FileLister](), reflect.TypeFor[sandbox.FileRemover](), reflect.TypeFor[sandbox.Reclaimer](),
}

// always are those whose absence means the same as what the decorator then says.
var always = []reflect.Type{reflect.TypeFor[router.Voucher](), reflect.TypeFor[liveness.Reporter]()}

func recorded(t *testing.T) (*Instrumentation, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	return New(Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
	}), spans
}

type fakeBackend struct {
	sandbox.Backend
	gives sandbox.Sandbox
}

func (b *fakeBackend) Name() string                       { return "fake" }
func (b *fakeBackend) Isolation() sandbox.Isolation       { return sandbox.IsolationVM }
func (b *fakeBackend) Declarations() sandbox.Declarations { return sandbox.Declarations{} }
func (b *fakeBackend) Acquire(context.Context, sandbox.Key, sandbox.Spec) (sandbox.Sandbox, error) {
	return b.gives, nil
}

func decoratedBy(t *testing.T, i *Instrumentation, inner sandbox.Sandbox) sandbox.Sandbox {
	t.Helper()
	s, err := i.Backend(&fakeBackend{gives: inner}).Acquire(t.Context(), sandbox.Key{}, sandbox.Spec{Kind: "k"})
	if err != nil || s == inner {
		t.Fatalf("got %v, %v", s, err)
	}
	return s
}

func TestADecoratedSandboxCanExactlyWhatTheSandboxCan(t *testing.T) {
	i, _ := recorded(t)
	for name, inner := range fakeWith(new([]any)) {
		s := decoratedBy(t, i, inner)
		for _, optional := range optionals {
			has, had := reflect.TypeOf(s).Implements(optional), reflect.TypeOf(inner).Implements(optional)
			if has != had {
				t.Errorf("%s: %s is there: %t, and was: %t", name, optional, has, had)
			}
		}
		for _, kept := range always {
			if !reflect.TypeOf(s).Implements(kept) {
				t.Errorf("%s: %s is lost", name, kept)
			}
		}
		if of, ok := s.(interface{ Unwrap() sandbox.Sandbox }); !ok || of.Unwrap() != inner {
			t.Errorf("%s: the sandbox behind it cannot be had", name)
		}
	}
}

// The cases of decorate are generated; each has the interfaces that its number
// says.
func TestEverySetOfInterfacesHasItsDecorator(t *testing.T) {
	kinds := []int{hasExecutor, hasFileWriter, hasFileReader, hasFileLister, hasFileRemover, hasReclaimer}
	for want := range 1 << len(kinds) {
		// A decorator with these interfaces is also the sandbox of another one:
		// no other type can be had for each set.
		if got := optional(decorate(&box{inner: decorateBits(&box{}, want)})); got != want {
			t.Errorf("the decorator %06b has %06b", want, got)
		}
	}
	if len(kinds) != len(optionals) {
		t.Errorf("%d interfaces have bits, %d are known", len(kinds), len(optionals))
	}
}

func TestCallsReachTheSandboxUnchanged(t *testing.T) {
	i, spans := recorded(t)
	var said []any
	s := decoratedBy(t, i, fakeWith(&said)["all"])
	ctx := t.Context()
	var got []any
	take := func(value any, err error) {
		if err != error(failure) {
			t.Errorf("answer %d: error %v", len(got), err)
		}
		got = append(got, value)
	}
	r, err := s.RunCode(ctx, "code", time.Second)
	take(r, err)
	take(nil, s.Reset(ctx))
	r, err = s.(sandbox.Executor).Exec(ctx, []string{"a"}, "/d", time.Minute)
	take(r, err)
	files := s.(sandbox.FileStore)
	take(nil, files.WriteFile(ctx, "/w", []byte("w")))
	entry, err := files.Stat(ctx, "/s")
	take(entry, err)
	data, err := files.ReadFile(ctx, "/r", 7)
	take(data, err)
	list, err := files.List(ctx, "/l")
	take(list, err)
	take(nil, files.Remove(ctx, "/x"))
	take(nil, files.RemoveAll(ctx, "/y"))
	take(nil, s.(sandbox.Reclaimer).Reclaim(ctx))

	wantSaid := []any{
		"code", time.Second, "reset", []string{"a"}, "/d", time.Minute, "/w", []byte("w"), "/s", "/r", int64(7), "/l", "/x", "all", "/y", "reclaim",
	}
	if !reflect.DeepEqual(said, wantSaid) {
		t.Errorf("the sandbox was asked %v, want %v", said, wantSaid)
	}
	want := []any{
		sandbox.ExecResult{Stdout: []byte("out"), ExitCode: 3}, nil,
		sandbox.ExecResult{Stderr: []byte("err"), ExitCode: 4}, nil,
		sandbox.Entry{Path: "/s"}, []byte("data"), []sandbox.Entry{{Path: "/l"}}, nil, nil, nil,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the answers are %v, want %v", got, want)
	}
	var names []string
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
	}
	if text := fmt.Sprint(names); text != "[sandbox.acquire sandbox.run sandbox.reset sandbox.exec sandbox.file.write sandbox.file.stat sandbox.file.read "+
		"sandbox.file.list sandbox.file.remove sandbox.file.remove_all sandbox.reclaim]" {
		t.Errorf("the spans are %s", text)
	}
}

// complete is a backend with every optional interface of backends.
type complete struct {
	fakeBackend
	said   []any
	report func(sandbox.EgressObservation)
}

func (b *complete) Declarations() sandbox.Declarations {
	return sandbox.Declarations{ObservesEgress: true}
}
func (b *complete) ObserveEgress(report func(sandbox.EgressObservation)) { b.report = report }
func (b *complete) Warm(context.Context)                                 { say(&b.said, "warm") }
func (b *complete) Refused(_ sandbox.Key, kind string)                   { say(&b.said, "refused", kind) }
func (b *complete) Admitted(_ sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox) {
	say(&b.said, "admitted", spec.Kind, s)
}

var (
	_ router.EgressReporter   = (*Backend)(nil)
	_ router.AdmissionWatcher = (*Backend)(nil)
)

func TestADecoratedBackendPassesOnWhatRoutersTellABackend(t *testing.T) {
	i, _ := recorded(t)
	inner := &complete{fakeBackend: fakeBackend{gives: fakeWith(new([]any))["none"]}}
	b := i.Backend(inner)
	foreign := fakeSandbox{new([]any)}
	s, err := b.Acquire(t.Context(), sandbox.Key{}, sandbox.Spec{Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	b.Warm(t.Context())
	b.Refused(sandbox.Key{}, "k")
	b.Admitted(sandbox.Key{}, sandbox.Spec{Kind: "k"}, s)       // its own sandbox, not the decorator
	b.Admitted(sandbox.Key{}, sandbox.Spec{Kind: "k"}, foreign) // as it is
	want := []any{"warm", "refused", "k", "admitted", "k", inner.gives, "admitted", "k", foreign}
	if !reflect.DeepEqual(inner.said, want) {
		t.Errorf("the backend was told %v, want %v", inner.said, want)
	}
	if b.Unwrap() != sandbox.Backend(inner) || b.Name() != "fake" || b.Isolation() != sandbox.IsolationVM || !b.Declarations().ObservesEgress {
		t.Errorf("the backend is %s, %v", b.Name(), b.Isolation())
	}

	// Reports go on to whoever asked last; nil ends that, and not the recording.
	var reports int
	for _, r := range []struct {
		to   func(sandbox.EgressObservation)
		want int
	}{
		{func(sandbox.EgressObservation) { reports++ }, 1},
		{nil, 1},
		{func(sandbox.EgressObservation) { reports += 10 }, 11},
	} {
		b.ObserveEgress(r.to)
		inner.report(sandbox.EgressObservation{})
		if reports != r.want {
			t.Errorf("%d reports, want %d", reports, r.want)
		}
	}
}

// admitting is a backend that owns its sandboxes for the length of calls.
type admitting struct {
	fakeBackend
	calls int
}

func (b *admitting) Declarations() sandbox.Declarations {
	return sandbox.Declarations{
		EgressModes: sandbox.SetOf(sandbox.EgressClosed), OSFamilies: sandbox.SetOf(sandbox.OSPosix),
		IsolationScopes: sandbox.SetOf(sandbox.ScopeConversation),
	}
}
func (b *admitting) Dispose(context.Context, sandbox.Key, sandbox.DisposeOptions) error { return nil }
func (b *admitting) AdmitCall(context.Context, sandbox.Key, sandbox.Spec) (router.CallLease, error) {
	b.calls++
	return b, nil
}
func (b *admitting) Context(ctx context.Context) context.Context { return ctx }
func (b *admitting) Release()                                    { b.calls-- }

func TestARouterFindsABackendThatAdmitsCallsBehindItsDecorator(t *testing.T) {
	i, _ := recorded(t)
	inner := &admitting{}
	r, err := router.New(router.Config{Backends: []sandbox.Backend{i.Backend(inner)}})
	if err != nil {
		t.Fatal(err)
	}
	call, err := r.Enter(t.Context(), sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}, sandbox.Spec{Kind: "k"}, router.CallOptions{})
	if err != nil || inner.calls != 1 {
		t.Fatalf("%d calls were admitted, %v", inner.calls, err)
	}
	if err := call.Finish(t.Context()); err != nil || inner.calls != 0 {
		t.Errorf("%d calls are left, %v", inner.calls, err)
	}
}

func TestReportsOfCallsGoOnToTheRoutersObserver(t *testing.T) {
	i, _ := recorded(t)
	var got []router.Event
	r, err := router.New(router.Config{Observer: router.ObserverFunc(func(e router.Event) { got = append(got, e) })})
	if err != nil {
		t.Fatal(err)
	}
	event := router.ToolCallEnded{Tool: "execute_code"}
	i.Calls(r).Report(event)
	i.Calls(struct{ Router }{r}).Report(event) // one that hears nothing
	if !reflect.DeepEqual(got, []router.Event{event}) {
		t.Errorf("the observer heard %v", got)
	}
}

func TestABackendWithoutOptionalInterfacesIsNotAskedForThem(t *testing.T) {
	i, _ := recorded(t)
	b := i.Backend(&fakeBackend{gives: fakeSandbox{new([]any)}})
	b.Warm(t.Context())
	b.Refused(sandbox.Key{}, "k")
	b.Admitted(sandbox.Key{}, sandbox.Spec{}, nil)
	b.ObserveEgress(func(sandbox.EgressObservation) { t.Error("a report of nobody") })
}

func TestABackendThatGivesNothingGivesNothingDecorated(t *testing.T) {
	i, _ := recorded(t)
	s, err := i.Backend(&fakeBackend{}).Acquire(t.Context(), sandbox.Key{}, sandbox.Spec{Kind: "k"})
	if s != nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
}

// uncomparable is a sandbox of a type that panics when it is compared.
type uncomparable struct {
	fakeSandbox
	_ []int
}

func TestTheDecoratorOfASandboxStaysTheSame(t *testing.T) {
	i, _ := recorded(t)
	one, two := &fakeSandbox{new([]any)}, &fakeSandbox{new([]any)}
	inner := &fakeBackend{}
	b := i.Backend(inner)
	acquire := func(s sandbox.Sandbox) sandbox.Sandbox {
		inner.gives = s
		got, err := b.Acquire(t.Context(), sandbox.Key{}, sandbox.Spec{Kind: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := acquire(one)
	if acquire(one) != first {
		t.Error("the same sandbox has two decorators")
	}
	if acquire(two) == first {
		t.Error("another sandbox has the decorator of the first")
	}
	value := acquire(uncomparable{})
	if again := acquire(uncomparable{}); again == nil || value == nil {
		t.Error("no decorator")
	}
}
