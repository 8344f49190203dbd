package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func nothing(context.Context, json.RawMessage) (any, error) { return nil, nil }

func TestToolsThatCannotBeAreRefusedInWords(t *testing.T) {
	many := make([]sandbox.Tool, sandbox.MaxTools+1)
	for i := range many {
		many[i] = sandbox.Tool{Name: "t" + strings.Repeat("x", i), Call: nothing}
	}
	for name, r := range map[string]struct {
		tools []sandbox.Tool
		words string
	}{
		"no name":           {[]sandbox.Tool{{Call: nothing}}, "a name of 0 bytes"},
		"a long name":       {[]sandbox.Tool{{Name: strings.Repeat("n", sandbox.MaxToolName+1), Call: nothing}}, "a name of 129 bytes"},
		"a name with space": {[]sandbox.Tool{{Name: "a b", Call: nothing}}, `"a b"`},
		"a foreign letter":  {[]sandbox.Tool{{Name: "é", Call: nothing}}, "ASCII"},
		"no function":       {[]sandbox.Tool{{Name: "a"}}, `tool "a": call: asked for nil`},
		"a name twice":      {[]sandbox.Tool{{Name: "a", Call: nothing}, {Name: "a", Call: nothing}}, `two tools named "a"`},
		"too many":          {many, "65 tools"},
		"a long text":       {[]sandbox.Tool{{Name: "a", Call: nothing, Description: strings.Repeat("d", sandbox.MaxToolDescription+1)}}, "description"},
		"no text":           {[]sandbox.Tool{{Name: "a", Call: nothing, Description: "\xff"}}, "description"},
		"a schema that is none": {
			[]sandbox.Tool{{Name: "a", Call: nothing, Parameters: json.RawMessage(`{`)}}, "parameters",
		},
		"a schema of nothing": {[]sandbox.Tool{{Name: "a", Call: nothing, Parameters: json.RawMessage(``)}}, "parameters"},
		"a schema that is no text": {
			[]sandbox.Tool{{Name: "a", Call: nothing, Parameters: json.RawMessage("{\"a\":\"\xff\"}")}}, "parameters",
		},
		"a schema that is a list": {
			[]sandbox.Tool{{Name: "a", Call: nothing, Parameters: json.RawMessage(` []`)}}, "parameters",
		},
		"a long schema": {
			[]sandbox.Tool{{Name: "a", Call: nothing, Parameters: json.RawMessage(`{"a":"` + strings.Repeat("x", sandbox.MaxToolParameters) + `"}`)}}, "parameters",
		},
		"an unknown identity": {[]sandbox.Tool{{Name: "a", Call: nothing, Identity: 99}}, "identity"},
		"a result below zero": {[]sandbox.Tool{{Name: "a", Call: nothing, MaxResult: -1}}, "max_result"},
		"a large result":      {[]sandbox.Tool{{Name: "a", Call: nothing, MaxResult: sandbox.MaxToolResult + 1}}, "max_result"},
	} {
		h, err := sandbox.NewHostTools(r.tools...)
		if h != nil || !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), r.words) {
			t.Errorf("%s: got %v, %v", name, h, err)
		}
	}
	_, err := sandbox.NewHostTools(sandbox.Tool{Name: "a b", Identity: 99, MaxResult: -1})
	for _, field := range []string{"tool.name", "identity", "max_result", "call"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

func TestToolsAreSummedUpForWhoDecides(t *testing.T) {
	plain := sandbox.Tool{Name: "plain", Call: nothing}
	app := sandbox.Tool{Name: "app", Call: nothing, Identity: sandbox.IdentityApp, MaxResult: 100}
	user := sandbox.Tool{Name: "user", Call: nothing, Identity: sandbox.IdentityUser}
	asks := sandbox.Tool{Name: "asks", Call: nothing, RequiresApproval: true}
	for name, r := range map[string]struct {
		tools      []sandbox.Tool
		identities []sandbox.Identity
		approval   bool
		undeclared bool
	}{
		"none":                {},
		"nothing is declared": {[]sandbox.Tool{plain}, nil, false, true},
		"for the application": {[]sandbox.Tool{app}, []sandbox.Identity{sandbox.IdentityApp}, false, false},
		"for both":            {[]sandbox.Tool{app, user}, []sandbox.Identity{sandbox.IdentityApp, sandbox.IdentityUser}, true, false},
		"asks":                {[]sandbox.Tool{asks, plain}, nil, true, true},
	} {
		h, err := sandbox.NewHostTools(r.tools...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.Identities.Members(), r.identities) || h.RequiresApproval != r.approval || h.HasUndeclared != r.undeclared ||
			len(h.Names) != len(r.tools) || len(h.Tools()) != len(r.tools) || h.ResultIntegrity != sandbox.Untrusted {
			t.Errorf("%s: got %+v", name, h)
		}
		spec := sandbox.Spec{Kind: "k", Requires: sandbox.SetOf(sandbox.CapHostTools), HostTools: h}
		if err := spec.Validate(); err != nil || spec.Identities() != h.Identities {
			t.Errorf("%s: %v, identities %v", name, err, spec.Identities())
		}
	}
	h, err := sandbox.NewHostTools(app, plain)
	if err != nil || h.ResponseLimits["app"] != 100 || len(h.ResponseLimits) != 1 || h.String() != "app, plain" {
		t.Errorf("got %+v, %v", h, err)
	}
}

// Who decides whether a spec is served sees the sum, so it must not be less than
// the tools are.
func TestASumThatHidesSomethingIsRefused(t *testing.T) {
	user := sandbox.Tool{Name: "user", Call: nothing, Identity: sandbox.IdentityUser}
	for name, change := range map[string]func(h *sandbox.HostTools){
		"another name":      func(h *sandbox.HostTools) { h.Names[0] = "other" },
		"no name":           func(h *sandbox.HostTools) { h.Names = nil },
		"no identity":       func(h *sandbox.HostTools) { h.Identities = sandbox.Set[sandbox.Identity]{} },
		"no approval":       func(h *sandbox.HostTools) { h.RequiresApproval = false },
		"calls below zero":  func(h *sandbox.HostTools) { h.MaxCallsPerRun = -1 },
		"a limit of nobody": func(h *sandbox.HostTools) { h.ResponseLimits = map[string]int64{"other": 1} },
	} {
		h, err := sandbox.NewHostTools(user)
		if err != nil {
			t.Fatal(err)
		}
		change(h)
		err = sandbox.Spec{Kind: "k", Requires: sandbox.SetOf(sandbox.CapHostTools), HostTools: h}.Validate()
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "spec.host_tools") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestALiveSandboxChangesWithWhatToolsDeclareAndNotWithTheirFunctions(t *testing.T) {
	with := func(change func(*sandbox.HostTools), tools ...sandbox.Tool) sandbox.Spec {
		h, err := sandbox.NewHostTools(tools...)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(h)
		}
		return sandbox.Spec{Kind: "k", Requires: sandbox.SetOf(sandbox.CapHostTools), HostTools: h}
	}
	a := sandbox.Tool{Name: "a", Call: nothing}
	again := sandbox.Tool{Name: "a", Call: func(context.Context, json.RawMessage) (any, error) { return 1, nil }}
	live := with(nil, a)
	if err := with(nil, again).Changed(live, "me"); err != nil {
		t.Errorf("other functions: %v", err)
	}
	for name, other := range map[string]sandbox.Spec{
		"no tools":         {Kind: "k", Requires: sandbox.SetOf(sandbox.CapHostTools)},
		"an empty set":     with(nil),
		"another name":     with(nil, sandbox.Tool{Name: "b", Call: nothing}),
		"an identity":      with(nil, sandbox.Tool{Name: "a", Call: nothing, Identity: sandbox.IdentityApp}),
		"a bound":          with(nil, sandbox.Tool{Name: "a", Call: nothing, MaxResult: 9}),
		"a bound of calls": with(func(h *sandbox.HostTools) { h.MaxCallsPerRun = 3 }, a),
	} {
		for _, err := range []error{other.Changed(live, "me"), live.Changed(other, "me")} {
			if !errors.Is(err, sandbox.ErrConfigurationChanged) || !strings.Contains(err.Error(), "spec.host_tools") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestForWhomAToolIsCalledIsInItsContextOnly(t *testing.T) {
	want := sandbox.ToolCaller{Key: sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}, Kind: "k", InstanceID: "i"}
	if got, ok := sandbox.ToolCallerOf(sandbox.WithToolCaller(t.Context(), want)); !ok || got != want {
		t.Errorf("got %+v, %t", got, ok)
	}
	if got, ok := sandbox.ToolCallerOf(t.Context()); ok || got != (sandbox.ToolCaller{}) {
		t.Errorf("got %+v, %t", got, ok)
	}
}

func TestDecoratedToolsDeclareTheSame(t *testing.T) {
	if got := (*sandbox.HostTools)(nil).Decorated(nil); got != nil {
		t.Errorf("no tools became %v", got)
	}
	h, err := sandbox.NewHostTools(
		sandbox.Tool{Name: "a", Call: nothing, Identity: sandbox.IdentityUser, MaxResult: 10}, sandbox.Tool{Name: "b", Call: nothing},
	)
	if err != nil {
		t.Fatal(err)
	}
	called := ""
	d := h.Decorated(func(t sandbox.Tool) sandbox.ToolFunc {
		return func(ctx context.Context, arguments json.RawMessage) (any, error) {
			called += t.Name
			return t.Call(ctx, arguments)
		}
	})
	plain := sandbox.Spec{Kind: "k", Requires: sandbox.SetOf(sandbox.CapHostTools), HostTools: h}
	decorated := plain
	decorated.HostTools = d
	if err := errors.Join(decorated.Validate(), plain.Changed(decorated, "test")); err != nil {
		t.Error(err)
	}
	for _, tools := range []*sandbox.HostTools{h, d} { // what was decorated stays as it was
		for _, tool := range tools.Tools() {
			if _, err := tool.Call(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
	}
	if called != "ab" {
		t.Errorf("called %q", called)
	}
}
