package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestClientsAreToldOfBothTools(t *testing.T) {
	cs, _ := connect(t, serve(t, memory(), nil), nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*sdk.Tool{}
	for _, tool := range list.Tools {
		byName[tool.Name] = tool
	}
	execute, reset := byName["execute_code"], byName["reset_sandbox"]
	if len(list.Tools) != 2 || execute == nil || reset == nil {
		t.Fatalf("tools %v", byName)
	}
	schema, err := json.Marshal(execute.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"properties":{"code":{"title":"Code","type":"string"}},"required":["code"],"title":"execute_code_input","type":"object"}`; string(schema) != want {
		t.Errorf("schema %s, want %s", schema, want)
	}
	for _, text := range []string{"Names, imports and files stay from one call to the next", "There is no network", "run for 20s"} {
		if !strings.Contains(execute.Description, text) {
			t.Errorf("%q is not in %q", text, execute.Description)
		}
	}
	if execute.OutputSchema == nil || *execute.Annotations.OpenWorldHint || execute.Annotations.ReadOnlyHint || !*reset.Annotations.DestructiveHint {
		t.Errorf("annotations %+v %+v", execute.Annotations, reset.Annotations)
	}
	if info := cs.InitializeResult(); info.ServerInfo.Name != "maf-sandbox" || info.ServerInfo.Version != "test" || info.Capabilities.Tools == nil || info.Capabilities.Resources != nil {
		t.Errorf("server %+v", info)
	}
}

func TestResultsAreTextAndStructure(t *testing.T) {
	cs, _ := connect(t, serve(t, memory(), nil), nil)
	one, zero := 1, 0
	for _, r := range []struct {
		name, code string
		want       answered
	}{
		{"success", `print "42\n"`, answered{Text: "stdout:\n42", Stdout: "42\n", Exit: &zero}},
		{"failure", `raise "no"`, answered{Text: "stderr:\nerror: no\n\nexit code: 1", Stderr: "error: no\n", Exit: &one}},
		{"nothing", ``, answered{Text: "The program ran and printed nothing. Only what you print is read back as text — end the program with print(...) of what you need to see.", Exit: &zero}},
		{"too much", `spam 999999`, answered{Text: "Error: the program printed more than it may", IsError: true, Kind: "output_limit"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			got := run(t, cs, r.code)
			if r.name == "too much" {
				got.Text, got.Stdout = strings.SplitN(got.Text, "\n", 2)[0], ""
			}
			if (got.Exit == nil) != (r.want.Exit == nil) || got.Exit != nil && *got.Exit != *r.want.Exit {
				t.Errorf("exit code %v, want %v", got.Exit, r.want.Exit)
			}
			got.Exit, r.want.Exit = nil, nil
			if got != r.want {
				t.Errorf("got  %+v\nwant %+v", got, r.want)
			}
		})
	}
}

func TestOfMuchOutputAClientGetsTheBeginningAndTheEnd(t *testing.T) {
	cs, _ := connect(t, serve(t, memory(), func(c *mcp.Config) { c.Tool.MaxShown = codeact.MinShown }), nil)
	got := run(t, cs, `print "`+strings.Repeat("a", 1000)+strings.Repeat("b", 1000)+`"`)
	half := codeact.MinShown / 2
	want := strings.Repeat("a", half) + "\n[1744 bytes left out here]\n" + strings.Repeat("b", half)
	if got.Text != "stdout:\n"+want || got.Stdout != want || got.LeftOut != 1744 || got.IsError {
		t.Errorf("got %+v", got)
	}
}

func TestArgumentsThatAreNoneAreToldToTheModel(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	for _, r := range []struct {
		arguments any
		want      string
	}{
		{map[string]any{}, `the string "code" is missing`},
		{nil, `the string "code" is missing`},
		{map[string]any{"source": "print(1)"}, `the string "code" is missing`},
		{map[string]any{"code": 7}, `"code" must be a string, not a JSON number`},
		{map[string]any{"code": []string{"print(1)"}}, `"code" must be a string, not a JSON array`},
		{"print(1)", `want a JSON object with the string "code", not a JSON string`},
	} {
		if got := ask(t, cs, codeact.Name, r.arguments); !got.IsError || got.Text != "Error: the arguments of execute_code: "+r.want {
			t.Errorf("%v: got %+v, want %q", r.arguments, got, r.want)
		}
	}
	if calls := b.Calls(); len(calls) != 0 {
		t.Errorf("the backend received %v", calls)
	}
}

func TestStateStaysInASessionUntilAReset(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	wants(t, ask(t, cs, mcp.ResetName, nil), "The sandbox is as new.")
	run(t, cs, `set "x" "1"`)
	wants(t, run(t, cs, `get "x"`), "stdout:\n1")
	wants(t, ask(t, cs, mcp.ResetName, nil), "The sandbox is as new.")
	if got := run(t, cs, `get "x"`); !strings.Contains(got.Text, "not defined") {
		t.Errorf("after the reset: %q", got.Text)
	}
	if dispositions := b.Count(sandboxtest.OpDispose); dispositions != 0 {
		t.Errorf("%d disposals", dispositions)
	}
}

func TestWithoutStateEveryCallStartsAnew(t *testing.T) {
	cs, _ := connect(t, serve(t, memory(), func(c *mcp.Config) { c.KeepState = false }), nil)
	run(t, cs, `set "x" "1"`)
	if got := run(t, cs, `get "x"`); !strings.Contains(got.Text, "not defined") {
		t.Errorf("got %q", got.Text)
	}
	wants(t, ask(t, cs, mcp.ResetName, nil), "Every call starts anew: there is nothing to reset.")
}

func TestSessionsDoNotMix(t *testing.T) {
	for _, keep := range []bool{true, false} {
		b := memory()
		s := serve(t, b, func(c *mcp.Config) { c.KeepState = keep })
		var group sync.WaitGroup
		for _, name := range []string{"one", "two", "three"} {
			cs, _ := connect(t, s, nil)
			group.Go(func() {
				for range 5 {
					run(t, cs, `set "mine" "`+name+`"`)
					if got := run(t, cs, `get "mine"`); keep && got.Stdout != name {
						t.Errorf("%s finds %q", name, got.Text)
					}
				}
			})
		}
		group.Wait()
		threads := map[string]bool{}
		for _, call := range b.Calls() {
			threads[call.Key.ThreadID] = true
		}
		if len(threads) != 3 {
			t.Errorf("keep %t: %d conversations, want 3", keep, len(threads))
		}
	}
}

func TestTheEndOfASessionDisposes(t *testing.T) {
	for _, keep := range []bool{true, false} {
		b := memory()
		cs, ended := connect(t, serve(t, b, func(c *mcp.Config) { c.KeepState = keep }), nil)
		run(t, cs, `print "x"`)
		if b.Registered() != 1 {
			t.Fatalf("%d sandboxes while the session lasts", b.Registered())
		}
		if err := cs.Close(); err != nil {
			t.Fatal(err)
		}
		if err := await(t, ended); err != nil {
			t.Errorf("the session ended with %v", err)
		}
		if left := b.Registered(); left != 0 {
			t.Errorf("keep %t: %d sandboxes are left when Serve returns", keep, left)
		}
	}
}

// stuck has programs wait; the gate tells when one runs.
func stuck(b *sandboxtest.Backend) *sandboxtest.Gate {
	gate := sandboxtest.NewGate()
	b.Script(sandboxtest.OpRunCode, sandboxtest.Step{Gate: gate})
	return gate
}

func TestAClientThatCancelsStopsItsProgramOnly(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "kept"`)
	gate := stuck(b)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-gate.Entered(); cancel() }()
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": "x"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wants(t, run(t, cs, `get "x"`), "stdout:\nkept")
}

