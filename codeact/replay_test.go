package codeact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// recorded is one row of what the Python originals did with a scripted backend.
type recorded struct {
	Case         string          `json:"case"`
	Results      [][]string      `json:"results"`
	BackendCalls [][]any         `json:"backend_calls"`
	AttachError  string          `json:"attach_error"`
	Tools        *int            `json:"tools"`
	Name         string          `json:"name"`
	ApprovalMode string          `json:"approval_mode"`
	Parameters   json.RawMessage `json:"parameters"`
}

func readRecorded(t *testing.T, file string) []recorded {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []recorded
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// scripted is the backend of the recordings: every program ends as the script
// says, and every call is noted in the recordings' words.
type scripted struct {
	result sandbox.ExecResult
	err    error // of RunCode
	// refusal is what Acquire fails with; resets fail after the first acquire.
	refusal     error
	resetsFail  bool
	declares    sandbox.Declarations
	mu          sync.Mutex
	live        map[string]*scriptedBox
	generations int
	calls       [][]any
}

type scriptedBox struct {
	backend  *scripted
	id       string
	acquires int
	fails    bool
}

func newScripted() *scripted {
	return &scripted{
		result: sandbox.ExecResult{Stdout: []byte("42\n")}, live: map[string]*scriptedBox{},
		declares: sandbox.Declarations{
			Capabilities: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot),
			EgressModes:  sandbox.SetOf(sandbox.EgressClosed, sandbox.EgressAllowlist),
		},
	}
}

func (b *scripted) note(call ...any)                   { b.calls = append(b.calls, call) }
func (b *scripted) Name() string                       { return "hyperlight" }
func (b *scripted) Isolation() sandbox.Isolation       { return sandbox.IsolationMicroVM }
func (b *scripted) Declarations() sandbox.Declarations { return b.declares }
func (b *scripted) Close() error                       { return nil }

func (b *scripted) DisposeScope(context.Context, string, string) sandbox.ScopePurge {
	return sandbox.ScopePurge{}
}

func (b *scripted) generation() string {
	b.generations++
	return fmt.Sprint("generation ", b.generations)
}

func (b *scripted) Acquire(_ context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := key.String() + " " + spec.Kind
	s, warm := b.live[place]
	b.note("acquire", spec.Kind, key.Scope, key.ThreadID, key.AgentID, key.CallID, map[bool]string{true: "warm", false: "cold"}[warm])
	if b.refusal != nil {
		return nil, b.refusal
	}
	if !warm {
		s = &scriptedBox{backend: b, id: b.generation()}
		b.live[place] = s
	}
	s.fails = b.resetsFail && s.acquires > 0
	s.acquires++
	return s, nil
}

func (b *scripted) Dispose(_ context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := any(nil)
	if options.InstanceID != "" {
		id = "id"
	}
	b.note("dispose", options.Kind, id)
	delete(b.live, key.String()+" "+options.Kind)
	return nil
}

func (s *scriptedBox) ID() string {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	return s.id
}

func (s *scriptedBox) RunCode(_ context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	s.backend.note("run_code", code, timeout.Seconds())
	return s.backend.result, s.backend.err
}

func (s *scriptedBox) Reset(ctx context.Context) error {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	deadline, _ := ctx.Deadline()
	s.backend.note("reset", time.Until(deadline).Seconds())
	s.id = s.backend.generation()
	if s.fails {
		return errors.New("reset failed")
	}
	return nil
}

// scenario is what a recording was made of.
type scenario struct {
	backend func(b *scripted)
	router  func(c *router.Config)
	config  func(c *codeact.Config)
	// hosts are given to sandbox.AllowHosts.
	hosts []string
	codes []string
	// refused is the class of what the tool's construction says.
	refused error
	atOnce  bool
}

func lenient(c *router.Config) { c.MinCleanup = sandbox.CleanupReset }

// result is a scenario of one program that ends as given.
func result(stdout, stderr string, exit int) scenario {
	return scenario{router: lenient, backend: func(b *scripted) {
		b.result = sandbox.ExecResult{Stdout: []byte(stdout), Stderr: []byte(stderr), ExitCode: exit}
	}}
}

