package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// offering is pythonSpec with tools.
func offering(t *testing.T, tools map[string]sandbox.ToolFunc) sandbox.Spec {
	t.Helper()
	var list []sandbox.Tool
	for name, f := range tools {
		list = append(list, sandbox.Tool{Name: name, Call: f, MaxResult: 100})
	}
	h, err := sandbox.NewHostTools(list...)
	if err != nil {
		t.Fatal(err)
	}
	spec := pythonSpec
	spec.Requires, spec.HostTools = spec.Requires.With(sandbox.CapHostTools), h
	return spec
}

func TestTheObserverHearsOfEveryCallOfAHostsTool(t *testing.T) {
	const secret = "s3cret"
	entered := make(chan struct{})
	spec := offering(t, map[string]sandbox.ToolFunc{
		"echo":  func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
		"fail":  func(_ context.Context, a json.RawMessage) (any, error) { return nil, errors.New(string(a)) },
		"panic": func(_ context.Context, a json.RawMessage) (any, error) { panic(string(a)) },
		"exit":  func(context.Context, json.RawMessage) (any, error) { runtime.Goexit(); return nil, nil },
		"wait": func(ctx context.Context, _ json.RawMessage) (any, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	observer := new(recorder)
	config := lenient(newFake("memory", sandbox.CapSnapshot, sandbox.CapHostTools))
	config.Observer = observer
	s := acquire(t, newRouter(t, config), spec)
	acquired, ok := observer.take()[0].(router.SandboxAcquired)
	if !ok || !slices.Equal(acquired.Spec.HostTools.Names, spec.HostTools.Names) {
		t.Errorf("acquired %+v", acquired)
	}
	call := func(ctx context.Context, name string) (sandbox.ExecResult, error) {
		return s.RunCode(ctx, fmt.Sprintf("call %q %q", name, `{"a":"`+secret+`"}`), time.Minute)
	}
	for name, want := range map[string]string{
		"echo": "returned", "fail": "failed", "panic": "panicked", "exit": "panicked", "nobody": "",
	} {
		result, err := call(t.Context(), name)
		isNil(t, name, err)
		if told := strings.Contains(result.StdoutText()+result.StderrText(), secret); told != (name == "echo" || name == "fail") {
			t.Errorf("%s: the program was told %q %q", name, result.StdoutText(), result.StderrText())
		}
		wantCalls(t, observer.take(), name, want, s.ID())
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := call(ctx, "wait")
	is(t, err, sandbox.ErrCanceled)
	heard := observer.take()
	for ; len(heard) == 0; heard = observer.take() { // it is told when it has ended, which the run does not await
		runtime.Gosched()
	}
	wantCalls(t, heard, "wait", "abandoned", s.ID())
}

// wantCalls checks that the events are one call of a tool, or none.
func wantCalls(t *testing.T, events []router.Event, name, outcome, id string) {
	t.Helper()
	if outcome == "" {
		if len(events) != 0 {
			t.Errorf("%s: the observer heard %+v", name, events)
		}
		return
	}
	if len(events) != 1 {
		t.Errorf("%s: the observer heard %+v", name, events)
		return
	}
	e, ok := events[0].(router.HostToolCalled)
	if !ok || e.Tool != name || e.Outcome.String() != outcome || e.Backend != "memory" || e.Key != mainKey ||
		e.Kind != pythonSpec.Kind || e.InstanceID != id || e.Duration < 0 || strings.Contains(fmt.Sprintf("%+v", e), "s3cret") {
		t.Errorf("%s: the observer heard %+v, want %s", name, events[0], outcome)
	}
}

// A tool that goes on though nobody waits is told at once, and once.
func TestACallThatNobodyWaitsForIsToldWhileItGoesOn(t *testing.T) {
	entered, hold, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	spec := offering(t, map[string]sandbox.ToolFunc{"stuck": func(context.Context, json.RawMessage) (any, error) {
		defer close(ended)
		close(entered)
		<-hold
		return "late", nil
	}})
	heard := make(chan router.HostToolCalled, 10)
	config := lenient(newFake("memory", sandbox.CapSnapshot, sandbox.CapHostTools))
	config.Observer = router.ObserverFunc(func(event router.Event) {
		if e, ok := event.(router.HostToolCalled); ok {
			heard <- e
		}
	})
	s := acquire(t, newRouter(t, config), spec)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := s.RunCode(ctx, `call "stuck" "{}"`, time.Minute)
	is(t, err, sandbox.ErrCanceled)
	if e := <-heard; e.Outcome != router.ToolAbandoned {
		t.Errorf("the observer heard %+v", e)
	}
	close(hold)
	<-ended
	run(t, s, `print "x"`, "x")
	if len(heard) != 0 {
		t.Errorf("the observer heard %+v again", <-heard)
	}
}

func TestAnObserverThatPanicsWhileNobodyWaitsEndsNoHost(t *testing.T) {
	entered, told, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	spec := offering(t, map[string]sandbox.ToolFunc{"stuck": func(context.Context, json.RawMessage) (any, error) {
		defer close(ended)
		close(entered)
		<-told // by another goroutine than this one
		return "late", nil
	}})
	config := lenient(newFake("memory", sandbox.CapSnapshot, sandbox.CapHostTools))
	config.Observer = router.ObserverFunc(func(event router.Event) {
		if _, ok := event.(router.HostToolCalled); ok {
			defer close(told)
			panic("the observer's own fault")
		}
	})
	s := acquire(t, newRouter(t, config), spec)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := s.RunCode(ctx, `call "stuck" "{}"`, time.Minute)
	is(t, err, sandbox.ErrCanceled)
	<-ended
	run(t, s, `print "x"`, "x")
}

func TestToolsWorkWithoutAnObserver(t *testing.T) {
	spec := offering(t, map[string]sandbox.ToolFunc{
		"echo": func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
	})
	b := newFake("memory", sandbox.CapSnapshot, sandbox.CapHostTools)
	s := acquire(t, newRouter(t, lenient(b)), spec)
	run(t, s, `call "echo" "{}"`, "{}")
}