func TestAClosedServerStopsWhatRuns(t *testing.T) {
	b := memory()
	gate := stuck(b)
	s := serve(t, b, nil)
	cs, ended := connect(t, s, nil)
	answer := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": "x"}})
		answer <- err
	}()
	<-gate.Entered()
	s.Close()
	if left := b.Registered(); left != 0 {
		t.Errorf("%d sandboxes are left when Close returns", left)
	}
	if err := <-answer; err == nil {
		t.Error("the program was answered")
	}
	_ = await(t, ended)
}

func TestALongRunIsReportedToAClientThatAsked(t *testing.T) {
	b := memory()
	gate := stuck(b)
	heard := make(chan *sdk.ProgressNotificationParams, 100)
	cs, _ := connect(t, serve(t, b, func(c *mcp.Config) { c.Progress = time.Millisecond }), &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			select {
			case heard <- r.Params:
			default:
			}
		},
	})
	params := &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": `print "done"`}}
	params.SetProgressToken("token-1")
	go func() {
		for last := 0.0; ; {
			p := <-heard
			if p.ProgressToken != "token-1" || p.Progress <= last || p.Total != patience.Seconds() || !strings.HasPrefix(p.Message, "running for ") {
				t.Errorf("progress %+v after %g", p, last)
			}
			if last > 0 {
				break
			}
			last = p.Progress
		}
		gate.Release()
	}()
	res, err := cs.CallTool(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, read(t, res), "stdout:\ndone")
}

