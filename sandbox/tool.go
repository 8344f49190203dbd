package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of tools and of what is said with them.
const (
	// MaxTools bounds the tools of one spec.
	MaxTools = 64
	// MaxToolName bounds a tool's name, in bytes: as much as the Model Context
	// Protocol has.
	MaxToolName = 128
	// MaxToolDescription and MaxToolParameters bound what a model is told of a
	// tool, in bytes.
	MaxToolDescription = 4 << 10
	MaxToolParameters  = 16 << 10
	// MaxToolArguments and MaxToolResult bound a call and its result, in bytes
	// of JSON.
	MaxToolArguments = 8 << 20
	MaxToolResult    = 8 << 20
	// MaxToolDepth is how deep lists and objects may lie in one another, in
	// arguments and results.
	MaxToolDepth = 64
	// MaxToolValues bounds the values of one call or result, names of objects
	// counted too: a short text can stand for a lot of memory.
	MaxToolValues = 1 << 20
	// MaxToolDigits bounds a number, in bytes without its sign: what Python
	// turns into an int (sys.int_info.default_max_str_digits).
	MaxToolDigits = 4300
	// MaxToolFailure bounds what a program is told of a failure, in bytes.
	MaxToolFailure = 4 << 10
)

// Tool is a function of the host that programs in a sandbox can call, in Python
// as call_tool(name, argument=value, ...).
//
// Arguments and results are JSON values, checked on the way: no number is
// rounded and no key given twice. What the program says is foreign, like
// everything from a sandbox.
type Tool struct {
	// Name is what programs call the tool by: ASCII letters, digits, "_", "-",
	// "." and "/".
	Name string
	// Description tells models what the tool does.
	Description string
	// Parameters is the JSON schema of the arguments, an object, for models;
	// nil says nothing about them. Whether arguments fit, the tool checks.
	Parameters json.RawMessage
	// Identity is on whose behalf the tool acts; unset means nobody's.
	Identity Identity
	// RequiresApproval asks for a person's word before programs run that could
	// call the tool. Tools that act for the user always ask.
	RequiresApproval bool
	// MaxResult bounds the result in bytes of JSON; zero means MaxToolResult.
	MaxResult int64
	// Call does the work. The arguments are a JSON object, valid and within the
	// bounds of this package, and the callee's to keep. The result is encoded
	// as by encoding/json; a json.RawMessage is taken as it is.
	//
	// The context has the values of the context of the run, and ToolCallerOf
	// says for which sandbox it is: never believe a program about that. It ends
	// with the run, or when the program does not wait any more, and a result
	// that comes later is dropped. A tool should end with it; the run does not
	// wait for one that goes on.
	//
	// The text of an error is shown to the program, so it must not hold what
	// programs may not know. A panic is shown as a failure without details. It
	// is called from any goroutine, for several calls at the same time.
	Call ToolFunc
}

// ToolFunc is the function of a tool, see Tool.Call.
type ToolFunc = func(ctx context.Context, arguments json.RawMessage) (any, error)

// Validate reports every problem of the tool, joined: each is a [*RefusalError]
// that matches [ErrInvalid].
func (t Tool) Validate() error {
	var problems []error
	refuse := func(field, asked, allowed string) {
		problems = append(problems, invalid(fmt.Sprintf("tool %q: %s", cut(t.Name), field), asked, allowed))
	}
	if err := checkToolName("tool.name", t.Name); err != nil {
		problems = append(problems, err)
	}
	if len(t.Description) > MaxToolDescription || !utf8.ValidString(t.Description) {
		refuse("description", fmt.Sprintf("%d bytes", len(t.Description)), fmt.Sprintf("up to %d bytes of UTF-8", MaxToolDescription))
	}
	if t.Parameters != nil && !isSchema(t.Parameters) {
		refuse("parameters", fmt.Sprintf("%d bytes", len(t.Parameters)), fmt.Sprintf("a JSON object of up to %d bytes of UTF-8", MaxToolParameters))
	}
	if !identityWords.has(uint8(t.Identity)) {
		refuse("identity", t.Identity.String(), "a word of the protocol")
	}
	if t.MaxResult < 0 || t.MaxResult > MaxToolResult {
		refuse("max_result", fmt.Sprintf("%d bytes", t.MaxResult), fmt.Sprintf("zero for the default, or up to %d", MaxToolResult))
	}
	if t.Call == nil {
		refuse("call", "nil", "a function")
	}
	return errors.Join(problems...)
}

