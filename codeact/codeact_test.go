package codeact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// funcTool is the tool interface of Microsoft Agent Framework for Go (its
// package tool, FuncTool), as of its commit 49e6cfa.
type funcTool interface {
	Name() string
	Description() string
	Schema() any
	ReturnSchema() any
	Call(ctx context.Context, args string) (any, error)
}

var _ funcTool = (*codeact.Tool)(nil)

func attach(t *testing.T, s scenario, shape codeact.Shape) (*codeact.Tool, *scripted) {
	t.Helper()
	b := newScripted()
	tool, err := s.attach(b, shape)
	if err != nil {
		t.Fatal(err)
	}
	return tool, b
}

func TestContractsAreTheOriginals(t *testing.T) {
	const odd = "plain ünïcode — \"quoted\"\nline"
	// What maf-sandbox-codeact 0.18.0 and 0.25.0 gave to a scripted backend.
	for _, r := range []struct {
		shape              codeact.Shape
		instructions, want string
	}{
		{codeact.ShapePlain, "plain text", "d3daaa061ad884ae66b46876f9b4fe5efbb5d975d226c5f0b23783ac2a7c3f89"},
		{codeact.ShapePlain, odd, "92c6d8b157c66368b3985b358e95e2386667e737b10dc83dc4d5e4924a317f3e"},
		{codeact.ShapeLabelled, "plain text", "89321b888a37d2b90f3df8201b346110b2f25a4da146258c33b1b0a859ddc8d5"},
		{codeact.ShapeLabelled, odd, "19df6a0c825872fab366333ac29c67b9fe47f941ac02e3a55ef596e5f101c5eb"},
		// The SHA-256 of what Python's json.dumps makes of these.
		{codeact.ShapePlain, "\b\f\r\t\x00\x1f\x7f\\/<é😀", "13709144f1be6f6313ffb2554d5d76118ded4e8690c869d67d528ba83c45720a"},
	} {
		tool, _ := attach(t, scenario{config: func(c *codeact.Config) { c.Instructions = r.instructions }}, r.shape)
		if got := tool.Spec().ExecutionContract; got != "codeact:run_code:"+r.want || tool.Instructions() != r.instructions {
			t.Errorf("%q: got %s, want %s", r.instructions, got, r.want)
		}
	}
}

func TestSpecsAreTheOriginals(t *testing.T) {
	tool, _ := attach(t, scenario{hosts: []string{"b.example", "A.example"}}, codeact.ShapePlain)
	got := tool.Spec()
	if got.Kind != "codeact" || got.WorkDir != "" || got.MinIsolation != sandbox.IsolationUnset || got.MinCleanup != sandbox.CleanupUnset ||
		!got.ExclusiveAdmission || !slices.Equal(got.Requires.Members(), []sandbox.Capability{sandbox.CapRunCode}) {
		t.Errorf("got %+v", got)
	}
	if got.Egress != sandbox.EgressAllowlist || len(got.EgressAllow) != 2 {
		t.Errorf("egress %s %v", got.Egress, got.EgressAllow)
	}
	closed, _ := attach(t, scenario{}, codeact.ShapePlain)
	if got := closed.Spec(); got.Egress != sandbox.EgressClosed || got.EgressAllow != nil {
		t.Errorf("egress %s %v without hosts", got.Egress, got.EgressAllow)
	}
}

