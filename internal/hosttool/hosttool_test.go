package hosttool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/strictjson"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

var caller = sandbox.ToolCaller{
	Key: sandbox.Key{Scope: "tenant", ThreadID: "thread", AgentID: "agent"}, Kind: "kind", InstanceID: "generation",
}

// request is a call as the guest writes it.
func request(name, arguments string) []byte { return Request(name, json.RawMessage(arguments)) }

func returns(v any) func(context.Context, json.RawMessage) (any, error) {
	return func(context.Context, json.RawMessage) (any, error) { return v, nil }
}

func fails(err error) func(context.Context, json.RawMessage) (any, error) {
	return func(context.Context, json.RawMessage) (any, error) { return nil, err }
}

// badError is an error whose text cannot be had.
type badError struct{ text *string }

func (e *badError) Error() string { return *e.text }

// badValue is a value that cannot be encoded.
type badValue struct{}

func (badValue) MarshalJSON() ([]byte, error) { panic("no") }

var functions = map[string]func(context.Context, json.RawMessage) (any, error){
	"echo": func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
	"who": func(ctx context.Context, _ json.RawMessage) (any, error) {
		c, ok := sandbox.ToolCallerOf(ctx)
		return fmt.Sprintf("%v %t %v", c, ok, ctx.Value(requestKey{})), nil
	},
	"nil":    returns(nil),
	"rawnil": returns(json.RawMessage(nil)),
	"zero":   returns(math.Copysign(0, -1)),
	"zeros":  returns(map[string]any{"-0": []any{math.Copysign(0, -1), "-0", 0, -0.5, json.RawMessage("-0")}}),
	"html":   returns("<a>&\u2028"),
	"raw":    returns(json.RawMessage(" {\"a\" : 1} \n")),
	"rawbad": returns(json.RawMessage(`{"a":1,"a":2}`)),
	"nan":    returns(math.NaN()),
	"chan":   returns(make(chan int)),
	"badval": returns(badValue{}),
	"small":  returns("123456789"),
	"huge":   returns(strings.Repeat("x", sandbox.MaxToolResult)),
	"deep":   returns(json.RawMessage(strings.Repeat("[", 65) + strings.Repeat("]", 65))),
	"fail":   fails(errors.New("no such city\xff")),
	"long":   fails(errors.New(strings.Repeat("ä", sandbox.MaxToolFailure))),
	"panic":  func(context.Context, json.RawMessage) (any, error) { panic("a secret") },
	"badErr": fails(&badError{}),
	"exit":   func(context.Context, json.RawMessage) (any, error) { runtime.Goexit(); return nil, nil },
}

type requestKey struct{}

// set is the functions as tools.
func set(t testing.TB, log *slog.Logger, change func(*sandbox.HostTools)) *Set {
	t.Helper()
	var tools []sandbox.Tool
	for name, f := range functions {
		tool := sandbox.Tool{Name: name, Call: f}
		if name == "small" {
			tool.MaxResult = 10
		}
		tools = append(tools, tool)
	}
	h, err := sandbox.NewHostTools(tools...)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(h)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return NewSet(h, NewCalls().Part(), log)
}

