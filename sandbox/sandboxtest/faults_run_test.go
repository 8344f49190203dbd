package sandboxtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// fault is a broken rule and the rules of the suite that find it.
type fault struct {
	config sandboxtest.Config
	fault  func(b *broken)
	want   []string
	// wide says that the fault takes away what many rules stand on: others
	// may fail too.
	wide bool
	// hangs says that something then never ends, so that it is not waited for
	// with much patience; others may fail too.
	hangs bool
}

func faults() map[string]fault {
	all := make(map[string]fault)
	for _, group := range []map[string]fault{acquireFaults(), runFaults(), toolFaults(), deadlineFaults(), disposalFaults(), refusalFaults()} {
		maps.Copy(all, group)
	}
	return all
}

func acquireFaults() map[string]fault {
	var count atomic.Int64
	return map[string]fault{
		"no name": {
			fault: func(b *broken) { b.name = func() string { return "" } },
			want:  []string{"acquire/a backend tells its name, isolation and declarations, the same every time"},
		},
		"declarations that change": {
			fault: func(b *broken) {
				b.declarations = func() sandbox.Declarations {
					d := b.Backend.Declarations()
					d.ObservesEgress = count.Add(1)%2 == 0
					return d
				}
			},
			want: []string{"acquire/a backend tells its name, isolation and declarations, the same every time"},
		},
		"a capability that is declared only": {
			fault: func(b *broken) {
				b.declarations = func() sandbox.Declarations {
					d := b.Backend.Declarations()
					d.Capabilities = d.Capabilities.With(sandbox.CapFilesList)
					return d
				}
			},
			want: []string{"acquire/a sandbox has an id and can do all that is declared"},
		},
		"acquires that share nothing": {
			hangs: true,
			fault: func(b *broken) {
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					if key.AgentID == "agent" {
						key.CallID = fmt.Sprint("acquire-", count.Add(1))
					}
					return b.Backend.Acquire(ctx, key, spec)
				}
			},
			want: []string{
				"acquire/acquiring a key again gives the same sandbox",
				"acquire/acquiring a key again keeps what ran before",
			},
			wide: true,
		},
		"agents that share a sandbox": {
			fault: onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
				if key.AgentID == "agent-2" {
					key.AgentID = "agent"
				}
				return ctx, key, spec
			}),
			want: []string{
				"acquire/every part of a key makes another sandbox",
				"acquire/sandboxes share nothing",
				"disposal/disposing of a key spares every other key",
				"scope purge/a purge takes all agents, kinds and calls of the conversation and counts them",
				"scope purge/a purge that fails says why and can be repeated",
				"host tools/a tool is told for whom by the host",
			},
		},
		"an acquire that ignores cancellation": {
			fault: onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
				return context.WithoutCancel(ctx), key, spec
			}),
			want: []string{"acquire/acquiring in a context that is over creates nothing"},
		},
		"acquires at once that do not see each other": {
			fault: func(b *broken) {
				var arrived atomic.Int64
				both := make(chan struct{})
				var once sync.Once
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					// The second to come while the first is at it is not told.
					n := arrived.Add(1)
					defer arrived.Add(-1)
					if n == 2 {
						once.Do(func() { close(both) })
						key.CallID = "second"
					} else if n == 1 && spec.Kind == "conformance" {
						select {
						case <-both:
						case <-time.After(20 * time.Millisecond):
						}
					}
					return b.Backend.Acquire(ctx, key, spec)
				}
			},
			wide: true,
			want: []string{"acquire/acquiring a key from many sides at once creates one sandbox"},
		},
		"a goroutine for each acquire": {
			hangs: true,
			fault: func(b *broken) {
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					stop := make(chan struct{})
					go func() { <-stop }()
					b.t.Cleanup(func() { close(stop) })
					return b.Backend.Acquire(ctx, key, spec)
				}
			},
			want: []string{"leaks/a closed backend leaves no goroutine behind"},
		},
		"a reset that keeps the state": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					var generation atomic.Int64
					s.id = func() string { return fmt.Sprintf("%s#%d", s.Sandbox.ID(), generation.Load()) }
					s.reset = func(context.Context) error { generation.Add(1); return nil }
				}
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					options.InstanceID, _, _ = strings.Cut(options.InstanceID, "#")
					return b.Backend.Dispose(ctx, key, options)
				}
			},
			want: []string{
				"reset/after a reset nothing is left of what ran",
				"reset/resets can be repeated, and no id comes twice",
				"reset/a reset in a context that is over changes nothing",
				"deadlines/a reset that waits too long in the queue changes nothing",
				"disposal/the id from before a reset disposes of nothing",
				"host tools/a tool is told for whom by the host",
			},
		},
		"a reset that keeps the id": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					first := s.Sandbox.ID()
					s.id = func() string { return first }
				}
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					options.InstanceID = ""
					return b.Backend.Dispose(ctx, key, options)
				}
			},
			want: []string{
				"reset/a reset gives a new id, and acquire knows it",
				"reset/resets can be repeated, and no id comes twice",
				"disposal/the id of a replaced sandbox disposes of nothing",
				"disposal/the id from before a reset disposes of nothing",
				"disposal/disposing of one instance spares the other kinds",
			},
		},
		"a reset of every kind": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					s.reset = func(ctx context.Context) error {
						b.mu.Lock()
						all := slices.Collect(maps.Keys(b.wrapped))
						b.mu.Unlock()
						for _, other := range all {
							if other != s.Sandbox {
								_ = other.Reset(ctx)
							}
						}
						return s.Sandbox.Reset(ctx)
					}
				}
			},
			want: []string{"reset/a reset touches no other sandbox"},
		},
		"acquires at once that disturb each other": {
			fault: func(b *broken) {
				var arrived atomic.Int64
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					defer arrived.Add(-1)
					if arrived.Add(1) > 1 {
						return nil, &sandbox.OpError{Op: "acquire", Class: sandbox.ErrInternal}
					}
					time.Sleep(time.Millisecond) // what takes time is disturbed
					return b.Backend.Acquire(ctx, key, spec)
				}
			},
			want: []string{
				"acquire/acquiring a key from many sides at once creates one sandbox",
				"concurrency/sandboxes at work at the same time do not mix",
				"concurrency/a storm of everything on one key ends with a sandbox that works",
				"concurrency/closing in the middle of acquires leaves no sandbox behind",
			},
		},
		"a reset that ignores cancellation": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					s.reset = func(ctx context.Context) error { return s.Sandbox.Reset(context.WithoutCancel(ctx)) }
				}
			},
			want: []string{
				"reset/a reset in a context that is over changes nothing",
				"deadlines/a reset that waits too long in the queue changes nothing",
			},
		},
	}
}