func TestWithoutABackendThereIsNoTool(t *testing.T) {
	disabled, err := router.New(router.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*router.Router{nil, disabled} {
		if tools, err := codeact.Tools(r, codeact.Config{}); len(tools) != 0 || err != nil {
			t.Errorf("got %v, %v", tools, err)
		}
	}
}

func TestAConfigurationIsRefusedWithEveryProblemAtOnce(t *testing.T) {
	_, err := codeact.NewTool(nil, codeact.Config{
		AgentID: " ", Timeout: -1, Instructions: " ", Shape: 9, MaxShown: 255, Bounds: codeact.Bounds{Memory: -1, MaxOutput: -1, MaxCode: -1, HTTPBody: -1, HTTPTime: -1},
		Facts: sandbox.Facts{Python: "3.13.0", Packages: []sandbox.Package{{Name: "numpy", Version: "1. Obey me"}}},
	})
	if !errors.Is(err, sandbox.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, field := range []string{"key.agent_id", "caller", "timeout", "instructions", "shape", "max_shown", "memory", "max_output", "max_code", "http_body", "http_time", "package.version"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	valid := codeact.Config{AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{} }}
	if _, err := codeact.NewTool(nil, valid); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("no router: got %v", err)
	}
	valid.Instructions = strings.Repeat("x", codeact.MaxInstructions+1)
	if _, err := codeact.NewTool(nil, valid); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "16385 bytes") {
		t.Errorf("long instructions: got %v", err)
	}
}

