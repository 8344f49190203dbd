package codeact

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/strictjson"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Name is the name under which models call the tool.
const Name = "execute_code"

// Router lets calls to their sandboxes, as a *router.Router does.
type Router interface {
	// EnsureCanServe says why the spec cannot be served; nil when it can.
	EnsureCanServe(spec sandbox.Spec) error
	// Serve runs f with a sandbox, as router.Router.Serve does. Its error is that
	// of f when f was called.
	Serve(ctx context.Context, key sandbox.Key, spec sandbox.Spec, options router.CallOptions, f func(ctx context.Context, s sandbox.Sandbox) error) error
}

// Tool is execute_code. All methods may be called at the same time.
type Tool struct {
	config       Config
	router       Router
	instructions string
	spec         sandbox.Spec
}

// NewTool makes the tool. It reports every problem of the configuration at once,
// and what the router refuses: what could serve nothing is not offered to a
// model. Errors are those of package sandbox. Who gives it to a model without
// [Tools] heeds its ApprovalMode.
func NewTool(r Router, c Config) (*Tool, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, refuse("router", "nil", "a router")
	}
	tools, err := c.hostTools()
	if err != nil {
		return nil, err
	}
	t := &Tool{config: c, router: r, instructions: c.Instructions}
	if t.instructions == "" {
		t.instructions = c.instructions()
	}
	t.spec = c.spec(t.instructions, tools)
	if err := r.EnsureCanServe(t.spec); err != nil {
		return nil, err
	}
	return t, nil
}

// Tools makes the list of tools to give an agent: this one, or none when there is
// no router or it has no backend, so that the agent goes without.
func Tools(r *router.Router, c Config) ([]*Tool, error) {
	if r == nil || !r.Enabled() {
		return nil, nil
	}
	t, err := NewTool(r, c)
	if err != nil {
		return nil, err
	}
	return []*Tool{t}, nil
}

// Name is the constant Name.
func (*Tool) Name() string { return Name }

// Description is what the model reads before it calls: what the tool is for,
// the instructions, and what results look like.
func (t *Tool) Description() string { return t.config.description(t.instructions) }

// Instructions is the part of the description about the place where programs
// run. The execution contract stands for it.
func (t *Tool) Instructions() string { return t.instructions }

// Spec is what the tool's sandboxes must be.
func (t *Tool) Spec() sandbox.Spec { return t.spec.Clone() }

// SourceIntegrity is how far results may be trusted: they are whatever a program
// chose to print.
func (*Tool) SourceIntegrity() sandbox.SourceIntegrity { return sandbox.Untrusted }

// Schema is the JSON schema of the arguments; the caller's to change.
func (*Tool) Schema() any {
	return map[string]any{
		"type": "object", "title": "execute_code_input",
		"properties": map[string]any{"code": map[string]any{"title": "Code", "type": "string"}},
		"required":   []any{"code"},
	}
}

// ReturnSchema is the JSON schema of what Call returns; the caller's to change.
func (t *Tool) ReturnSchema() any {
	text := map[string]any{"type": "string"}
	if t.config.Shape == ShapePlain {
		return text
	}
	return map[string]any{"type": "array", "items": text}
}

// Call runs the program of the arguments, a JSON object with the member code,
// and returns what the model is told: a string in the plain shape, else a
// []string. Errors are an [*ArgumentError] and those of Execute.
func (t *Tool) Call(ctx context.Context, args string) (any, error) {
	code, err := ParseArguments(args)
	if err != nil {
		return nil, err
	}
	outcome, err := t.Execute(ctx, code)
	if err != nil {
		return nil, err
	}
	if t.config.Shape == ShapePlain {
		return outcome.Report(), nil
	}
	return outcome.Texts(), nil
}

// ArgumentError says what is wrong with the arguments of a call; nothing was
// started.
type ArgumentError struct {
	// Err is what is wrong with them.
	Err error
}

// Error is for the model that wrote the arguments.
func (e *ArgumentError) Error() string { return "the arguments of " + Name + ": " + e.Err.Error() }

// Unwrap gives the error inside.
func (e *ArgumentError) Unwrap() error { return e.Err }

// argumentBounds are those of arguments. JSON may write each byte of a program as
// six; the schema has no other member, and what a model adds is short.
var argumentBounds = strictjson.Bounds{Bytes: 6*MaxCode + 4096, Depth: 32, Values: 1024, Digits: 1024}

// ParseArguments gives the program in the arguments of a call. The error is an
// [*ArgumentError].
//
// The program that runs must be the one that others have read in the same text, such
// as the person who agreed to it: a name that comes twice and characters that are
// none are refused, and Code is not code. Other members mean nothing.
func ParseArguments(args string) (code string, err error) {
	if len(args) > argumentBounds.Bytes { // before it is copied
		return "", &ArgumentError{fmt.Errorf("%d bytes are more than the limit of %d", len(args), argumentBounds.Bytes)}
	}
	object := []byte(cmp.Or(args, "{}")) // a client may leave them out
	facts, err := strictjson.Check(object, argumentBounds)
	switch {
	case err != nil:
		return "", &ArgumentError{fmt.Errorf("want a JSON object with the string \"code\": %w", err)}
	case facts.Kind != '{':
		return "", &ArgumentError{fmt.Errorf("want a JSON object with the string \"code\", not a JSON %s", kind(facts.Kind))}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return "", &ArgumentError{err}
	}
	program, there := members["code"]
	if !there {
		return "", &ArgumentError{errors.New("the string \"code\" is missing")}
	}
	if k := kind(program[0]); k != "string" {
		return "", &ArgumentError{fmt.Errorf("\"code\" must be a string, not a JSON %s", k)}
	}
	if err := json.Unmarshal(program, &code); err != nil {
		return "", &ArgumentError{err}
	}
	return code, nil
}