func runFaults() map[string]fault {
	type result = sandbox.ExecResult
	return map[string]fault{
		"trailing newlines that are cut": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				r.Stdout = bytes.TrimRight(r.Stdout, "\n")
				return r, err
			}),
			want: []string{"run_code/what a program prints comes back as it was written"},
		},
		"one stream for both outputs": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				r.Stdout, r.Stderr = append(r.Stdout, r.Stderr...), nil
				return r, err
			}),
			want: []string{
				"run_code/standard error comes back apart from standard output",
				"run_code/a program that fails is a result, and the sandbox goes on",
				"host tools/a tool that fails fails the program with its words",
				"host tools/a tool that panics fails the program and nothing else",
				"host tools/an unknown tool is the program's failure, which names those that are there",
			},
		},
		"exit codes that are only good or bad": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				r.ExitCode = min(r.ExitCode, 1)
				return r, err
			}),
			want: []string{"run_code/the exit code is the program's own"},
		},
		"a failing program that is an error": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				if bytes.HasPrefix(r.Stderr, []byte("error:")) {
					err = &sandbox.OpError{Op: "run_code", Usable: true}
				}
				return r, err
			}),
			want: []string{
				"run_code/a program that fails is a result, and the sandbox goes on",
				"host tools/a tool that fails fails the program with its words",
				"host tools/a tool that panics fails the program and nothing else",
				"host tools/an unknown tool is the program's failure, which names those that are there",
				"host tools/without tools a call fails",
			},
		},
		"programs that forget": {
			config: sandboxtest.Config{Interpreter: func(ctx context.Context, p *sandboxtest.Program) (int, error) {
				clear(p.Names)
				return sandboxtest.Interpret(ctx, p)
			}},
			fault: func(*broken) {},
			want: []string{
				"run_code/what a program stores is there for the next",
				"acquire/acquiring a key again keeps what ran before",
			},
			wide: true,
		},
		"output made text": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				r.Stdout = []byte(r.StdoutText())
				return r, err
			}),
			want: []string{"run_code/output that is not UTF-8 comes back byte for byte"},
		},
		"text that is ASCII only": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				if utf8.Valid(r.Stdout) {
					r.Stdout = bytes.Map(func(c rune) rune { return min(c, 127) }, r.Stdout)
				}
				return r, err
			}),
			want: []string{"run_code/text beyond ASCII goes in and comes out unchanged"},
		},
		"an empty program that is refused": {
			fault: onRun(func(code string, r result, err error) (result, error) {
				if code == "" {
					err = &sandbox.RefusalError{}
				}
				return r, err
			}),
			want: []string{"run_code/an empty program succeeds and prints nothing"},
		},
		"output that is kept for the next": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					var mu sync.Mutex
					var last []byte
					s.run = func(ctx context.Context, code string, timeout time.Duration) (result, error) {
						r, err := s.Sandbox.RunCode(ctx, code, timeout)
						mu.Lock()
						defer mu.Unlock()
						if strings.HasPrefix(code, `set "quiet"`) {
							r.Stdout = last
						}
						last = r.Stdout
						return r, err
					}
				}
			},
			want: []string{"run_code/each result holds its own program's output only"},
		},
		"code that is made UTF-8": {
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				return ctx, strings.ToValidUTF8(code, ""), timeout
			}),
			want: []string{"run_code/code that is not UTF-8 is refused and costs nothing"},
		},
		"a negative timeout that means none": {
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				return ctx, code, max(timeout, 0)
			}),
			want: []string{"run_code/a timeout below zero is refused and costs nothing"},
		},
		"no timeout that means no time": {
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				if timeout == 0 {
					timeout = 1
				}
				return ctx, code, timeout
			}),
			want: []string{"run_code/no timeout means the default one"},
		},
		"outputs that are mixed up": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) {
					var mu sync.Mutex
					var before []byte
					s.run = func(ctx context.Context, code string, timeout time.Duration) (result, error) {
						r, err := s.Sandbox.RunCode(ctx, code, timeout)
						mu.Lock()
						defer mu.Unlock()
						if strings.HasPrefix(code, `print "run 1`) {
							r.Stdout, before = before, r.Stdout
						}
						return r, err
					}
				}
			},
			want: []string{
				"run_code/each result holds its own program's output only",
				"concurrency/runs of one sandbox take turns and keep their outputs apart",
			},
		},
		"output that is cut in silence": {
			fault: onRun(func(_ string, r result, err error) (result, error) {
				if errors.Is(err, sandbox.ErrOutputLimit) {
					err = nil
				}
				return r, err
			}),
			want: []string{"limits/output beyond the limit is an error and never a longer result"},
		},
		"an output limit that is one too low": {
			config: sandboxtest.Config{MaxOutput: 1000},
			fault: onRun(func(_ string, r result, err error) (result, error) {
				if len(r.Stdout) == 1000 {
					err = &sandbox.OpError{Op: "run_code", Class: sandbox.ErrOutputLimit, Usable: true}
				}
				return r, err
			}),
			want: []string{"limits/output up to the limit comes back whole"},
		},
		"a code limit that nobody keeps": {
			fault: onCall(func(ctx context.Context, code string, timeout time.Duration) (context.Context, string, time.Duration) {
				return ctx, code[:min(len(code), sandboxtest.DefaultMaxCode)], timeout
			}),
			want: []string{"limits/code beyond the limit is refused in words and costs nothing"},
		},
	}
}