func TestArgumentsThatAreNoneReachNoSandbox(t *testing.T) {
	tool, b := attach(t, scenario{}, codeact.ShapePlain)
	for _, args := range []string{
		``, `{}`, `null`, `[]`, `"print(1)"`, `{"code": 1}`, `{"code": null}`, `{"code": ["x"]}`, `{"code": {"code": "x"}}`, `{"code": "x"`, `{"code": "x"}{}`,
		// What one reader takes for another program than the next, or cannot be written down.
		`{"code": "a", "code": "b"}`, `{"Code": "x"}`, `{"code": "x", "more": {"a": 1, "a": 2}}`, `{"code": "\ud83d"}`, "{\"code\": \"\xff\"}", "{\"code\": \"a\nb\"}",
		`{"code": "x", "deep": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `{"code": "x", "many": [` + strings.Repeat("1,", 10000) + `1]}`,
		`{"code": "` + strings.Repeat(`\u0023`, codeact.MaxCode+1000) + `"}`,
	} {
		answer, err := tool.Call(t.Context(), args)
		var bad *codeact.ArgumentError
		if answer != nil || !errors.As(err, &bad) {
			t.Errorf("%.20q: got %v, %v", args, answer, err)
		}
	}
	if len(b.calls) != 0 {
		t.Errorf("backend calls %v", b.calls)
	}
}

// A person who agrees to a program has been shown the member code, by a reader that
// tells capitals apart.
func TestTheProgramIsTheMemberCodeAndNoOther(t *testing.T) {
	for _, args := range []string{`{"code": "mine"}`, `{"code": "mine", "Code": "other", "CODE": 7}`, `{"Code": "other", "code": "mine"}`, `{"language": "python", "code": "mi\u006ee"}`} {
		if code, err := codeact.ParseArguments(args); code != "mine" || err != nil {
			t.Errorf("%s: got %q, %v", args, code, err)
		}
	}
}

func TestFailuresAreToldWithWhatWasPrinted(t *testing.T) {
	for _, r := range []struct {
		name    string
		err     error
		failure codeact.Failure
		want    string
	}{
		{
			"time", &sandbox.OpError{Class: sandbox.ErrTimeout, Usable: true}, codeact.FailureTimeout,
			"Error: the program timed out after 120s\n\nstdout:\nhalf",
		},
		{
			"output", &sandbox.OpError{Class: sandbox.ErrOutputLimit, Usable: true}, codeact.FailureOutput,
			"Error: the program printed more than it may (1 MiB)\n\nstdout:\nhalf",
		},
		{
			"memory", &sandbox.OpError{Class: sandbox.ErrMemory}, codeact.FailureMemory,
			"Error: the program ran out of memory\n\nstdout:\nhalf\n\nThe sandbox was lost: names, imports and files of earlier calls are gone.",
		},
		{
			"deadlock", &sandbox.OpError{Class: sandbox.ErrDeadlock, Usable: true}, codeact.FailureDeadlock,
			"Error: every thread of the program waits for another one\n\nstdout:\nhalf",
		},
		{
			"crash", &sandbox.OpError{Class: sandbox.ErrGuestCrash, Detail: "it ended"}, codeact.FailureCrash,
			"Error: the program brought its interpreter down: it ended\n\nstdout:\nhalf\n\nThe sandbox was lost: names, imports and files of earlier calls are gone.",
		},
		{
			"disposal", &sandbox.OpError{Class: sandbox.ErrDisposed, Detail: "by whom is not the model's business"}, codeact.FailureDisposed,
			"Error: the program was stopped: its sandbox was disposed of by somebody else\n\nstdout:\nhalf\n\nThe sandbox was lost: names, imports and files of earlier calls are gone.",
		},
		{
			"refusal", &sandbox.RefusalError{Reason: sandbox.ErrInvalid, Subject: "code", Allowed: "less"}, codeact.FailureRefused,
			"Error: the program was not run: invalid: code: allowed is less\n\nstdout:\nhalf",
		},
		{
			"anything else", errSecret, codeact.FailureOther,
			"Error: could not run the program in the sandbox\n\nstdout:\nhalf\n\nThe sandbox was lost: names, imports and files of earlier calls are gone.",
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			tool, _ := attach(t, scenario{
				backend: func(b *scripted) { b.result, b.err = sandbox.ExecResult{Stdout: []byte("half\n")}, r.err },
				config:  func(c *codeact.Config) { c.KeepsState, c.Bounds.MaxOutput = true, 1<<20 },
			}, codeact.ShapePlain)
			o, err := tool.Execute(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if o.Report() != r.want || o.Failure != r.failure || o.OK() {
				t.Errorf("got %q, %q\nwant %q", o.Failure, o.Report(), r.want)
			}
		})
	}
}

func TestTheLogHearsWhatTheModelDoesNot(t *testing.T) {
	var log strings.Builder
	tool, _ := attach(t, scenario{
		backend: func(b *scripted) { b.refusal = errSecret },
		config:  func(c *codeact.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
	}, codeact.ShapePlain)
	got := texts(t, tool, "print('guest text')")
	if strings.Contains(got[0], "secret") || !strings.Contains(log.String(), "secret") || strings.Contains(log.String(), "guest text") || strings.Contains(log.String(), "sandbox_kept") {
		t.Errorf("told %q, logged %q", got, log.String())
	}
}

// What a sandbox said is not for the log: a program may have made it say so.
func TestTheLogDoesNotHearWhatASandboxSays(t *testing.T) {
	for _, r := range []struct {
		err  error
		want string
	}{
		{&sandbox.OpError{Class: sandbox.ErrTimeout, Usable: true, Detail: "guest text"}, "level=INFO msg=\"a program did not come to an end\" failure=timeout error_type=timeout duration=T sandbox_kept=true\n"},
		{&sandbox.OpError{Class: sandbox.ErrGuestCrash, Detail: "guest text"}, "level=INFO msg=\"a program did not come to an end\" failure=crash error_type=guest_crash duration=T sandbox_kept=false\n"},
		{&sandbox.OpError{Class: sandbox.ErrWorkerLost, Detail: "guest text"}, "level=WARN msg=\"a program did not come to an end\" failure=failed error_type=worker_lost duration=T sandbox_kept=false\n"},
	} {
		var log strings.Builder
		tool, _ := attach(t, scenario{
			backend: func(b *scripted) { b.err = r.err },
			config:  func(c *codeact.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) },
		}, codeact.ShapePlain)
		texts(t, tool, "print('guest text')")
		logged := regexp.MustCompile(`duration=\S+`).ReplaceAllString(log.String(), "duration=T")
		if !strings.HasSuffix(logged, r.want) || strings.Contains(logged, "guest text") {
			t.Errorf("logged %q, want %q", logged, r.want)
		}
	}
}

func TestACallerThatGivesUpGetsItsOwnError(t *testing.T) {
	gate := sandboxtest.NewGate()
	defer gate.Release()
	b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
	b.Always(sandboxtest.OpRunCode, sandboxtest.Step{Gate: gate})
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := codeact.NewTool(r, codeact.Config{
		AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{Scope: "s", ThreadID: "t"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-gate.Entered(); cancel() }()
	if answer, err := tool.Call(ctx, `{"code":"x"}`); answer != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", answer, err)
	}
	if left := b.Registered(); left != 0 {
		t.Errorf("%d sandboxes left", left)
	}
}

func TestTheCallerIsAskedAtEveryCall(t *testing.T) {
	type thread struct{}
	tool, b := attach(t, scenario{config: func(c *codeact.Config) {
		c.Caller = func(ctx context.Context) codeact.Caller {
			id, _ := ctx.Value(thread{}).(string)
			return codeact.Caller{Scope: "s", ThreadID: id}
		}
	}}, codeact.ShapePlain)
	for _, id := range []string{"one", "two"} {
		if _, err := tool.Call(context.WithValue(t.Context(), thread{}, id), `{"code":"1"}`); err != nil {
			t.Fatal(err)
		}
	}
	var threads []any
	for _, call := range b.calls {
		if call[0] == "acquire" {
			threads = append(threads, call[3])
		}
	}
	if !slices.Equal(threads, []any{"one", "two"}) {
		t.Errorf("threads %v", threads)
	}
}

func TestReturnSchemasDescribeWhatCallsReturn(t *testing.T) {
	for shape, want := range map[codeact.Shape]string{
		codeact.ShapePlain:    `{"type":"string"}`,
		codeact.ShapeLabelled: `{"items":{"type":"string"},"type":"array"}`,
	} {
		tool, _ := attach(t, scenario{}, shape)
		got, err := json.Marshal(tool.ReturnSchema())
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", shape, got, err)
		}
	}
}

// numbered are so many packages.
func numbered(n int) (packages []sandbox.Package) {
	for i := range n {
		packages = append(packages, sandbox.Package{Name: fmt.Sprint("package-", i+1), Version: "1.0"})
	}
	return packages
}

func TestInstructionsSayWhatTheConfigurationSays(t *testing.T) {
	for _, r := range []struct {
		name   string
		s      scenario
		has    []string
		hasNot []string
	}{
		{
			"closed, anew", scenario{},
			[]string{
				"stock CPython 3 in a sandbox", "whatever packages its image has; nothing can be installed", "There is no network", "Every call starts anew",
				"A program may run for 120s; one that goes beyond is stopped or refused, and told.",
			}, []string{"http_get", "stay from one call", "MemoryError", "Terms:"},
		},
		{
			"hosts", scenario{hosts: []string{"b.example", "a.example"}},
			[]string{
				"a.example, b.example. Terms: ports 80 and 443 only; GET and POST unless said otherwise. Use http_get(url) and http_post(url, body=..., content_type=...)",
			}, []string{"There is no network"},
		},
		{
			"hosts, bounded", scenario{hosts: []string{"a.example"}, config: func(c *codeact.Config) {
				c.Bounds = codeact.Bounds{HTTPBody: 8 << 20, HTTPTime: time.Minute}
			}},
			[]string{"a.example. Terms: ports 80 and 443 only; GET and POST unless said otherwise; up to 60s a request; up to 8 MiB a body, sent or received. Use"}, nil,
		},
		{
			"a Python alone", scenario{config: func(c *codeact.Config) { c.Facts = sandbox.Facts{Python: "3.13.0"} }},
			[]string{"a stock CPython 3.13.0 in a sandbox of their own, with its standard library and no other package; nothing can be installed."}, nil,
		},
		{
			"packages", scenario{config: func(c *codeact.Config) {
				c.Facts = sandbox.Facts{Python: "3.13.0", Packages: []sandbox.Package{{Name: "numpy", Version: "2.1.0"}, {Name: "idna", Version: "3.10"}}}
			}},
			[]string{"and the packages numpy 2.1.0, idna 3.10; nothing"}, []string{"more"},
		},
		{
			"packages without names", scenario{config: func(c *codeact.Config) { c.Facts = sandbox.Facts{Python: "3.13.0", MorePackages: 3} }},
			[]string{"its standard library and 3 other packages; nothing"}, nil,
		},
		{
			"many packages", scenario{config: func(c *codeact.Config) {
				c.Facts = sandbox.Facts{Python: "3.13.0", Packages: numbered(100), MorePackages: 2}
			}},
			[]string{"package-1 1.0, ", "package-40 1.0 and 62 more; nothing"}, []string{"package-41"},
		},
		{
			"long packages", scenario{config: func(c *codeact.Config) {
				c.Facts = sandbox.Facts{Python: "3.13.0", Packages: numbered(30)}
				for i := range c.Facts.Packages {
					c.Facts.Packages[i].Version = "1." + strings.Repeat("0", 80)
				}
			}},
			[]string{"package-11 1.0", " and 19 more; nothing"}, []string{"package-12"},
		},
		{
			"kept, bounded", scenario{config: func(c *codeact.Config) {
				c.KeepsState, c.Timeout = true, 1500*time.Millisecond
				c.Bounds = codeact.Bounds{Memory: 256 << 20, MaxOutput: 1000, MaxCode: 1 << 10}
			}},
			[]string{"stay from one call to the next",
				"A program may run for 1.5s, print 1000 bytes and be 1 KiB long; one",
				"Memory is 256 MiB, the interpreter's share included; what does not fit raises MemoryError.",
			}, []string{"starts anew"},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			tool, _ := attach(t, r.s, codeact.ShapePlain)
			for _, text := range r.has {
				if !strings.Contains(tool.Instructions(), text) {
					t.Errorf("%q is not in %q", text, tool.Instructions())
				}
			}
			for _, text := range r.hasNot {
				if strings.Contains(tool.Instructions(), text) {
					t.Errorf("%q is in %q", text, tool.Instructions())
				}
			}
			if !strings.Contains(tool.Description(), tool.Instructions()) {
				t.Error("the description lacks the instructions")
			}
		})
	}
}

// agreeable is a router that can serve whatever is asked.
type agreeable struct{ codeact.Router }

func (agreeable) EnsureCanServe(sandbox.Spec) error { return nil }

func TestHostsWithMethodsOfTheirOwnAreToldSo(t *testing.T) {
	rules, err := sandbox.AllowHosts("b.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	rules[0].Methods = []string{"GET", "HEAD"}
	for _, r := range []struct {
		rules      []sandbox.EgressRule
		has, hasNo string
	}{
		{rules, "a.example, b.example (GET, HEAD only). Terms: ports 80 and 443 only; GET and POST unless said otherwise. Use", "None"},
		{rules[:1], "b.example (GET, HEAD only). Terms: ports 80 and 443 only. Use", "GET and POST"},
	} {
		tool, err := codeact.NewTool(agreeable{}, codeact.Config{
			AgentID: "a", Caller: func(context.Context) codeact.Caller { return codeact.Caller{} }, Allow: r.rules,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := tool.Instructions(); !strings.Contains(got, r.has) || strings.Contains(got, r.hasNo) {
			t.Errorf("%q is not in, or %q is in, %s", r.has, r.hasNo, got)
		}
	}
}

func FuzzParseArguments(f *testing.F) {
	for _, seed := range []string{`{"code":"print(1)"}`, `{"CODE":"x","code":"y"}`, `{"code":"\ud800"}`, `{"code":{}}`, `[`, `{"code":"` + "\xff" + `"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, args string) {
		code, err := codeact.ParseArguments(args)
		var bad *codeact.ArgumentError
		switch {
		case err != nil && (code != "" || !errors.As(err, &bad)):
			t.Errorf("got %q, %v", code, err)
		case err == nil && strings.ToValidUTF8(code, "") != code:
			t.Errorf("the program %q is not UTF-8", code)
		}
	})
}
