package mcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

const (
	stopped = "Error: the program was stopped: its sandbox was disposed of by somebody else"
	lost    = "The sandbox was lost: names, imports and files of earlier calls are gone."
)

// last is the last call of a kind that the backend received.
func last(t *testing.T, b *sandboxtest.Backend, op sandboxtest.Op) sandboxtest.Call {
	t.Helper()
	var found sandboxtest.Call
	for _, c := range b.Calls() {
		if c.Op == op {
			found = c
		}
	}
	if found.Op == "" {
		t.Fatalf("the backend received no %s", op)
	}
	return found
}

// endless starts a program that only an operator ends.
func endless(t *testing.T, cs *sdk.ClientSession, b *sandboxtest.Backend) <-chan answered {
	t.Helper()
	before := b.Count(sandboxtest.OpRunCode)
	result := make(chan answered, 1)
	go func() { result <- run(t, cs, "forever") }()
	eventually(t, "the program runs", func() bool { return b.Count(sandboxtest.OpRunCode) > before })
	return result
}

func quiesce(t *testing.T, s *mcp.Server, key sandbox.Key) (release func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	release, err := s.Quiesce(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func dispose(t *testing.T, b *sandboxtest.Backend, of sandboxtest.Call) {
	t.Helper()
	if err := b.Dispose(t.Context(), of.Key, sandbox.DisposeOptions{Kind: of.Kind, InstanceID: of.InstanceID}); err != nil {
		t.Error(err)
	}
}

func TestAModelIsToldOfASandboxThatAnOperatorRemoved(t *testing.T) {
	b := memory()
	s := serve(t, b, nil)
	cs, _ := connect(t, s, nil)
	run(t, cs, `set "x" "1"`)
	sandboxOf := last(t, b, sandboxtest.OpRunCode)

	release := quiesce(t, s, sandboxOf.Key)
	dispose(t, b, sandboxOf)
	waiting := make(chan answered, 1)
	go func() { waiting <- run(t, cs, `print "new"`) }()
	if runs := b.Count(sandboxtest.OpRunCode); runs != 1 {
		t.Errorf("%d programs have run, one was let in", runs)
	}
	release()
	if got := <-waiting; !got.Lost || got.Text != "stdout:\nnew\n\n"+lost {
		t.Errorf("the program after it: %+v", got)
	}
	if got := run(t, cs, `get "x"`); got.Lost || !strings.Contains(got.Text, "not defined") {
		t.Errorf("the next one: %+v", got)
	}
}

func TestAProgramThatAnOperatorStopsHasLostItsSandbox(t *testing.T) {
	for name, disposes := range map[string]bool{"who disposes of it": true, "who does not": false} {
		t.Run(name, func(t *testing.T) {
			b := memory()
			s := serve(t, b, nil)
			cs, _ := connect(t, s, nil)
			run(t, cs, `set "x" "1"`)
			result := endless(t, cs, b)
			before := last(t, b, sandboxtest.OpRunCode)
			release := quiesce(t, s, before.Key)
			if got := last(t, b, sandboxtest.OpRunCode); !got.Done || got.InstanceID != before.InstanceID {
				t.Errorf("quiescent with %+v", got)
			}
			if disposes {
				dispose(t, b, before)
			}
			release()
			if got := <-result; got.Kind != string(codeact.FailureDisposed) || !got.Lost || got.Text != stopped+"\n\n"+lost {
				t.Errorf("the program: %+v", got)
			}
			if got := run(t, cs, `get "x"`); got.Lost || !strings.Contains(got.Text, "not defined") {
				t.Errorf("the next one: %+v", got)
			}
			if b.Registered() != 1 {
				t.Errorf("%d sandboxes", b.Registered())
			}
		})
	}
}

// Calls that clean up after themselves do so after the operator, who would
// otherwise find another generation than the one on the screen.
func TestWithoutStateTheOperatorComesBeforeTheCleanup(t *testing.T) {
	b := memory()
	s := serve(t, b, func(c *mcp.Config) { c.KeepState = false })
	cs, _ := connect(t, s, nil)
	result := endless(t, cs, b)
	running := last(t, b, sandboxtest.OpRunCode)
	resets := b.Count(sandboxtest.OpReset)
	release := quiesce(t, s, running.Key)
	if b.Count(sandboxtest.OpReset) != resets || b.Count(sandboxtest.OpDispose) != 0 || b.Registered() != 1 {
		t.Errorf("the operator finds calls %v", b.Calls())
	}
	dispose(t, b, running)
	release()
	if got := <-result; got.Kind != string(codeact.FailureDisposed) || got.Lost || got.Text != stopped {
		t.Errorf("the program: %+v", got)
	}
	wants(t, run(t, cs, `print "new"`), "stdout:\nnew")
}

func TestAPurgeEndsASessionsSandboxAndNotTheSession(t *testing.T) {
	b := memory()
	s := serve(t, b, nil)
	one, _ := connect(t, s, nil)
	two, _ := connect(t, s, nil)
	run(t, two, `set "x" "2"`)
	run(t, one, `set "x" "1"`)
	result := endless(t, one, b)
	key := last(t, b, sandboxtest.OpRunCode).Key
	purge, err := s.Purge(t.Context(), key.Scope, key.ThreadID)
	if err != nil || purge.Disposed != 1 || purge.Err() != nil {
		t.Errorf("purge %+v, %v", purge, err)
	}
	if got := <-result; got.Kind != string(codeact.FailureDisposed) || !got.Lost {
		t.Errorf("the program: %+v", got)
	}
	wants(t, run(t, one, `print "new"`), "stdout:\nnew")
	wants(t, run(t, two, `get "x"`), "stdout:\n2")
	if purge, err := s.Purge(t.Context(), key.Scope, "another"); err != nil || purge.Disposed != 0 || purge.Err() != nil {
		t.Errorf("purge of nothing %+v, %v", purge, err)
	}
}

func TestWhoGivesUpOnAProgramThatDoesNotEndHasNothing(t *testing.T) {
	entered, end := make(chan struct{}), make(chan struct{})
	b := sandboxtest.New(sandboxtest.Config{
		Isolation: sandbox.IsolationMicroVM,
		Interpreter: func(ctx context.Context, p *sandboxtest.Program) (int, error) {
			if p.Code == "deaf" {
				close(entered)
				<-end
			}
			return sandboxtest.Interpret(ctx, p)
		},
	})
	s := serve(t, b, nil)
	cs, _ := connect(t, s, nil)
	result := make(chan answered, 1)
	go func() { result <- run(t, cs, "deaf") }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := last(t, b, sandboxtest.OpRunCode).Key
	if _, err := s.Quiesce(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("quiesce: %v", err)
	}
	if _, err := s.Purge(ctx, key.Scope, key.ThreadID); !errors.Is(err, context.Canceled) || b.Count(sandboxtest.OpDisposeScope) != 0 {
		t.Errorf("purge: %v", err)
	}
	close(end)
	<-result
	if got := run(t, cs, `print "new"`); got.Stdout != "new" {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestOperatorsReadWhoseSandboxItIs(t *testing.T) {
	for client, want := range map[string]string{
		"claude-code": "claude-code", "Visual Studio Code": "Visual-Studio-Code", "": "mcp-client", "..": "mcp-client",
		"\x1b[2Jé\n": "2J", "a/b": "a-b", strings.Repeat("n", 300): strings.Repeat("n", 40),
	} {
		b := memory()
		near, far := sdk.NewInMemoryTransports()
		s := serve(t, b, nil)
		go func() { _ = s.Serve(context.WithoutCancel(t.Context()), far) }()
		cs, err := sdk.NewClient(&sdk.Implementation{Name: client, Version: "1"}, nil).Connect(t.Context(), near, nil)
		if err != nil {
			t.Fatal(err)
		}
		run(t, cs, "")
		key := last(t, b, sandboxtest.OpRunCode).Key
		if key.Scope != "mcp" || key.AgentID != want || !strings.HasPrefix(key.ThreadID, "session-") || len(key.ThreadID) > 20 {
			t.Errorf("client %q has the key %s", client, key)
		}
		_ = cs.Close()
	}
}
