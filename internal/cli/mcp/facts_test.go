package mcp

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

const listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`

func TestTheModelIsToldOfTheImageAndTheLimits(t *testing.T) {
	unknown := &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "no image"}
	for _, r := range []struct {
		name  string
		facts func(sandbox.Spec) (sandbox.Facts, error)
		want  []string
		told  bool // in the log, that nothing is known
	}{
		{"known", func(sandbox.Spec) (sandbox.Facts, error) {
			return sandbox.Facts{Python: "3.13.0", Packages: []sandbox.Package{{Name: "numpy", Version: "2.1.0"}}}, nil
		}, []string{
			"a stock CPython 3.13.0 in a sandbox", "and the packages numpy 2.1.0;", "run for 120s, print 1 MiB and be 1 MiB long", "Memory is 256 MiB",
			"up to 60s a request; up to 8 MiB a body",
		}, false},
		{"not captured yet", func(sandbox.Spec) (sandbox.Facts, error) { return sandbox.Facts{}, unknown }, []string{"a stock CPython 3 in a sandbox"}, true},
		{"a backend without", nil, []string{"a stock CPython 3 in a sandbox"}, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := begin(t, func(o *Options) {
				memory := o.Backend
				o.Backend = func(o *Options, private []sandbox.Host, logger *slog.Logger) (sandbox.Backend, error) {
					behind, err := memory(o, private, logger)
					b := newLazy(behind, logger, func(context.Context) (sandbox.Backend, error) { return behind, nil })
					b.facts = r.facts
					return b, err
				}
			}, "--allow", "a.example", "--log", "info")
			s.says(t, initialize)
			got := s.says(t, listTools)
			for _, want := range r.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %s", want, got)
				}
			}
			_ = s.to.Close()
			if err := s.ends(t); err != nil {
				t.Error(err)
			}
			if log := s.errOut.String(); strings.Contains(log, "the model is not told") != r.told {
				t.Errorf("logged %s", log)
			}
		})
	}
}

func TestTheListOfToolsWaitsForTheFirstCapture(t *testing.T) {
	unknown := &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "no image"}
	var captured atomic.Bool
	capture := make(chan struct{})
	s := begin(t, func(o *Options) {
		memory := o.Backend
		o.Backend = func(o *Options, private []sandbox.Host, logger *slog.Logger) (sandbox.Backend, error) {
			behind, err := memory(o, private, logger)
			b := newLazy(behind, logger, func(context.Context) (sandbox.Backend, error) {
				<-capture
				captured.Store(true)
				return behind, nil
			})
			b.facts = func(sandbox.Spec) (sandbox.Facts, error) {
				if captured.Load() {
					return sandbox.Facts{Python: "3.13.0"}, nil
				}
				return sandbox.Facts{}, unknown
			}
			return b, err
		}
	})
	if got := s.says(t, initialize); !strings.Contains(got, `"id":1,"result"`) {
		t.Errorf("initialize: %s", got)
	}
	if _, err := io.WriteString(s.to, listTools+"\n"); err != nil {
		t.Fatal(err)
	}
	// What does not need to know is answered meanwhile.
	if got := s.says(t, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); !strings.Contains(got, `"id":3,"result":{}`) {
		t.Fatalf("ping: %s", got)
	}
	close(capture)
	if !s.from.Scan() || !strings.Contains(s.from.Text(), "a stock CPython 3.13.0 in a sandbox") {
		t.Errorf("list: %s", s.from.Text())
	}
	_ = s.to.Close()
	if err := s.ends(t); err != nil {
		t.Error(err)
	}
}