func TestTooManyCallsAtOnceAreRefused(t *testing.T) {
	b := memory()
	gate := stuck(b)
	cs, _ := connect(t, serve(t, b, nil), nil)
	var group sync.WaitGroup
	group.Go(func() { run(t, cs, `print "first"`) })
	<-gate.Entered()
	refusals := make(chan bool, 64)
	for range 40 {
		group.Go(func() { refusals <- run(t, cs, `print "x"`).IsError })
	}
	// What is refused is answered while the rest waits.
	for range 40 - 31 {
		if !<-refusals {
			t.Error("a call had its turn before the first one ended")
		}
	}
	gate.Release()
	group.Wait()
	close(refusals)
	for refused := range refusals {
		if refused {
			t.Error("a call below the limit was refused")
		}
	}
}

func TestALostSandboxIsToldAndReplaced(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "1"`)
	b.Script(sandboxtest.OpRunCode, sandboxtest.Step{Err: &sandbox.OpError{Op: "run_code", Class: sandbox.ErrGuestCrash, Detail: "it ended"}})
	got := run(t, cs, `get "x"`)
	if !got.IsError || !got.Lost || got.Kind != "crash" || !strings.HasSuffix(got.Text, "names, imports and files of earlier calls are gone.") {
		t.Errorf("got %+v", got)
	}
	wants(t, run(t, cs, `print "on"`), "stdout:\non")
}

func TestASandboxThatIsLostMeanwhileIsToldOnce(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "1"`)
	calls := b.Calls()
	if err := b.Dispose(t.Context(), calls[0].Key, sandbox.DisposeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := run(t, cs, `print "on"`); !got.Lost || got.IsError || got.Text != "stdout:\non\n\nThe sandbox was lost: names, imports and files of earlier calls are gone." {
		t.Errorf("got %+v", got)
	}
	if got := run(t, cs, `print "on"`); got.Lost || got.Text != "stdout:\non" {
		t.Errorf("got %+v again", got)
	}
}

func TestWithoutASandboxTheModelIsToldSo(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	b.Script(sandboxtest.OpAcquire, sandboxtest.Step{Err: &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "secret"}})
	if got := run(t, cs, `print "x"`); !got.IsError || got.Kind != "unavailable" || strings.Contains(got.Text, "secret") || !strings.HasPrefix(got.Text, "Error: no sandbox could be had") {
		t.Errorf("got %+v", got)
	}
	wants(t, run(t, cs, `print "x"`), "stdout:\nx")
}

func TestAFailedResetIsADisposal(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "1"`)
	b.Script(sandboxtest.OpReset, sandboxtest.Step{Err: errors.New("scripted")})
	wants(t, ask(t, cs, mcp.ResetName, nil), "The sandbox is as new.")
	if got := run(t, cs, `get "x"`); !strings.Contains(got.Text, "not defined") {
		t.Errorf("got %q", got.Text)
	}
}

func TestAResetThatIsNotConfirmedIsAnError(t *testing.T) {
	b := memory()
	cs, _ := connect(t, serve(t, b, nil), nil)
	run(t, cs, `set "x" "1"`)
	scripted := errors.New("scripted")
	b.Script(sandboxtest.OpReset, sandboxtest.Step{Err: scripted})
	b.Script(sandboxtest.OpDispose, sandboxtest.Step{Err: scripted})
	if got := ask(t, cs, mcp.ResetName, nil); !got.IsError {
		t.Errorf("got %+v", got)
	}
}

func TestAServerWithoutWhatItNeedsIsRefused(t *testing.T) {
	r, err := router.New(router.Config{Backends: []sandbox.Backend{memory()}})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := sandbox.AllowHosts("*.example")
	if err != nil {
		t.Fatal(err)
	}
	rules[0].Authority = sandbox.IdentityUser
	if _, err := mcp.New(mcp.Config{Router: r, Tool: codeact.Config{Allow: rules}}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestToolsThatAskForApprovalAreRefused(t *testing.T) {
	b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(context.Context, json.RawMessage) (any, error) { return nil, nil } //nolint:nilnil // nothing to say
	plain := sandbox.Tool{Name: "plain", Call: call, Identity: sandbox.IdentityApp}
	for name, tool := range map[string]sandbox.Tool{
		"it asks":              {Name: "asks", Call: call, RequiresApproval: true},
		"it acts for the user": {Name: "asks", Call: call, Identity: sandbox.IdentityUser},
	} {
		_, err := mcp.New(mcp.Config{Router: r, Tool: codeact.Config{Tools: []sandbox.Tool{plain, tool}}})
		var refusal *sandbox.RefusalError
		if !errors.As(err, &refusal) || !errors.Is(err, sandbox.ErrNotSupported) || !strings.Contains(err.Error(), `"asks"`) ||
			strings.Contains(err.Error(), "plain") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := mcp.New(mcp.Config{Router: r, Tool: codeact.Config{Tools: []sandbox.Tool{plain}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
