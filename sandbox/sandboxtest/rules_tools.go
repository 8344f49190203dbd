package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// tooled is the harness's spec with tools.
func (f *fixture) tooled(tools ...sandbox.Tool) sandbox.Spec {
	f.t.Helper()
	if f.p.CallTool == nil {
		f.t.Skipf("the harness has no program that calls tools")
	}
	h, err := sandbox.NewHostTools(tools...)
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	spec := f.h.Spec
	spec.Requires, spec.HostTools = spec.Requires.With(sandbox.CapHostTools), h
	return spec
}

// echo gives its arguments back.
var echo = sandbox.Tool{
	Name: "echo", Call: func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
}

// fails runs a program that calls a tool and fails because of it, and checks that
// it carries the words and that the sandbox goes on.
func (f *fixture) fails(s sandbox.Sandbox, code string, words ...string) {
	f.t.Helper()
	result := f.run(s, code)
	if result.ExitCode == 0 {
		f.t.Fatalf("RunCode(%.60q) succeeded and printed %.100q", code, result.Stdout)
	}
	for _, word := range words {
		if !bytes.Contains(result.Stderr, []byte(word)) {
			f.t.Errorf("RunCode(%.60q): stderr %.300q does not say %q", code, result.Stderr, word)
		}
	}
	f.output(s, f.p.CallTool("echo", "{}"), "{}")
}

func toolRules() []rule {
	rules := []rule{
		{name: "a program calls a tool and gets what it returns", probe: func(f *fixture) {
			s := f.acquireAs(mainKey(), f.tooled(echo))
			for _, text := range []string{
				`{}`, `{"a":[1,-2.5,"x",true,false,null,{"b":[]}]}`, `{"n":9223372036854775808}`, `{"n":-0.0}`,
				`{"n":1000000000000000000000000000000}`,
			} {
				f.output(s, f.p.CallTool("echo", text), text)
			}
		}},
		{name: "a tool is told for whom by the host", probe: func(f *fixture) {
			spec := f.tooled(sandbox.Tool{Name: "who", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
				c, ok := sandbox.ToolCallerOf(ctx)
				if !ok {
					return nil, errors.New("nobody said")
				}
				return c.Key.String() + " " + c.Kind + " " + c.InstanceID, nil
			}})
			for _, key := range f.otherKeys() {
				s := f.acquireAs(key, spec)
				f.output(s, f.p.CallTool("who", `{"key":"mine"}`), `"`+key.String()+" "+spec.Kind+" "+s.ID()+`"`)
			}
		}},
		{name: "a tool that fails fails the program with its words", probe: func(f *fixture) {
			s := f.acquireAs(mainKey(), f.tooled(echo, sandbox.Tool{Name: "lookup", Call: func(context.Context, json.RawMessage) (any, error) {
				return nil, errors.New("quite unknown")
			}}))
			id := s.ID()
			f.fails(s, f.p.CallTool("lookup", `{}`), "lookup", "quite unknown")
			if s.ID() != id {
				f.t.Errorf("a failing tool changed the id")
			}
		}},
		{name: "a tool that panics fails the program and nothing else", probe: func(f *fixture) {
			s := f.acquireAs(mainKey(), f.tooled(echo, sandbox.Tool{Name: "lookup", Call: func(context.Context, json.RawMessage) (any, error) {
				panic("a mistake of the host's")
			}}))
			f.fails(s, f.p.CallTool("lookup", `{}`), "lookup")
		}},
		{name: "an unknown tool is the program's failure, which names those that are there", probe: func(f *fixture) {
			s := f.acquireAs(mainKey(), f.tooled(echo))
			f.fails(s, f.p.CallTool("ghost", `{}`), "ghost", "echo")
		}},
		{name: "without tools a call fails", probe: func(f *fixture) {
			if f.p.CallTool == nil {
				f.t.Skipf("the harness has no program that calls tools")
			}
			s := f.acquire()
			if result := f.run(s, f.p.CallTool("echo", `{}`)); result.ExitCode == 0 {
				f.t.Fatalf("a tool that nobody gave returned %.100q", result.Stdout)
			}
			f.output(s, f.p.Print("alive"), "alive")
		}},
		{name: "a tool ends with the run that called it", probe: func(f *fixture) {
			entered, ended := make(chan struct{}, 1), make(chan struct{}, 1)
			spec := f.tooled(echo, sandbox.Tool{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (any, error) {
				entered <- struct{}{}
				<-ctx.Done()
				ended <- struct{}{}
				return nil, ctx.Err()
			}})
			s := f.acquireAs(mainKey(), spec)
			run := start(f, "RunCode", func(ctx context.Context) (sandbox.ExecResult, error) {
				return s.RunCode(ctx, f.p.CallTool("wait", `{}`), f.h.Patience)
			})
			select {
			case <-entered:
				run.cancel()
			case <-run.ended:
			}
			_, err := run.wait()
			if err == nil {
				f.t.Fatalf("a run that was given up during a call came to its end")
			}
			_, err = within(f, "the tool", func(ctx context.Context) (struct{}, error) {
				select {
				case <-ended:
					return struct{}{}, nil
				case <-ctx.Done():
					return struct{}{}, ctx.Err()
				}
			})
			if err != nil {
				f.t.Fatalf("the context of a tool has not ended with its run")
			}
			f.output(f.acquireAs(mainKey(), spec), f.p.CallTool("echo", "{}"), "{}")
		}},
		{name: "a tool that goes on does not hold up the run, and its late result is dropped", probe: func(f *fixture) {
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			f.t.Cleanup(release)
			spec := f.tooled(echo, sandbox.Tool{Name: "stuck", Call: func(context.Context, json.RawMessage) (any, error) {
				<-hold
				return "late", nil
			}})
			s := f.acquireAs(mainKey(), spec)
			var err error
			for range attempts {
				if _, err = f.tryRun(s, f.p.CallTool("stuck", `{}`), f.h.Short); !errors.Is(err, sandbox.ErrQueuedTimeout) {
					break // it had its turn
				}
			}
			f.is("a tool beyond the deadline", err, sandbox.ErrTimeout)
			s = f.acquireAs(mainKey(), spec)
			f.output(s, f.p.CallTool("echo", "{}"), "{}")
			release()
			f.output(s, f.p.CallTool("echo", "{}"), "{}")
		}},
		{name: "the functions are those of the latest acquire", probe: func(f *fixture) {
			version := func(v string) sandbox.Spec {
				return f.tooled(sandbox.Tool{Name: "version", Call: func(context.Context, json.RawMessage) (any, error) { return v, nil }})
			}
			id := f.acquireAs(mainKey(), version("one")).ID()
			s := f.acquireAs(mainKey(), version("two"))
			if s.ID() != id {
				f.t.Fatalf("the same tools gave another sandbox")
			}
			f.output(s, f.p.CallTool("version", "{}"), `"two"`)
		}},
		{name: "a live sandbox is never used with other tools", probe: func(f *fixture) {
			f.changed(f.tooled(echo))
		}},
	}
	rules = needing(needsRun.With(sandbox.CapHostTools), rules)
	return append(rules, rule{
		name: "tools are there after a reset", needs: needsSnapshot.With(sandbox.CapHostTools), probe: func(f *fixture) {
			s := f.acquireAs(mainKey(), f.tooled(echo))
			f.output(s, f.p.CallTool("echo", `{"a":1}`), `{"a":1}`)
			f.reset(s)
			f.output(s, f.p.CallTool("echo", `{"a":1}`), `{"a":1}`)
		},
	})
}
