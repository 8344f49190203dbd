package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// tooled is a spec with tools: echo gives its arguments back, the others are the
// ways in which tools fail. held is what the tool held does not end before.
func tooled(t testing.TB, held <-chan struct{}, more ...sandbox.Tool) sandbox.Spec {
	t.Helper()
	h, err := sandbox.NewHostTools(append([]sandbox.Tool{
		{Name: "echo", Call: func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil }},
		{Name: "add", Call: func(_ context.Context, arguments json.RawMessage) (any, error) {
			var in struct{ A, B int64 }
			err := json.Unmarshal(arguments, &in)
			return in.A + in.B, err
		}},
		{Name: "fail", Call: func(context.Context, json.RawMessage) (any, error) {
			return nil, errors.New("no such city: Entenhausen")
		}},
		{Name: "panic", Call: func(context.Context, json.RawMessage) (any, error) { panic("a secret of the host") }},
		{Name: "who", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
			c, _ := sandbox.ToolCallerOf(ctx)
			return []string{c.Key.String(), c.Kind, c.InstanceID, fmt.Sprint(ctx.Value(toolContextKey{}))}, nil
		}},
		{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{Name: "held", Call: func(context.Context, json.RawMessage) (any, error) {
			<-held
			return "late", nil
		}},
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := spec()
	s.Requires, s.HostTools = s.Requires.With(sandbox.CapHostTools), h
	return s
}

type toolContextKey struct{}

// shapes calls f with a fresh sandbox, after a program that failed in a tool, and
// after a reset: the states in which a program may find its sandbox.
func shapes(t *testing.T, b *Backend, spec sandbox.Spec, f func(t *testing.T, s *Sandbox)) {
	t.Helper()
	s, err := b.Get(t.Context(), key(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("fresh", func(t *testing.T) { f(t, s) })
	t.Run("after a failure", func(t *testing.T) {
		if _, err := s.RunCode(t.Context(), "call_tool('wait')", patience(100*time.Millisecond)); !errors.Is(err, sandbox.ErrTimeout) {
			t.Errorf("a tool beyond the deadline: %v", err)
		}
		if s, err = b.Get(t.Context(), key(), spec); err != nil {
			t.Fatal(err)
		}
		if r, err := s.RunCode(t.Context(), "call_tool('panic')", 0); err != nil || r.ExitCode != 1 {
			t.Errorf("exit %d, %v", r.ExitCode, err)
		}
		f(t, s)
	})
	t.Run("after a reset", func(t *testing.T) {
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, s)
	})
}

// said runs code whose tools' refusals are to be printed.
const said = `
def said(f, *args, **kw):
    try: r = f(*args, **kw)
    except Exception as e: print(type(e).__name__, ascii(str(e)))
    else: print(ascii(r))
`

func TestToolsCarryWhatJSONCarriesAndRefuseTheRestInWords(t *testing.T) { // E5
	b := open(t, func(c *Config) { c.Grace = patience(time.Second) })
	rows := []struct{ code, want string }{
		{"call_tool, 'echo', x=float('nan')", "ValueError \"call_tool('echo'): argument x: nan is no JSON value\""},
		{"call_tool, 'echo', x=[1, {'k': float('inf')}]", "ValueError \"call_tool('echo'): argument x[1]['k']: inf is no JSON value\""},
		{"call_tool, 'echo', x=-0.0", "{'x': -0.0}"},
		{"call_tool, 'echo', x=[2**63, -2**63, 10**30, 2**53 + 1]", "{'x': [9223372036854775808, -9223372036854775808, 1000000000000000000000000000000, 9007199254740993]}"},
		{"call_tool, 'echo', x=[10**4300 - 1, 1 - 10**4300] == 0", "{'x': False}"},
		{"lambda: call_tool('echo', x=[10**4300 - 1, 1 - 10**4300]) == {'x': [10**4300 - 1, 1 - 10**4300]}", "True"},
		{"call_tool, 'echo', x=10**4300", "ValueError \"call_tool('echo'): argument x: an int of more than 4300 digits\""},
		{"call_tool, 'echo', x='\\ud800'", "ValueError \"call_tool('echo'): text with a lone surrogate is no JSON value\""},
		{"call_tool, 'echo', **{'\\ud800': 1}", "ValueError \"call_tool('echo'): text with a lone surrogate is no JSON value\""},
		{"call_tool, 'e\\ud800'", "ValueError \"call_tool('e\\\\ud800'): text with a lone surrogate is no JSON value\""},
		{"call_tool, 'echo', x=b'raw'", "TypeError \"call_tool('echo'): argument x: bytes is no JSON value\""},
		{"call_tool, 'echo', x=[{1}]", "TypeError \"call_tool('echo'): argument x[0]: set is no JSON value\""},
		{"call_tool, 'echo', x={1: 2}", "TypeError \"call_tool('echo'): argument x: the key 1 is not text, as JSON wants it\""},
		{"call_tool, 'echo', x=object", "TypeError \"call_tool('echo'): argument x: type is no JSON value\""},
		{"call_tool, 7", "TypeError 'call_tool: the name of a tool is text, not int'"},
		{"lambda: len(call_tool('echo', x='\u00e4' * (1 << 20))['x'])", "1048576"},
		{"lambda: len(call_tool('echo', x='x' * ((8 << 20) - 8))['x'])", "8388600"},
		{"call_tool, 'echo', x='x' * (8 << 20)", "ValueError \"call_tool('echo'): the arguments have 8388616 bytes as JSON and may have 8388608\""},
		{"call_tool, 'echo', x=[0] * (1 << 20)", "ToolError 'echo: the arguments: more than 1048576 values, at byte 2097152'"},
		{"call_tool, 'echo', x=nested(2000)", "ValueError \"call_tool('echo'): argument x: nested deeper than 64\""},
		{"call_tool, 'echo', x=nested(64)", "ValueError \"call_tool('echo'): argument x: nested deeper than 64\""},
		{"lambda: call_tool('echo', x=nested(63)) == {'x': nested(63)}", "True"},
		{"lambda: call_tool('echo', x=ring())", "ValueError \"call_tool('echo'): argument x: nested deeper than 64\""},
		{"call_tool, 'echo', x={'a': 1, Odd('a'): 2}", "ToolError 'echo: the arguments: a name twice in an object, at byte 12'"},
		{"call_tool, 'echo', x=(1, None, True, 'ä\\n\\x00\"', {}), name=[]", `{'x': [1, None, True, '\xe4\n\x00"', {}], 'name': []}`},
	}
	code := said + `
class Odd(str):
    __hash__ = lambda self: 1
    __eq__ = lambda self, other: self is other
def nested(n):
    v = []
    for _ in range(n - 1): v = [v]
    return v
def ring():
    v = []
    v.append(v)
    return v
`
	want := ""
	for _, r := range rows {
		code += "said(" + r.code + ")\n"
		want += r.want + "\n"
	}
	shapes(t, b, tooled(t, nil), func(t *testing.T, s *Sandbox) {
		got := prints(t, s, code)
		for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
			if i >= len(rows) || line != rows[i].want {
				t.Errorf("line %d: %.300s\nwant %+v", i, line, rows[min(i, len(rows)-1)])
			}
		}
		if strings.Count(got, "\n") != strings.Count(want, "\n") {
			t.Errorf("%d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
		}
		if got := prints(t, s, "print(call_tool('add', a=40, b=2))"); got != "42\n" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

func TestToolsThatFailAreExceptionsThatSayHow(t *testing.T) { // E6
	var log bytes.Buffer
	b := open(t, func(c *Config) {
		c.Grace, c.Logger = patience(time.Second), slog.New(slog.NewTextHandler(&log, nil))
	})
	hold := make(chan struct{})
	defer close(hold)
	shapes(t, b, tooled(t, hold), func(t *testing.T, s *Sandbox) {
		got := prints(t, s, said+`
said(call_tool, 'panic')
said(call_tool, 'fail', city='Entenhausen')
said(call_tool, 'nothing')
said(call_tool, 'n' * 5000)
said(call_tool, 'add', a='x')
try: call_tool('fail')
except RuntimeError as e: print(isinstance(e, call_tool.ToolError), e.tool, '|', e.message)
import pickle, traceback
try: call_tool('fail')
except call_tool.ToolError as e:
    again = pickle.loads(pickle.dumps(e))
    print('same' if (again.tool, again.message) == (e.tool, e.message) else again,
          'same' if traceback.format_exception_only(type(e), e) == ['call_tool.ToolError: fail: no such city: Entenhausen\n'] else traceback.format_exception_only(type(e), e))
`)
		want := `ToolError 'panic: the tool failed in the host'
ToolError 'fail: no such city: Entenhausen'
ToolError 'nothing: there is no tool "nothing"; there are: echo, add, fail, panic, who, wait, held'
ToolError '` + strings.Repeat("n", 100) + `...: there is no tool of so long a name'
ToolError 'add: json: cannot unmarshal string into Go struct field .A of type int64'
True fail | no such city: Entenhausen
same same
`
		if got != want {
			t.Errorf("printed %s\nwant %s", got, want)
		}
		for _, tool := range []string{"wait", "held"} { // one obeys its context, the other does not
			started := time.Now()
			_, err := s.RunCode(t.Context(), "call_tool('"+tool+"')", patience(100*time.Millisecond))
			if !errors.Is(err, sandbox.ErrTimeout) || !sandbox.Usable(err) {
				t.Fatalf("%s: %v", tool, err)
			}
			// The slack of a worker that does not answer would be a second.
			if took := time.Since(started); took > patience(100*time.Millisecond)+slack {
				t.Errorf("%s: the run took %v", tool, took)
			}
			if got := prints(t, s, "print(call_tool('add', a=1, b=2))"); got != "3\n" {
				t.Errorf("after %s: %q", tool, got)
			}
		}
	})
	if !strings.Contains(log.String(), "a secret of the host") {
		t.Errorf("the log does not tell of the panic: %s", log.String())
	}
}

func TestSeveralThreadsCallToolsAtTheSameTime(t *testing.T) { // E6
	b := open(t, nil)
	var mu sync.Mutex
	var together, most int
	meet := make(chan struct{})
	met := sandbox.Tool{Name: "meet", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
		mu.Lock()
		together++
		most = max(most, together)
		if together == 2 {
			close(meet)
		}
		mu.Unlock()
		select {
		case <-meet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	s, err := b.Get(t.Context(), key(), tooled(t, nil, met))
	if err != nil {
		t.Fatal(err)
	}
	got := prints(t, s, `
import threading, asyncio
t = [threading.Thread(target=call_tool, args=('meet',)) for _ in range(2)]
for x in t: x.start()
for x in t: x.join()
def work(n): return sum(call_tool('add', a=n, b=i) for i in range(20))
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(40) as p: print(sum(p.map(work, range(40))))
async def main():
    return await asyncio.gather(*(asyncio.to_thread(call_tool, 'add', a=i, b=1) for i in range(20)))
print(sum(asyncio.run(main())))
`)
	if got != "23200\n210\n" || most != 2 {
		t.Errorf("printed %q, %d calls met", got, most)
	}
}

func TestToolsAreToldForWhomByTheHost(t *testing.T) {
	b := open(t, nil)
	s, err := b.Get(t.Context(), key(), tooled(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(t.Context(), toolContextKey{}, "request 7")
	for range 2 {
		r, err := s.RunCode(ctx, "print(*call_tool('who', key='other', kind='other', tenant='other'))", 0)
		if want := "tenant/thread/agent conformance " + s.ID() + " request 7\n"; err != nil || string(r.Stdout) != want {
			t.Errorf("got %q, %v, want %q", r.Stdout, err, want)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutToolsACallFailsInWords(t *testing.T) {
	b := open(t, nil)
	none, err := sandbox.NewHostTools()
	if err != nil {
		t.Fatal(err)
	}
	empty, capable := spec(), spec()
	empty.Requires, empty.HostTools = spec().Requires.With(sandbox.CapHostTools), none
	capable.Requires = empty.Requires
	for i, sp := range []sandbox.Spec{spec(), capable, empty, listed(webAddress)} {
		s, err := b.Get(t.Context(), numbered(i), sp)
		if err != nil {
			t.Fatal(err)
		}
		if got := prints(t, s, said+"said(call_tool, 'x', a=1)"); got != "ToolError 'x: this sandbox offers no tools of the host'\n" {
			t.Errorf("spec %d: %q", i, got)
		}
	}
}

func TestALiveSandboxTakesTheFunctionsOfTheLatestAcquire(t *testing.T) {
	b := open(t, nil)
	version := func(n int, limit int64) sandbox.Spec {
		return tooled(t, nil, sandbox.Tool{Name: "version", MaxResult: limit, Call: func(context.Context, json.RawMessage) (any, error) { return n, nil }})
	}
	for n := range 3 {
		s, err := b.Get(t.Context(), key(), version(n, 0))
		if err != nil {
			t.Fatal(err)
		}
		if got := prints(t, s, "print(call_tool('version'))"); got != fmt.Sprintln(n) {
			t.Errorf("acquire %d: version %s", n, got)
		}
	}
	for name, other := range map[string]sandbox.Spec{"none": spec(), "others": tooled(t, nil), "another bound": version(3, 5)} {
		if _, err := b.Get(t.Context(), key(), other); !errors.Is(err, sandbox.ErrConfigurationChanged) || !strings.Contains(err.Error(), "spec.host_tools") {
			t.Errorf("%s: %v", name, err)
		}
	}
	unknown := spec()
	unknown.Requires, unknown.HostTools = unknown.Requires.With(sandbox.CapHostTools), &sandbox.HostTools{Names: []string{"search"}}
	if _, err := b.Get(t.Context(), numbered(1), unknown); !errors.Is(err, sandbox.ErrNotSupported) || !strings.Contains(err.Error(), "sandbox.NewHostTools") {
		t.Errorf("names without functions: %v", err)
	}
}

func TestAProgramThatPatchesPythonStillCallsTools(t *testing.T) {
	b := open(t, nil)
	s, err := b.Get(t.Context(), key(), tooled(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	got := prints(t, s, `
import builtins, sys, json, os, struct
report = print
call = call_tool
for n in ('len', 'isinstance', 'type', 'str', 'memoryview', 'bytearray', 'next', 'call_tool', 'OSError'): setattr(builtins, n, None)
for m, n in ((json, 'dumps'), (json, 'loads'), (json, 'JSONEncoder'), (json, 'JSONDecoder'), (struct, 'Struct')): setattr(m, n, None)
for n in list(sys.modules): del sys.modules[n]
report(call('add', a=40, b=2))
`)
	if got != "42\n" {
		t.Errorf("printed %q", got)
	}
}

// Ends of runs meet calls at every stage: asked, answered, withdrawn.
func TestDeadlinesInTheMiddleOfCallsLeaveTheSandboxInOrder(t *testing.T) {
	b := open(t, func(c *Config) { c.Grace = patience(time.Second) })
	s, err := b.Get(t.Context(), key(), tooled(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	prints(t, s, "call_tool('echo')") // warm
	for i := range 40 {
		tool := []string{"echo", "wait"}[i%2]
		_, err := s.RunCode(t.Context(), "while True: call_tool('"+tool+"', x=1)", time.Duration(5+i%7)*time.Millisecond)
		if !sandbox.Usable(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("run %d: %v", i, err)
		}
		if got := prints(t, s, "print(call_tool('add', a=40, b=2))"); got != "42\n" {
			t.Fatalf("after run %d: %q", i, got)
		}
	}
}
