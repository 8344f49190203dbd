package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

// What a tool does itself is below its call, which is below the run.
func TestCallsOfToolsAreBelowTheirRunWithoutTheirWords(t *testing.T) {
	s := newSDK(t)
	h, err := sandbox.NewHostTools(
		sandbox.Tool{Name: "echo", Call: func(ctx context.Context, arguments json.RawMessage) (any, error) {
			_, span := s.tracer.Start(ctx, "work")
			span.End()
			return arguments, nil
		}},
		sandbox.Tool{Name: "fail", Call: func(_ context.Context, a json.RawMessage) (any, error) { return nil, errors.New(string(a)) }},
		sandbox.Tool{Name: "panic", Call: func(_ context.Context, a json.RawMessage) (any, error) { panic(string(a)) }},
	)
	if err != nil {
		t.Fatal(err)
	}
	spec := pythonSpec
	spec.Requires, spec.HostTools = spec.Requires.With(sandbox.CapHostTools), h
	box := acquire(t, telemetry.New(s.config).Backend(memory(sandboxtest.Config{})), spec)
	for _, name := range h.Names {
		if _, err := box.RunCode(t.Context(), fmt.Sprintf("call %q %q", name, `{"a":"s3cret"}`), 0); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "the tree", s.tree("sandbox.tool.name", "error.type"), `sandbox.acquire
sandbox.run
  sandbox.tool sandbox.tool.name=echo
    work
sandbox.run
  sandbox.tool sandbox.tool.name=fail error.type=tool_failed Error: tool_failed
sandbox.run
  sandbox.tool sandbox.tool.name=panic error.type=tool_panicked Error: tool_panicked
`)
	var measured []string
	for _, line := range s.series(t, "sandbox.operation") {
		if strings.Contains(line, "sandbox.operation=tool") {
			measured = append(measured, line)
		}
	}
	const of, ended = "sandbox.operation.duration{", "sandbox.backend=in-memory,sandbox.kind=python,sandbox.operation=tool,sandbox.outcome="
	equalLines(t, "the measurements", measured,
		of+"error.type=tool_failed,"+ended+"error,sandbox.tool.name=fail} 1",
		of+"error.type=tool_panicked,"+ended+"error,sandbox.tool.name=panic} 1",
		of+ended+"ok,sandbox.tool.name=echo} 1",
	)
	for _, span := range s.spans.Ended() {
		if id, there := attributeOf(span, attribute.Key("sandbox.instance.id")); span.Name() == "sandbox.tool" && (!there || id.String() != box.ID()) {
			t.Errorf("the call names the generation %q", id.String())
		}
	}
	s.silent(t, append(identities, "s3cret")...)
}

func TestTheCallOfAToolThatNobodyWaitsForSaysSo(t *testing.T) {
	s := newSDK(t)
	entered, ended := make(chan struct{}), make(chan struct{})
	h, err := sandbox.NewHostTools(sandbox.Tool{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	spec := pythonSpec
	spec.Requires, spec.HostTools = spec.Requires.With(sandbox.CapHostTools), h
	box := acquire(t, telemetry.New(s.config).Backend(memory(sandboxtest.Config{})), spec)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel(); close(ended) }()
	if _, err := box.RunCode(ctx, `call "wait" "{}"`, time.Minute); !errors.Is(err, sandbox.ErrCanceled) {
		t.Fatal(err)
	}
	<-ended
	for len(s.spans.Ended()) < 3 { // the run does not wait for the tool
		time.Sleep(time.Millisecond)
	}
	if kind, _ := attributeOf(s.span(t, "sandbox.tool"), "error.type"); kind.String() != "tool_abandoned" {
		t.Errorf("the call ended as %s", kind.String())
	}
}
