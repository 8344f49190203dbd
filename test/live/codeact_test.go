//go:build linux && amd64

package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// threadKey is where the host of these tests keeps the conversation of a request.
type threadKey struct{}

func in(ctx context.Context, thread string) context.Context {
	return context.WithValue(ctx, threadKey{}, thread)
}

// newTool makes execute_code over a router.
func newTool(t *testing.T, r *router.Router, change func(*codeact.Config)) *codeact.Tool {
	t.Helper()
	c := codeact.Config{
		AgentID: "analyst", Shape: codeact.ShapePlain, Timeout: patience(30 * time.Second),
		Caller: func(ctx context.Context) codeact.Caller {
			thread, _ := ctx.Value(threadKey{}).(string)
			return codeact.Caller{Scope: "tenant", ThreadID: thread}
		},
		Allow: listing(here, insideName).EgressAllow,
		// What is said of the time limit is part of the contract under which a
		// sandbox is used, and some tests have two limits for one sandbox.
		Instructions: "Programs run in the sandbox of a test.",
	}
	if change != nil {
		change(&c)
	}
	tool, err := codeact.NewTool(r, c)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// executes calls the tool as a framework does.
func executes(t *testing.T, ctx context.Context, tool *codeact.Tool, code string) string { //nolint:revive // t comes first in this repository's helpers
	t.Helper()
	answer, err := tool.Call(ctx, `{"code": `+json(t, code)+`}`)
	if err != nil {
		t.Fatalf("%.60q: %v", code, err)
	}
	return fmt.Sprint(answer)
}

// seen notes events.
type seen struct {
	mu     sync.Mutex
	events []router.Event // guarded by mu
}

func (s *seen) Observe(event router.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

func (s *seen) take() []router.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

// modest claims to be as strong as the engine and has no network, so that a spec
// with a list of hosts is not for it.
func modest(b *microvm.Backend) sandbox.Backend {
	return sandboxtest.New(sandboxtest.Config{Name: "modest", Isolation: b.Isolation(), Declarations: &sandbox.Declarations{
		Capabilities: sandbox.SetOf(sandbox.CapRunCode), EgressModes: sandbox.SetOf(sandbox.EgressClosed),
		OSFamilies: sandbox.SetOf(sandbox.OSPosix), IsolationScopes: sandbox.SetOf(sandbox.ScopeConversation),
	}})
}

// TestCodeActIsServedUnderBothSelections is the original's live scenario: the
// tool over real sandboxes, with the backend fixed by name or chosen for each
// spec, and with either cleanup that can be between calls.
func TestCodeActIsServedUnderBothSelections(t *testing.T) {
	web := newSite(t)
	for _, selection := range []router.Config{
		{Selection: router.SelectFixed, Selected: "microvm"}, {Selection: router.SelectPerSpec},
	} {
		for _, cleanup := range []sandbox.Cleanup{sandbox.CleanupReset, sandbox.CleanupDispose} {
			t.Run(fmt.Sprint(selection.Selection, " ", cleanup), func(t *testing.T) {
				b := newBackend(t, onSite(web))
				events := new(seen)
				config := selection
				config.Backends, config.MinCleanup, config.Observer = []sandbox.Backend{modest(b), b}, cleanup, events
				r := newRouter(t, b, config)
				tool := newTool(t, r, nil)
				if chosen, err := r.BackendFor(tool.Spec()); err != nil || chosen != sandbox.Backend(b) {
					t.Fatalf("served by %v, %v", chosen, err)
				}
				serves(t, web, tool)
				told(t, events.take(), cleanup)
				if purge := r.DisposeScope(t.Context(), "tenant", "first"); purge.Undisposed != nil || purge.Disposed > 1 {
					t.Errorf("purge %+v", purge)
				}
				if keys := r.UncleanKeys(); len(keys) > 0 {
					t.Errorf("unclean %v", keys)
				}
			})
		}
	}
}

// serves has the tool do what agents have it do.
func serves(t *testing.T, web *site, tool *codeact.Tool) {
	t.Helper()
	ctx := in(t.Context(), "first")
	for _, row := range []struct{ name, code, want string }{
		{"it computes", "answer = 6 * 7\nprint(answer)", "stdout:\n42"},
		{"the next call starts anew", "import os; print('answer' in globals())", "stdout:\nFalse"},
		{"an exception has its line", "x = 1\nraise KeyError('k')", "stderr:\nTraceback (most recent call last):\n  File \"<sandbox>\", line 2, in <module>\n    raise KeyError('k')\nKeyError: 'k'\n\nexit code: 1"},
		{"after a failure it computes", "print(6*7)", "stdout:\n42"},
		{"nothing printed is told", "6*7", "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see."},
		{"a listed host", "print(http_get('http://" + here + "/')['status'], http_get('https://" + insideName + "/')['body'])", "stdout:\n200 GET||"},
		{"another host", "try: http_get('http://" + elsewhere + "/')\nexcept PermissionError as e: print('refused')", "stdout:\nrefused"},
		{"a listed host after a reset", "print(http_get('http://" + here + "/')['status'])", "stdout:\n200"},
	} {
		got := executes(t, ctx, tool, row.code)
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if hits := web.took(); len(hits) != 3 {
		t.Errorf("the servers were asked %q", hits)
	}
	if got := executes(t, in(t.Context(), "second"), tool, "print('answer' in globals())"); got != "stdout:\nFalse" {
		t.Errorf("another conversation: %q", got)
	}
	if got := executes(t, t.Context(), tool, "print(1)"); !strings.HasPrefix(got, "Error: no active thread context") {
		t.Errorf("without a conversation: %q", got)
	}
}

// told checks what the observer heard of the first conversation.
func told(t *testing.T, events []router.Event, cleanup sandbox.Cleanup) {
	t.Helper()
	ids := map[string]bool{}
	acquired, cleaned, reached, ended := 0, 0, 0, 0
	for _, event := range events {
		switch e := event.(type) {
		case router.SandboxAcquired:
			if e.Key.ThreadID != "first" {
				continue
			}
			acquired++
			ids[e.InstanceID] = true
			if e.Err != nil || e.Backend != "microvm" || e.Adoption != router.AdoptionFresh && e.Adoption != router.AdoptionKnown {
				t.Errorf("acquired %+v", e)
			}
		case router.SandboxCleaned:
			if e.Err != nil || e.Rung != sandbox.CleanupReset || e.Before == e.After {
				t.Errorf("cleaned %+v", e)
			}
			if e.Key.ThreadID == "first" {
				cleaned++
			}
		case router.SandboxDisposed:
			if e.Failure != nil || e.Options.InstanceID == "" {
				t.Errorf("disposed %+v", e)
			}
			if e.Key.ThreadID == "first" {
				cleaned++
			}
		case router.EgressObserved:
			reached += len(e.Decisions)
		case router.ToolCallEnded:
			if wanted := e.Key == (sandbox.Key{}); e.Tool != codeact.Name || (e.Failure == string(codeact.FailureNoThread)) != wanted {
				t.Errorf("ended %+v", e)
			}
			ended++
		}
	}
	if acquired != 8 || len(ids) != acquired || cleaned != acquired || reached != 4 || ended != 10 {
		t.Errorf("%s: %d acquisitions of %d generations, %d cleanups, %d requests, %d calls", cleanup, acquired, len(ids), cleaned, reached, ended)
	}
}

// What is cut short costs no conversation its next call.
func TestACallThatIsCutShortCostsTheNextOneNothing(t *testing.T) {
	web := newSite(t)
	b := newBackend(t, onSite(web))
	r := newRouter(t, b, router.Config{MinCleanup: sandbox.CleanupReset})
	tool := newTool(t, r, nil)
	short := newTool(t, r, func(c *codeact.Config) { c.Timeout = overrun(time.Second) })
	ctx := in(t.Context(), "first")
	for _, row := range []struct {
		name, want string
		cut        func() string
	}{
		{"time", "Error: the program timed out", func() string {
			return executes(t, ctx, short, "print('on', flush=True)\nwhile True: pass")
		}},
		{"output", "Error: the program printed more than it may", func() string {
			return executes(t, ctx, tool, "while True: print('y' * 4096)")
		}},
		{"crash", "Error: the program brought its interpreter down", func() string {
			return executes(t, ctx, tool, "import os; print('x', flush=True); os._exit(7)")
		}},
		{"network", "Error: the program timed out", func() string {
			return executes(t, ctx, short, "print('on', flush=True)\nhttp_get('http://"+here+"/wait')")
		}},
		{"client", "gave up", func() string {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := tool.Execute(ctx, "http_get('http://"+here+"/on')\nwhile True: pass")
				ended <- err
			}()
			web.waits(t, "GET http://"+here+"/on")
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a client that gave up: %v", err)
			}
			return "gave up"
		}},
	} {
		web.took()
		if got := row.cut(); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: %.200q", row.name, got)
		}
		if got := executes(t, ctx, tool, "print(6*7)"); got != "stdout:\n42" {
			t.Errorf("after %s: %q", row.name, got)
		}
	}
}