// kind names a JSON value by its first byte.
func kind(first byte) string {
	switch first {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// Execute runs a program. Whatever happens to it is in the outcome; the error is
// ctx's, when nobody waits any more.
func (t *Tool) Execute(ctx context.Context, code string) (Outcome, error) {
	started := time.Now()
	outcome, err := t.execute(ctx, code)
	outcome.Duration, outcome.shape, outcome.maxShown = time.Since(started), t.config.Shape, t.config.MaxShown
	if err == nil {
		return outcome, nil
	}
	if over := ctx.Err(); over != nil {
		return outcome, fmt.Errorf("%s: %w", Name, over)
	}
	t.log(ctx, outcome, err)
	return outcome, nil
}

// log says why a program did not come to an end: as information where the program
// brought it about, as a warning where the host can do something about it. The
// error's text is left out once there was a sandbox, which may have had a say in
// it.
func (t *Tool) log(ctx context.Context, o Outcome, err error) {
	level := slog.LevelInfo
	attributes := []slog.Attr{
		slog.String("failure", string(o.Failure)), slog.String("error_type", sandbox.ErrorType(err)), slog.Duration("duration", o.Duration),
	}
	if o.had {
		attributes = append(attributes, slog.Bool("sandbox_kept", sandbox.Usable(err)))
	}
	switch o.Failure {
	case FailureUnavailable:
		level = slog.LevelWarn
		attributes = append(attributes, slog.Any("error", err))
	case FailureNoThread, FailureOther:
		level = slog.LevelWarn
	}
	t.config.Logger.LogAttrs(ctx, level, "a program did not come to an end", attributes...)
}

// execute gives, besides the outcome, the error behind a failure.
func (t *Tool) execute(ctx context.Context, code string) (o Outcome, err error) {
	caller := t.config.Caller(ctx)
	defer t.report(caller, time.Now(), &o)
	switch {
	case caller.ThreadID == "":
		o.fail(FailureNoThread, "no active thread context — execute_code must be called from within a thread")
		return o, errors.New("the caller has no thread")
	case len(code) > MaxCode:
		o.fail(FailureTooLarge, fmt.Sprintf("the program is %d bytes and this tool writes at most %d bytes per program. Nothing was shared.", len(code), MaxCode))
		return o, fmt.Errorf("a program of %d bytes", len(code))
	}
	key := sandbox.Key{Scope: caller.Scope, ThreadID: caller.ThreadID, AgentID: t.config.AgentID}
	err = t.router.Serve(ctx, key, t.spec, router.CallOptions{QueueTimeout: t.config.Timeout}, func(ctx context.Context, s sandbox.Sandbox) error {
		o.had = true
		result, err := s.RunCode(ctx, code, t.config.Timeout)
		o.take(result)
		return err
	})
	switch {
	case err == nil:
	case o.had:
		t.failed(&o, err)
	case errors.Is(err, sandbox.ErrQueuedTimeout):
		t.failed(&o, err)
	default:
		// Details are for the host's log: they may tell of its policy.
		o.fail(FailureUnavailable, "sandbox unavailable — degrading to T0 (LLM self-check only)")
	}
	return o, err
}

// report tells the router's observer, if there is one, that a call has ended.
func (t *Tool) report(caller Caller, started time.Time, o *Outcome) {
	reporter, ok := t.router.(interface{ Report(event router.Event) })
	if !ok {
		return
	}
	event := router.ToolCallEnded{Tool: Name, Kind: Kind, Duration: time.Since(started), Failure: string(o.Failure)}
	if caller.ThreadID != "" {
		event.Key = sandbox.Key{Scope: caller.Scope, ThreadID: caller.ThreadID, AgentID: t.config.AgentID}
	}
	reporter.Report(event)
}

// failed is the failure of a program that had a sandbox.
func (t *Tool) failed(o *Outcome, err error) {
	o.Lost = t.config.KeepsState && !sandbox.Usable(err)
	switch {
	case errors.Is(err, sandbox.ErrQueuedTimeout):
		o.fail(FailureQueued, "the deadline expired while queued; the program never started. Retry unchanged.")
	case errors.Is(err, sandbox.ErrTimeout):
		o.fail(FailureTimeout, "the program timed out after "+seconds(t.config.Timeout))
	case errors.Is(err, sandbox.ErrOutputLimit):
		o.fail(FailureOutput, "the program printed more than it may"+t.outputLimit())
	case errors.Is(err, sandbox.ErrMemory):
		o.fail(FailureMemory, "the program ran out of memory")
	case errors.Is(err, sandbox.ErrDeadlock):
		o.fail(FailureDeadlock, "every thread of the program waits for another one")
	case errors.Is(err, sandbox.ErrGuestCrash):
		o.fail(FailureCrash, "the program brought its interpreter down"+detail(err))
	case errors.Is(err, sandbox.ErrDisposed):
		o.fail(FailureDisposed, "the program was stopped: its sandbox was disposed of by somebody else")
	case errors.Is(err, sandbox.ErrRefused):
		o.fail(FailureRefused, "the program was not run: "+err.Error())
	default:
		o.fail(FailureOther, "could not run the program in the sandbox")
	}
}

func (t *Tool) outputLimit() string {
	if t.config.Bounds.MaxOutput == 0 {
		return ""
	}
	return " (" + size(t.config.Bounds.MaxOutput) + ")"
}

// detail is how a crash came about, as the backend tells it.
func detail(err error) string {
	var op *sandbox.OpError
	if !errors.As(err, &op) || op.Detail == "" {
		return ""
	}
	return ": " + op.Detail
}
