package sandboxtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

type toolFunc = func(ctx context.Context, arguments json.RawMessage) (any, error)

// onTools has every call of a tool pass through a function.
func onTools(change func(ctx context.Context, call toolFunc, arguments json.RawMessage) (any, error)) func(*broken) {
	return onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
		if spec.HostTools == nil {
			return ctx, key, spec
		}
		tools := spec.HostTools.Tools()
		for i := range tools {
			call := tools[i].Call
			tools[i].Call = func(ctx context.Context, arguments json.RawMessage) (any, error) { return change(ctx, call, arguments) }
		}
		spec.HostTools, _ = sandbox.NewHostTools(tools...) // they were in order
		return ctx, key, spec
	})
}

// onCalled has the results of programs that call a tool pass through a function.
func onCalled(change func(r sandbox.ExecResult) sandbox.ExecResult) func(*broken) {
	return onRun(func(code string, r sandbox.ExecResult, err error) (sandbox.ExecResult, error) {
		if strings.HasPrefix(code, "call ") {
			r = change(r)
		}
		return r, err
	})
}

func toolFaults() map[string]fault {
	return map[string]fault{
		"numbers as floats": {
			fault: onCalled(func(r sandbox.ExecResult) sandbox.ExecResult {
				r.Stdout = bytes.ReplaceAll(r.Stdout, []byte("9223372036854775808"), []byte("9223372036854775807"))
				return r
			}),
			want: []string{"host tools/a program calls a tool and gets what it returns"},
		},
		"tools that are told nothing": {
			fault: onTools(func(ctx context.Context, call toolFunc, arguments json.RawMessage) (any, error) {
				nobody, cancel := context.WithCancel(context.Background())
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				return call(nobody, arguments)
			}),
			want: []string{"host tools/a tool is told for whom by the host"},
		},
		"failures without words": {
			fault: onTools(func(ctx context.Context, call toolFunc, arguments json.RawMessage) (any, error) {
				result, err := call(ctx, arguments)
				if err != nil {
					err = errors.New("it failed")
				}
				return result, err
			}),
			want: []string{"host tools/a tool that fails fails the program with its words"},
		},
		"panics that pass for results": {
			fault: onTools(func(ctx context.Context, call toolFunc, arguments json.RawMessage) (result any, err error) {
				defer func() { _ = recover() }()
				return call(ctx, arguments)
			}),
			want: []string{"host tools/a tool that panics fails the program and nothing else"},
		},
		"an unknown tool without words": {
			fault: onCalled(func(r sandbox.ExecResult) sandbox.ExecResult {
				if bytes.Contains(r.Stderr, []byte("ghost")) {
					r.Stderr = []byte("no such tool")
				}
				return r
			}),
			want: []string{"host tools/an unknown tool is the program's failure, which names those that are there"},
		},
		"tools that nobody gave": {
			fault: onCalled(func(r sandbox.ExecResult) sandbox.ExecResult {
				if bytes.Contains(r.Stderr, []byte("no tools")) {
					r.ExitCode = 0
				}
				return r
			}),
			want: []string{"host tools/without tools a call fails"},
		},
		"tools that do not hear of the end": {
			fault: func(b *broken) {
				over, cancel := context.WithCancel(context.Background())
				b.t.Cleanup(cancel)
				onTools(func(ctx context.Context, call toolFunc, arguments json.RawMessage) (any, error) {
					late, cancel := context.WithCancel(context.WithoutCancel(ctx))
					defer cancel()
					defer context.AfterFunc(over, cancel)()
					return call(late, arguments)
				})(b)
			},
			hangs: true,
			want:  []string{"host tools/a tool ends with the run that called it"},
		},
		"runs that wait for their tools": {
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				if strings.Contains(code, "stuck") {
					return context.WithoutCancel(ctx), code, time.Hour
				}
				return ctx, code, timeout
			}),
			hangs: true,
			want:  []string{"host tools/a tool that goes on does not hold up the run, and its late result is dropped"},
		},
		"the functions of the first acquire": {
			fault: func(b *broken) {
				var mu sync.Mutex
				var first *sandbox.HostTools
				onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
					mu.Lock()
					defer mu.Unlock()
					if spec.HostTools != nil && slices.Equal(spec.HostTools.Names, []string{"version"}) {
						if first == nil {
							first = spec.HostTools
						}
						spec.HostTools = first
					}
					return ctx, key, spec
				})(b)
			},
			want: []string{"host tools/the functions are those of the latest acquire"},
		},
		"a live sandbox without the tools": {
			fault: func(b *broken) {
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					s, err := b.Backend.Acquire(ctx, key, spec)
					if errors.Is(err, sandbox.ErrConfigurationChanged) && spec.HostTools != nil {
						spec.HostTools = nil
						return b.Backend.Acquire(ctx, key, spec)
					}
					return s, err
				}
			},
			want: []string{"host tools/a live sandbox is never used with other tools"},
		},
		"tools that a reset takes away": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					var gone atomic.Bool
					s.reset = func(ctx context.Context) error {
						gone.Store(true)
						return s.Sandbox.Reset(ctx)
					}
					s.run = func(ctx context.Context, code string, timeout time.Duration) (sandbox.ExecResult, error) {
						if gone.Load() && strings.HasPrefix(code, "call ") {
							code = "raise \"no tools\""
						}
						return s.Sandbox.RunCode(ctx, code, timeout)
					}
				}
			},
			want: []string{"host tools/tools are there after a reset"},
		},
	}
}
