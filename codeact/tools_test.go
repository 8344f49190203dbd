package codeact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// weather is a tool of a host.
var weather = sandbox.Tool{
	Name: "weather", Description: "How warm it is\n in a city.", Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}}}`),
	Call: func(_ context.Context, arguments json.RawMessage) (any, error) {
		var in struct{ City string }
		if err := json.Unmarshal(arguments, &in); err != nil {
			return nil, err
		}
		if in.City != "Bonn" {
			return nil, fmt.Errorf("no such city: %q", in.City)
		}
		return map[string]any{"celsius": 21.5}, nil
	},
}

// acting is the tool with an identity.
func acting(identity sandbox.Identity) sandbox.Tool {
	t := weather
	t.Identity = identity
	return t
}

// inMemory is a router over a backend in memory.
func inMemory(t *testing.T, change func(*router.Config)) *router.Router {
	t.Helper()
	c := router.Config{
		Backends: []sandbox.Backend{sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})}, MinCleanup: sandbox.CleanupReset,
	}
	if change != nil {
		change(&c)
	}
	r, err := router.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withTools is a configuration.
func withTools(tools ...sandbox.Tool) codeact.Config {
	return codeact.Config{
		AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} },
		Shape: codeact.ShapePlain, Tools: tools,
	}
}

func TestProgramsCallTheHostsTools(t *testing.T) {
	tool, err := codeact.NewTool(inMemory(t, nil), withTools(weather))
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{
		`call "weather" "{\"city\":\"Bonn\"}"`:  "stdout:\n{\"celsius\":21.5}",
		`call "weather" "{\"city\":\"Paris\"}"`: "stderr:\nerror: weather: no such city: \"Paris\"\n\nexit code: 1",
		`call "rain" "{}"`:                      "stderr:\nerror: rain: there is no tool \"rain\"; there are: weather\n\nexit code: 1",
	} {
		for range 2 { // in a sandbox that is new, and in one that was reset
			if got := texts(t, tool, code)[0]; got != want {
				t.Errorf("%s: got %q, want %q", code, got, want)
			}
		}
	}
}

func TestToolsAreToldToTheModelAndRequired(t *testing.T) {
	c := withTools(weather, sandbox.Tool{Name: "plain", Call: weather.Call})
	c.MaxToolCalls = 20
	tool, err := codeact.NewTool(inMemory(t, nil), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"as call_tool(name, argument=value, ...)", "A program may make 20 calls.",
		"\n- weather: How warm it is in a city. Arguments: {\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}\n- plain",
	} {
		if !strings.Contains(tool.Instructions(), want) || !strings.Contains(tool.Description(), want) {
			t.Errorf("%q is not in %q", want, tool.Instructions())
		}
	}
	spec := tool.Spec()
	if !spec.Requires.Has(sandbox.CapHostTools) || spec.HostTools.String() != "weather, plain" || spec.HostTools.MaxCallsPerRun != 20 {
		t.Errorf("spec %+v", spec)
	}
	without, err := codeact.NewTool(inMemory(t, nil), withTools())
	if err != nil {
		t.Fatal(err)
	}
	if w := without.Spec(); w.HostTools != nil || w.Requires.Has(sandbox.CapHostTools) || w.ExecutionContract == spec.ExecutionContract ||
		strings.Contains(without.Instructions(), "call_tool") {
		t.Errorf("without tools: %+v, %s", w, without.Instructions())
	}
}

func TestAPersonIsAskedWhenAToolActsForTheUser(t *testing.T) {
	asks := weather
	asks.RequiresApproval = true
	for name, r := range map[string]struct {
		tools []sandbox.Tool
		want  codeact.ApprovalMode
	}{
		"no tools":            {nil, codeact.ApprovalNever},
		"for nobody":          {[]sandbox.Tool{weather}, codeact.ApprovalNever},
		"for the application": {[]sandbox.Tool{acting(sandbox.IdentityApp)}, codeact.ApprovalNever},
		"for the user":        {[]sandbox.Tool{{Name: "plain", Call: weather.Call}, acting(sandbox.IdentityUser)}, codeact.ApprovalAlways},
		"asks itself":         {[]sandbox.Tool{asks}, codeact.ApprovalAlways},
	} {
		tools, err := codeact.Tools(inMemory(t, nil), withTools(r.tools...))
		if err != nil {
			t.Fatal(err)
		}
		// How Microsoft Agent Framework for Go knows.
		var approval interface{ ApprovalRequired() bool } = tools[0]
		required, mode := approval.ApprovalRequired(), tools[0].ApprovalMode()
		if mode != r.want || required != (r.want == codeact.ApprovalAlways) {
			t.Errorf("%s: %s, required %t; want %s", name, mode, required, r.want)
		}
		if got, err := tools[0].Call(t.Context(), `{"code":"print \"x\""}`); err != nil || got != "stdout:\nx" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestToolsThatCannotBeGivenAreRefusedBeforeAModelSeesThem(t *testing.T) {
	long := weather
	long.Description = strings.Repeat("x", sandbox.MaxToolDescription)
	var many []sandbox.Tool
	for i := range 5 {
		tool := long
		tool.Name = fmt.Sprint("tool", i)
		many = append(many, tool)
	}
	for name, r := range map[string]struct {
		config codeact.Config
		router func(*router.Config)
		reason error
		words  string
	}{
		"with instructions": {config: func() codeact.Config { c := withTools(weather); c.Instructions = "mine"; return c }(), reason: sandbox.ErrInvalid, words: "config.tools"},
		"calls below zero":  {config: func() codeact.Config { c := withTools(weather); c.MaxToolCalls = -1; return c }(), reason: sandbox.ErrInvalid, words: "config.max_tool_calls"},
		"a bad name":        {config: withTools(sandbox.Tool{Name: "a b", Call: weather.Call}), reason: sandbox.ErrInvalid, words: "tool.name"},
		"a name twice":      {config: withTools(weather, weather), reason: sandbox.ErrInvalid, words: "two tools named"},
		"too many words":    {config: withTools(many...), reason: sandbox.ErrInvalid, words: "up to 16384"},
		"a denied capability": {
			config: withTools(weather), router: func(c *router.Config) { c.DeniedCapabilities = sandbox.SetOf(sandbox.CapHostTools) },
			reason: sandbox.ErrCapabilityDenied, words: "host_tools",
		},
		"a denied identity": {
			config: withTools(acting(sandbox.IdentityUser)), router: func(c *router.Config) { c.DeniedIdentities = sandbox.SetOf(sandbox.IdentityUser) },
			reason: sandbox.ErrIdentityDenied, words: "user",
		},
		"a backend without tools": {
			config: withTools(weather), router: func(c *router.Config) { c.Backends = []sandbox.Backend{newScripted()} },
			reason: sandbox.ErrCapabilityNotSupported, words: "host_tools",
		},
	} {
		tools, err := codeact.Tools(inMemory(t, r.router), r.config)
		if tools != nil || !errors.Is(err, r.reason) || !strings.Contains(err.Error(), r.words) {
			t.Errorf("%s: got %v, %v", name, tools, err)
		}
	}
}

// A model's program calls a function of the host.
func ExampleConfig_tools() {
	r, err := router.New(router.Config{
		// A real host has microvm.New here; the backend in memory isolates nothing.
		Backends:     []sandbox.Backend{sandboxtest.New(sandboxtest.Config{})},
		MinIsolation: sandbox.IsolationNone,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stock := map[string]int{"bolt": 12}
	tools, err := codeact.Tools(r, codeact.Config{
		AgentID: "clerk", Shape: codeact.ShapePlain,
		Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "user-1", ThreadID: "thread-1"} },
		Tools: []sandbox.Tool{{
			Name: "stock", Description: "How many of an article are in stock.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"article":{"type":"string"}},"required":["article"]}`),
			Call: func(ctx context.Context, arguments json.RawMessage) (any, error) {
				var in struct{ Article string }
				if err := json.Unmarshal(arguments, &in); err != nil {
					return nil, err // the program reads it
				}
				// Who asks, the host knows; what the program says is foreign.
				caller, _ := sandbox.ToolCallerOf(ctx)
				n, there := stock[in.Article]
				if !there {
					return nil, fmt.Errorf("%s has no article %q", caller.Key.Scope, in.Article)
				}
				return n, nil
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, code := range []string{
		`call "stock" "{\"article\":\"bolt\"}"`, // in Python: print(call_tool("stock", article="bolt"))
		`call "stock" "{\"article\":\"nut\"}"`,
	} {
		args, _ := json.Marshal(map[string]string{"code": code})
		answer, err := tools[0].Call(context.Background(), string(args))
		fmt.Println(answer, err)
	}
	// Output:
	// stdout:
	// 12 <nil>
	// stderr:
	// error: stock: user-1 has no article "nut"
	//
	// exit code: 1 <nil>
}