func isSchema(text json.RawMessage) bool {
	return len(text) <= MaxToolParameters && utf8.Valid(text) && json.Valid(text) && bytes.TrimLeft(text, " \t\r\n")[0] == '{'
}

func checkToolName(subject, name string) error {
	const others = "_-./"
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r) {
			return invalid(subject, fmt.Sprintf("%q", cut(name)), "ASCII letters, digits, _ - . and /")
		}
	}
	if name == "" || len(name) > MaxToolName {
		return invalid(subject, fmt.Sprintf("a name of %d bytes", len(name)), fmt.Sprintf("1 to %d bytes", MaxToolName))
	}
	return nil
}

// HostTools are the host's tools that programs may call, with the sum of what a
// backend or a router must know of them. [NewHostTools] makes it of the tools.
type HostTools struct {
	// Names of the tools, in the order in which the host registered them.
	Names []string
	// ResultIntegrity is the least of what the tools return.
	ResultIntegrity SourceIntegrity
	// OutboundCaps are the labels that bound what the tools let out.
	OutboundCaps []string
	// Identities are on whose behalf the tools act.
	Identities Set[Identity]
	// RequiresApproval says that one of them wants a human's word first.
	RequiresApproval bool
	// HasUndeclared says that one of them declares none of the above.
	HasUndeclared bool
	// ResponseLimits bound the answers, in bytes by tool.
	ResponseLimits map[string]int64
	// MaxCallsPerRun bounds the calls of one run; zero is no bound.
	MaxCallsPerRun int

	tools []Tool
}

// NewHostTools is the tools with the sum of what they declare. It reports every
// problem of every tool.
func NewHostTools(tools ...Tool) (*HostTools, error) {
	h := &HostTools{tools: slices.Clone(tools)}
	var problems []error
	for i := range h.tools {
		t := &h.tools[i]
		problems = append(problems, t.Validate())
		t.Parameters = slices.Clone(t.Parameters)
		h.Names = append(h.Names, t.Name)
		if t.Identity != IdentityUnset {
			h.Identities = h.Identities.With(t.Identity)
		}
		h.RequiresApproval = h.RequiresApproval || t.asks()
		h.HasUndeclared = h.HasUndeclared || t.Identity == IdentityUnset && !t.RequiresApproval
		if t.MaxResult > 0 {
			if h.ResponseLimits == nil {
				h.ResponseLimits = map[string]int64{}
			}
			h.ResponseLimits[t.Name] = t.MaxResult
		}
	}
	if err := errors.Join(append(problems, h.validate())...); err != nil {
		return nil, err
	}
	return h, nil
}

// asks says whether a person's word is needed.
func (t *Tool) asks() bool { return t.RequiresApproval || t.Identity == IdentityUser }

// Tools are the functions behind the names; none when a spec only names tools.
func (h *HostTools) Tools() []Tool {
	if h == nil {
		return nil
	}
	return slices.Clone(h.tools)
}

// Decorated is a copy of the tools whose functions are what decorate makes of each:
// for who records or measures calls. All that they declare stays.
func (h *HostTools) Decorated(decorate func(t Tool) ToolFunc) *HostTools {
	c := h.clone()
	if c == nil {
		return nil
	}
	for i := range c.tools {
		c.tools[i].Call = decorate(c.tools[i])
	}
	return c
}

