package telemetry_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

// printer stands for an exporter, such as that of OTLP: it prints spans as they
// end.
type printer struct{}

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		line := span.Name()
		for _, a := range span.Attributes() {
			if a.Key == "sandbox.stdout.size" || a.Key == "process.exit.code" {
				line += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
			}
		}
		_, _ = fmt.Fprintln(os.Stdout, strings.TrimSpace(line+" "+span.Status().Description))
	}
	return nil
}

func (printer) Shutdown(context.Context) error { return nil }

// A host that traces its agents decorates backend, router and tool. Without
// providers in the Config they are OpenTelemetry's global ones, which a host can
// also set later.
func Example() {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printer{}))
	i := telemetry.New(telemetry.Config{TracerProvider: provider})
	// A real host has microvm.New here; the backend in memory isolates nothing.
	backend := i.Backend(sandboxtest.New(sandboxtest.Config{}))
	defer func() { _ = backend.Close() }()
	r, err := router.New(router.Config{
		Backends:     []sandbox.Backend{backend},
		Observer:     i.Observer(nil), // or the host's own, which then hears the same
		MinIsolation: sandbox.IsolationNone,
		MinCleanup:   sandbox.CleanupReset,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tool, err := codeact.NewTool(i.Calls(r), codeact.Config{
		AgentID: "analyst",
		Caller:  func(context.Context) codeact.Caller { return codeact.Caller{Scope: "user-1", ThreadID: "thread-1"} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, code := range []string{`print "42"`, `raise "what only the model is told"`} {
		if _, err := tool.Execute(context.Background(), code); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// sandbox.acquire
	// sandbox.reset
	// sandbox.run sandbox.stdout.size=2 process.exit.code=0
	// sandbox.reset
	// sandbox.call
	// sandbox.acquire
	// sandbox.run sandbox.stdout.size=0 process.exit.code=1
	// sandbox.reset
	// sandbox.call
	// sandbox.close
}