func failing(err error) scenario {
	return scenario{router: lenient, backend: func(b *scripted) { b.result, b.err = sandbox.ExecResult{}, err }}
}

var errSecret = errors.New("secret")

// scenarios are the recorded cases by name.
func scenarios() map[string]scenario {
	return map[string]scenario{
		"default cleanup, two calls":     {codes: []string{"print(42)", "print(43)"}},
		"min_cleanup RESET, three calls": {router: lenient, codes: []string{"print(42)", "print(42)", "print(42)"}},
		"min_cleanup RECLAIM, two calls": {
			router: func(c *router.Config) { c.MinCleanup = sandbox.CleanupReclaim }, codes: []string{"print(42)", "print(42)"},
		},
		"min_isolation_scope CALL": {
			router: func(c *router.Config) { c.MinIsolationScope = sandbox.ScopeCall }, refused: sandbox.ErrScopeNotEnforced,
		},
		"min_isolation VM": {
			router: func(c *router.Config) { c.MinIsolation = sandbox.IsolationVM }, refused: sandbox.ErrIsolationNotPermitted,
		},
		"RESET, reset fails after the call": {
			router: lenient, backend: func(b *scripted) { b.resetsFail = true }, codes: []string{"print(42)", "print(42)"},
		},
		"stderr and exit 1": result("before\n", "ZeroDivisionError: division by zero\n", 1),
		"exit 3 only":       result("", "", 3),
		"no output":         result("", "", 0),
		"stderr only":       result("", "warn\n", 0),
		"trailing newlines": result("a\n\n\n", "", 0),
		"leading newlines":  result("\n\na", "", 0),
		"large":             result(strings.Repeat("x", 1_000_000), "", 0),
		"not utf8":          result("\xff\xfe", "", 0),
		"queued timeout":    failing(&sandbox.OpError{Class: sandbox.ErrQueuedTimeout, Usable: true}),
		"timeout":           failing(&sandbox.OpError{Class: sandbox.ErrTimeout, Usable: true}),
		"worker error":      failing(errSecret),
		"acquire fails":     {backend: func(b *scripted) { b.refusal = errSecret }},
		"egress allow":      {hosts: []string{"api.example"}},
		"egress wildcard":   {hosts: []string{"*.example"}},
		"bad egress":        {hosts: []string{"http://a/"}, refused: sandbox.ErrInvalid},
		"timeout 7":         {config: func(c *codeact.Config) { c.Timeout = 7 * time.Second }},
		// Zero is the default here; what cannot be a time is below it.
		"timeout 0": {config: func(c *codeact.Config) { c.Timeout = -1 }, refused: sandbox.ErrInvalid},
		"denied capability": {
			router:  func(c *router.Config) { c.DeniedCapabilities = sandbox.SetOf(sandbox.CapRunCode) },
			refused: sandbox.ErrCapabilityDenied,
		},
		"code too large for files_in": {codes: []string{strings.Repeat("#", 9_000_000)}},
		"empty code":                  {codes: []string{""}},
		"no thread id": {
			config: func(c *codeact.Config) {
				c.Caller = func(context.Context) codeact.Caller { return codeact.Caller{Scope: "user-1"} }
			},
		},
		"three at once": {router: lenient, codes: []string{"print(0)", "print(1)", "print(2)"}, atOnce: true},
	}
}

// attach makes the scenario's tool.
func (s scenario) attach(b *scripted, shape codeact.Shape) (*codeact.Tool, error) {
	if s.backend != nil {
		s.backend(b)
	}
	rc := router.Config{Backends: []sandbox.Backend{b}}
	if s.router != nil {
		s.router(&rc)
	}
	r, err := router.New(rc)
	if err != nil {
		return nil, err
	}
	c := codeact.Config{
		AgentID: "analyst", Shape: shape,
		Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "user-1", ThreadID: "thread-1"} },
	}
	if c.Allow, err = sandbox.AllowHosts(s.hosts...); err != nil {
		return nil, err
	}
	if s.config != nil {
		s.config(&c)
	}
	tools, err := codeact.Tools(r, c)
	if err != nil {
		return nil, err
	}
	return tools[0], nil
}