func TestCallsAreAnswered(t *testing.T) {
	ctx := set(t, nil, nil).Context(context.WithValue(t.Context(), requestKey{}, "request 7"), caller)
	for _, r := range []struct{ name, arguments, want string }{
		{"echo", `{"a": [1, -0.0, 1e300, 9223372036854775808, "ä\u00e4"]}`, `+{"a": [1, -0.0, 1e300, 9223372036854775808, "ä\u00e4"]}`},
		{"echo", `{}`, `+{}`},
		{"echo", `{"a":` + strings.Repeat("9", 4300) + `}`, `+{"a":` + strings.Repeat("9", 4300) + `}`},
		{"who", `{}`, `+"{tenant/thread/agent kind generation} true request 7"`},
		{"nil", `{}`, `+null`},
		{"rawnil", `{}`, `+null`},
		{"zero", `{}`, `+-0.0`},
		{"zeros", `{}`, `+{"-0":[-0.0,"-0",0,-0.5,-0.0]}`},
		{"html", `{}`, "+\"<a>&\\u2028\""},
		{"raw", `{}`, `+{"a" : 1}`},
		{"rawbad", `{}`, `-the result: a name twice in an object, at byte 7`},
		{"nan", `{}`, `-the result: json: unsupported value: NaN`},
		{"chan", `{}`, `-the result: json: unsupported type: chan int`},
		{"badval", `{}`, `-the result: it cannot be encoded as JSON`},
		{"small", `{}`, `-the result: 12 bytes are more than the limit of 10, at byte 10`},
		{"huge", `{}`, `-the result: 8388611 bytes are more than the limit of 8388608, at byte 8388608`},
		{"deep", `{}`, `-the result: nested deeper than 64, at byte 64`},
		{"fail", `{}`, "-no such city\uFFFD"},
		{"long", `{}`, "-" + strings.Repeat("ä", sandbox.MaxToolFailure/2-2) + "..."},
		{"panic", `{}`, "-the tool failed in the host"},
		{"badErr", `{}`, "-the tool failed in the host"},
		{"exit", `{}`, "-the tool failed in the host"},
		{"echo", `[]`, "-the call is malformed"},
		{"echo", ``, "-the arguments: no JSON value, at byte 0"},
		{"echo", `{"a":1,"a":2}`, "-the arguments: a name twice in an object, at byte 7"},
		{"echo", `{"a":"\ud800"}`, "-the arguments: a lone surrogate, at byte 12"},
		{"echo", `{"a":1e999}`, "-the arguments: a number beyond what a float holds, at byte 10"},
	} {
		got, offered := Serve(ctx, request(r.name, r.arguments))
		if !offered || string(got) != r.want {
			t.Errorf("%s(%.40s): got %.200q (%d bytes), want %.200q", r.name, r.arguments, got, len(got), r.want)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	for answer, want := range map[string]string{`+{"a":1}`: `{"a":1} <nil>`, "-no": " no", "": " the call is malformed", "x": " the call is malformed"} {
		if result, err := Result([]byte(answer)); fmt.Sprint(string(result), " ", err) != want {
			t.Errorf("%q: got %s, %v", answer, result, err)
		}
	}
	if b := Request("ab", json.RawMessage("{}")); string(b) != "\x02\x00\x00\x00ab{}" {
		t.Errorf("request %q", b)
	}
}

func TestCallsThatAreNoneAreRefused(t *testing.T) {
	ctx := set(t, nil, nil).Context(t.Context(), caller)
	for _, b := range [][]byte{nil, {0}, {1, 0, 0, 0}, {255, 255, 255, 255, 'x'}} {
		if got, offered := Serve(ctx, b); !offered || string(got) != "-the call is malformed" {
			t.Errorf("%v: got %q", b, got)
		}
	}
	if got, offered := Serve(t.Context(), request("echo", "{}")); offered || got != nil {
		t.Errorf("outside a run: got %q", got)
	}
}

func TestAnUnknownNameIsToldTheKnownOnes(t *testing.T) {
	var tools []sandbox.Tool
	for i := range sandbox.MaxTools {
		tools = append(tools, sandbox.Tool{Name: fmt.Sprintf("tool_%d_%s", i, strings.Repeat("x", 50)), Call: returns(nil)})
	}
	h, err := sandbox.NewHostTools(tools...)
	if err != nil {
		t.Fatal(err)
	}
	none, err := sandbox.NewHostTools()
	if err != nil {
		t.Fatal(err)
	}
	many := NewSet(h, NewCalls(), nil).Context(t.Context(), caller)
	got, _ := Serve(many, request("tool\x1b[31m\xff", "{}"))
	if !strings.HasPrefix(string(got), `-there is no tool "tool\x1b[31m�"; there are: tool_0_xxx`) || !strings.HasSuffix(string(got), ", ...") || len(got) > 1300 {
		t.Errorf("got %q", got)
	}
	got, _ = Serve(NewSet(none, NewCalls(), nil).Context(t.Context(), caller), request("x", "{}"))
	if string(got) != "-this sandbox offers no tools of the host" {
		t.Errorf("without tools: %q", got)
	}
}

func TestPanicsAreLoggedWithoutTheProgramsWords(t *testing.T) {
	var log bytes.Buffer
	ctx := set(t, slog.New(slog.NewTextHandler(&log, nil)), nil).Context(t.Context(), caller)
	Serve(ctx, request("panic", `{"word":"of the program"}`))
	for _, want := range []string{"level=ERROR", "tool=panic", "a secret", "tenant/thread/agent", "generation", "hosttool_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "of the program") {
		t.Errorf("the program's words are in %s", log.String())
	}
	log.Reset()
	Serve(ctx, request("fail", `{}`))
	if log.Len() != 0 {
		t.Errorf("an ordinary error is logged: %s", log.String())
	}
}

func TestARunMakesAsManyCallsAsItMay(t *testing.T) {
	s := set(t, nil, func(h *sandbox.HostTools) { h.MaxCallsPerRun = 2 })
	for range 2 { // each run anew
		ctx := s.Context(t.Context(), caller)
		for i, want := range []string{"+null", "+null", "-a run may make 2 calls of tools"} {
			if got, _ := Serve(ctx, request("nil", "{}")); string(got) != want {
				t.Errorf("call %d: %q", i, got)
			}
		}
	}
}

// stuck is a tool that does not end with its context.
func stuck(t *testing.T, calls *Calls) (s *Set, entered chan struct{}, release func()) {
	t.Helper()
	hold := make(chan struct{})
	entered = make(chan struct{}, 1000)
	h, err := sandbox.NewHostTools(sandbox.Tool{Name: "stuck", Call: func(context.Context, json.RawMessage) (any, error) {
		entered <- struct{}{}
		<-hold
		return "late", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return NewSet(h, calls, slog.New(slog.DiscardHandler)), entered, sync.OnceFunc(func() { close(hold) })
}

func TestACallEndsWithItsContextAndNotWithTheTool(t *testing.T) {
	all := NewCalls()
	s, entered, release := stuck(t, all.Part())
	defer release()
	for i := range MaxLeftBehind {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-entered; cancel() }()
		got, _ := Serve(s.Context(ctx, caller), request("stuck", "{}"))
		if string(got) != "-the run in which the tool was called is over" {
			t.Fatalf("call %d: %q", i, got)
		}
	}
	got, _ := Serve(s.Context(t.Context(), caller), request("stuck", "{}"))
	if want := fmt.Sprintf("-%d earlier calls of tools have not ended in the host yet", MaxLeftBehind); string(got) != want {
		t.Errorf("got %q", got)
	}
	if all.Left() != MaxLeftBehind {
		t.Errorf("the backend counts %d", all.Left())
	}
	release()
	for deadline := time.Now().Add(30 * time.Second); all.Left() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls are counted after all have ended", all.Left())
		}
	}
	if got, _ := Serve(s.Context(t.Context(), caller), request("stuck", "{}")); string(got) != `+"late"` {
		t.Errorf("afterwards: %q", got)
	}
}

func TestCallsLeftBehindAreBoundedForAllSandboxesTogether(t *testing.T) {
	all := NewCalls()
	all.add(MaxLeftBehindTotal)
	s, _, release := stuck(t, all.Part())
	release()
	if got, _ := Serve(s.Context(t.Context(), caller), request("stuck", "{}")); !bytes.HasPrefix(got, []byte("-256 earlier calls")) {
		t.Errorf("got %q", got)
	}
	all.add(-1)
	if got, _ := Serve(s.Context(t.Context(), caller), request("stuck", "{}")); string(got) != `+"late"` {
		t.Errorf("got %q", got)
	}
}

// Whatever a guest sends, there is an answer within the bounds, and a result is
// JSON.
func FuzzServe(f *testing.F) {
	for name := range functions {
		if name != "huge" && name != "panic" && name != "badErr" {
			f.Add(request(name, `{"a":[1,"\u0061",-0.0,null,true]}`))
		}
	}
	f.Add(request("echo", `{"a":1,"\u0061":2}`))
	f.Add(request("echo", `{"a":"\ud800"}`))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		answer, offered := Serve(set(t, nil, nil).Context(t.Context(), caller), b)
		if !offered || len(answer) == 0 {
			t.Fatalf("no answer to %q", b)
		}
		text := answer[1:]
		switch answer[0] {
		case '-':
			if len(text) > sandbox.MaxToolFailure {
				t.Fatalf("a failure of %d bytes", len(text))
			}
		case '+':
			if _, err := strictjson.Check(text, strictjson.Bounds{Bytes: sandbox.MaxToolResult, Depth: sandbox.MaxToolDepth, Values: sandbox.MaxToolValues, Digits: sandbox.MaxToolDigits}); err != nil {
				t.Fatalf("%q: %v", answer, err)
			}
		default:
			t.Fatalf("answer %q", answer)
		}
	})
}