// clone copies the tools with their lists and maps.
func (h *HostTools) clone() *HostTools {
	if h == nil {
		return nil
	}
	c := *h
	c.Names = slices.Clone(c.Names)
	c.OutboundCaps = slices.Clone(c.OutboundCaps)
	c.ResponseLimits = maps.Clone(c.ResponseLimits)
	c.tools = slices.Clone(c.tools)
	return &c
}

// validate reports what is wrong with the sum, and where it does not cover the
// tools: who checks a spec reads the sum alone.
func (h *HostTools) validate() error {
	if h == nil {
		return nil
	}
	if len(h.Names) > MaxTools {
		return invalid("spec.host_tools", fmt.Sprintf("%d tools", len(h.Names)), fmt.Sprintf("up to %d", MaxTools))
	}
	var problems []error
	refuse := func(asked, allowed string) {
		problems = append(problems, invalid("spec.host_tools", asked, allowed))
	}
	seen := map[string]bool{}
	for _, name := range h.Names {
		if err := checkToolName("spec.host_tools", name); err != nil {
			problems = append(problems, err)
		} else if seen[name] {
			refuse(fmt.Sprintf("two tools named %q", name), "each name once")
		}
		seen[name] = true
	}
	for name, limit := range h.ResponseLimits {
		if limit < 0 || !seen[name] {
			refuse(fmt.Sprintf("a limit of %d bytes for %q", limit, cut(name)), "limits of zero or more, of tools that are there")
		}
	}
	if h.MaxCallsPerRun < 0 {
		refuse(fmt.Sprintf("%d calls", h.MaxCallsPerRun), "zero for no bound, or more")
	}
	if h.tools == nil {
		return errors.Join(problems...)
	}
	if !slices.EqualFunc(h.Names, h.tools, func(name string, t Tool) bool { return name == t.Name }) {
		refuse("names that are not those of the tools", "what NewHostTools made")
	}
	for i := range h.tools {
		t := &h.tools[i]
		if t.Identity != IdentityUnset && !h.Identities.Has(t.Identity) || t.asks() && !h.RequiresApproval {
			refuse(fmt.Sprintf("a sum that hides the identity or the approval of %q", t.Name), "what NewHostTools made")
		}
	}
	return errors.Join(problems...)
}

// sameAs says whether the tools are, by all that is declared of them, the same.
// The functions behind the names are not compared.
func (h *HostTools) sameAs(o *HostTools) bool {
	if h == nil || o == nil {
		return h == o
	}
	return slices.Equal(h.Names, o.Names) && h.ResultIntegrity == o.ResultIntegrity && slices.Equal(h.OutboundCaps, o.OutboundCaps) &&
		h.Identities == o.Identities && h.RequiresApproval == o.RequiresApproval && h.HasUndeclared == o.HasUndeclared &&
		maps.Equal(h.ResponseLimits, o.ResponseLimits) && h.MaxCallsPerRun == o.MaxCallsPerRun
}

// String is the names, for refusals.
func (h *HostTools) String() string {
	if h == nil {
		return "none"
	}
	return cut(strings.Join(h.Names, ", "))
}

// ToolCaller says for which sandbox a tool is called. All of it comes from the
// host that acquired the sandbox, nothing from the program.
type ToolCaller struct {
	// Key and Kind are what the sandbox was acquired under.
	Key  Key
	Kind string
	// InstanceID is the generation whose program calls.
	InstanceID string
}

type toolCallerKey struct{}

// ToolCallerOf is for whom the tool was called that has the context. It is false
// in any other context.
func ToolCallerOf(ctx context.Context) (ToolCaller, bool) {
	c, ok := ctx.Value(toolCallerKey{}).(ToolCaller)
	return c, ok
}

// WithToolCaller is the context for calls of tools; backends make it.
func WithToolCaller(ctx context.Context, c ToolCaller) context.Context {
	return context.WithValue(ctx, toolCallerKey{}, c)
}
