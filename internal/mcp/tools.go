package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// result is the structured content beside the text; the words are those of
// maf-sandbox run --json.
type result struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ExitCode is null beside an error.
	ExitCode *int     `json:"exit_code"`
	Error    *failure `json:"error"`
	// LeftOut counts the bytes that are not in stdout and stderr, of a program that
	// printed much.
	LeftOut int `json:"left_out"`
	// StateLost says that what earlier calls left is gone though it was to stay.
	StateLost  bool    `json:"state_lost"`
	DurationMS float64 `json:"duration_ms"`
}

type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// outputSchema is the JSON schema of a result.
func outputSchema() map[string]any {
	typed := func(t any, description string) map[string]any {
		return map[string]any{"type": t, "description": description}
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"stdout":    typed("string", "what the program printed"),
			"stderr":    typed("string", "what it printed to standard error, with its traceback"),
			"left_out":  typed("integer", "bytes that it printed and that are left out of stdout and stderr; a line there says where"),
			"exit_code": typed([]any{"integer", "null"}, "what a process running the program would report"),
			"error": map[string]any{
				"type":        []any{"object", "null"},
				"description": "why the program did not come to an end of its own",
				"properties":  map[string]any{"kind": map[string]any{"type": "string"}, "message": map[string]any{"type": "string"}},
				"required":    []any{"kind", "message"},
			},
			"state_lost":  typed("boolean", "names, imports and files of earlier calls are gone"),
			"duration_ms": typed("number", "from the call to the result, waiting included"),
		},
		"required": []any{"stdout", "stderr", "left_out", "exit_code", "error", "state_lost", "duration_ms"},
	}
}

// addProgramTool offers execute_code, in place of the one that was offered before.
func (s *Server) addProgramTool(model *codeact.Tool) {
	no, online := false, len(s.config.Tool.Allow) > 0
	s.sdk.AddTool(&sdk.Tool{
		Name: model.Name(), Title: "Run Python", Description: model.Description(),
		InputSchema: model.Schema(), OutputSchema: outputSchema(),
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &online},
	}, s.execute)
}

func (s *Server) addResetTool() {
	no, yes := false, true
	s.sdk.AddTool(&sdk.Tool{
		Name: ResetName, Title: "Reset the sandbox",
		Description: "Put the Python sandbox of this session back to its start: names, imports and files of earlier programs are gone. " +
			"It has no parameters.",
		InputSchema: map[string]any{"type": "object", "properties": map[string]any{}},
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no, IdempotentHint: true},
	}, s.reset)
}

// visit begins a call in its session; leave must follow.
func (s *Server) visit(ctx context.Context, req *sdk.CallToolRequest) (of *session, inside context.Context, v *visit, leave func(), err error) {
	came := arrivalOf(req)
	if of, err = s.session(req.Session, came); err != nil {
		return nil, nil, nil, nil, err
	}
	inside, v, leave, err = of.enter(ctx, came)
	return of, inside, v, leave, err
}

// execute is execute_code. What a model can mend is a result, as the protocol
// wants; an error of Go answers a client that has given up.
func (s *Server) execute(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	code, err := codeact.ParseArguments(string(req.Params.Arguments))
	if err != nil {
		return refused(err), nil
	}
	of, ctx, v, leave, err := s.visit(ctx, req)
	if err != nil {
		return refused(err), nil
	}
	defer s.progress(ctx, req)()
	defer leave() // before that: the next call does not wait for what this client reads
	outcome, err := of.tool.Execute(ctx, code)
	if ctx.Err() != nil {
		of.owe(v) // who has given up reads no answer
	}
	if err != nil {
		return nil, coded(err)
	}
	outcome.Lost = outcome.Lost || v.lost
	return answer(outcome)
}

// reset is reset_sandbox.
func (s *Server) reset(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	of, ctx, v, leave, err := s.visit(ctx, req)
	if err != nil {
		return refused(err), nil
	}
	defer leave()
	there, err := of.reset(ctx, v)
	switch {
	case ctx.Err() != nil:
		return nil, coded(fmt.Errorf("%s: %w", ResetName, ctx.Err()))
	case err != nil:
		s.config.Logger.Error("a sandbox could not be reset", "key", of.key.String(), "error_type", sandbox.ErrorType(err))
		return told("Error: the sandbox could not be reset", true), nil
	case !there && !s.config.KeepState:
		return told("Every call starts anew: there is nothing to reset.", false), nil
	}
	return told("The sandbox is as new.", false), nil
}

func told(text string, isError bool) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: isError}
}

// refused is the result of a call that did nothing.
func refused(err error) *sdk.CallToolResult { return told("Error: "+err.Error(), true) }

// unavailable is what a model hears without a sandbox, and tells its user, whose
// client keeps the log. The tool's own words are for agents that have another way to
// check what they wrote.
const unavailable = "no sandbox could be had, and the program did not run. The log of this MCP server says why; 'maf-sandbox doctor' on its machine says what mends it."

// answer is the result of a program.
func answer(o codeact.Outcome) (*sdk.CallToolResult, error) {
	stdout, stderr, leftOut := o.Shown()
	r := result{
		Stdout: stdout, Stderr: stderr, LeftOut: leftOut, StateLost: o.Lost,
		DurationMS: float64(o.Duration.Round(time.Microsecond)) / float64(time.Millisecond),
	}
	text := o.Report()
	switch o.Failure {
	case "":
		r.ExitCode = &o.ExitCode
	case codeact.FailureUnavailable: // nothing ran that could have printed
		r.Error = &failure{Kind: string(o.Failure), Message: unavailable}
		text = "Error: " + unavailable
	default:
		r.Error = &failure{Kind: string(o.Failure), Message: o.Message()}
	}
	structured, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode a result: %w", err)
	}
	res := told(text, o.Failure != "")
	res.StructuredContent = json.RawMessage(structured)
	return res, nil
}

// progress tells a client that asked for it, every so often until stop, that its
// program still runs.
func (s *Server) progress(ctx context.Context, req *sdk.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	started := time.Now()
	limit := s.config.Tool.Timeout
	if limit == 0 {
		limit = codeact.DefaultTimeout
	}
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(s.config.Progress)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			gone := time.Since(started)
			// A client that does not take it will not take the result either.
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: token, Progress: gone.Seconds(), Total: limit.Seconds(),
				Message: "running for " + gone.Round(time.Second).String(),
			})
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}