func (s scenario) call(t *testing.T, tool *codeact.Tool) [][]string {
	t.Helper()
	codes := s.codes
	if codes == nil {
		codes = []string{"print(42)"}
	}
	results := make([][]string, len(codes))
	var group sync.WaitGroup
	for i, code := range codes {
		run := func() { results[i] = texts(t, tool, code) }
		if !s.atOnce {
			run()
			continue
		}
		group.Go(run)
	}
	group.Wait()
	return results
}

// texts calls a tool as a framework would.
func texts(t *testing.T, tool *codeact.Tool, code string) []string {
	t.Helper()
	args, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := tool.Call(t.Context(), string(args))
	if err != nil {
		t.Error(err)
		return nil
	}
	if text, plain := answer.(string); plain {
		return []string{text}
	}
	return answer.([]string)
}

// shortened is a text as the recordings keep it.
func shortened(text string) string {
	if count := len([]rune(text)); count >= 400 {
		return fmt.Sprintf("%s... (%d characters)", string([]rune(text)[:80]), count)
	}
	return text
}

func TestRecordingsOfTheOriginalsReplay(t *testing.T) {
	for _, original := range []struct {
		file  string
		shape codeact.Shape
	}{{"testdata/codeact-0.18.json", codeact.ShapePlain}, {"testdata/codeact-0.25.json", codeact.ShapeLabelled}} {
		known := scenarios()
		for _, row := range readRecorded(t, original.file) {
			t.Run(original.shape.String()+" "+row.Case, func(t *testing.T) {
				if row.Case == "tool" || row.Case == "no router" {
					return // tests of their own
				}
				s, ok := known[row.Case]
				if !ok {
					t.Fatal("no scenario of this name")
				}
				// The time that is left when a call is noted is exact there.
				synctest.Test(t, func(t *testing.T) { replay(t, s, row, original.shape) })
			})
			delete(known, row.Case)
		}
		if len(known) > 0 {
			t.Errorf("%s lacks %d scenarios", original.file, len(known))
		}
	}
}

func replay(t *testing.T, s scenario, row recorded, shape codeact.Shape) {
	t.Helper()
	b := newScripted()
	tool, err := s.attach(b, shape)
	if (row.AttachError != "") != (s.refused != nil) || !errors.Is(err, s.refused) {
		t.Fatalf("got %v, want %v; the original says %q", err, s.refused, row.AttachError)
	}
	if s.refused != nil {
		return
	}
	results := s.call(t, tool)
	for _, texts := range results {
		for i := range texts {
			texts[i] = shortened(texts[i])
		}
	}
	if !reflect.DeepEqual(results, row.Results) {
		t.Errorf("got  %q\nwant %q", results, row.Results)
	}
	if got, want := listed(b.calls, s.atOnce), listed(row.BackendCalls, s.atOnce); !slices.Equal(got, want) {
		t.Errorf("backend calls\ngot  %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

// listed are calls as texts; of programs that run at once the order is not
// known.
func listed(calls [][]any, atOnce bool) []string {
	list := make([]string, len(calls))
	for i, call := range calls {
		if atOnce && call[0] == "run_code" {
			call = []any{call[0], "", call[2]}
		}
		list[i] = fmt.Sprint(call)
	}
	return list
}

func TestTheToolIsTheOriginals(t *testing.T) {
	tool, err := scenario{}.attach(newScripted(), codeact.ShapeLabelled)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"testdata/codeact-0.18.json", "testdata/codeact-0.25.json"} {
		rows := readRecorded(t, file)
		row := rows[slices.IndexFunc(rows, func(r recorded) bool { return r.Case == "tool" })]
		got, err := json.Marshal(tool.Schema())
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		var canonical any
		if err := json.Unmarshal(row.Parameters, &canonical); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&want).Encode(canonical); err != nil {
			t.Fatal(err)
		}
		if string(got)+"\n" != want.String() || tool.Name() != row.Name {
			t.Errorf("%s: %s %s, want %s %s", file, tool.Name(), got, row.Name, &want)
		}
		if mode := tool.ApprovalMode(); string(mode) != row.ApprovalMode {
			t.Errorf("%s: the tool's approval is %s, the original says %s", file, mode, row.ApprovalMode)
		}
	}
}
