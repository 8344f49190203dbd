package microvm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/supervise"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestAWorkerThatDoesNotStartIsToldByWhatTheCallerCanDo(t *testing.T) {
	var lacks *EngineError
	var setup *SetupError
	for name, c := range map[string]struct {
		failure supervise.StartError
		engine  Engine
		class   error
		as      any
		has     []string
		not     []string
	}{
		"no KVM": {
			supervise.StartError{Kind: "no_platform", Message: "no /dev/kvm"}, EngineKVM, sandbox.ErrUnavailable, &lacks,
			[]string{"no /dev/kvm", "'maf-sandbox doctor'", "Config.Engine", "EngineAuto", "MinIsolation", "container", "os_process"}, nil,
		},
		"no tracing": {
			supervise.StartError{Kind: "no_platform", Message: "no ptrace"}, EnginePtrace, sandbox.ErrUnavailable, &lacks,
			[]string{"no ptrace", "'maf-sandbox doctor'"}, []string{"EngineAuto"},
		},
		"neither": {
			supervise.StartError{Kind: "no_platform", Message: "no /dev/kvm"}, EngineAuto, sandbox.ErrUnavailable, &lacks,
			[]string{"'maf-sandbox doctor'"}, []string{"MinIsolation"},
		},
		"no ceiling": {
			supervise.StartError{Kind: "unavailable", Message: "no group", Ceiling: true}, EngineKVM, sandbox.ErrUnavailable, &setup,
			[]string{"no group", "EnforceRlimit"}, []string{"EngineAuto"},
		},
		"an image that is none": {
			supervise.StartError{Kind: "unavailable", Message: "no image"}, EngineKVM, sandbox.ErrUnavailable, nil,
			[]string{"no image"}, []string{"EngineAuto"},
		},
		"somebody ended it": {
			supervise.StartError{Kind: supervise.KindKilled, Message: "signal 9"}, EngineKVM, sandbox.ErrWorkerLost, nil,
			[]string{"signal 9", "tried again"}, nil,
		},
		"no memory": {supervise.StartError{Kind: "memory", Message: "full"}, EngineKVM, sandbox.ErrMemory, nil, []string{"full"}, nil},
		"a fault":   {supervise.StartError{Kind: "internal", Message: "odd"}, EngineKVM, sandbox.ErrInternal, nil, []string{"odd"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := startFailure(&c.failure, c.engine, EnforceCgroup)
			if !errors.Is(err, c.class) || c.as != nil && !errors.As(err, c.as) {
				t.Errorf("got %v", err)
			}
			for _, part := range c.has {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			for _, part := range c.not {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%q says %q", err, part)
				}
			}
		})
	}
}

func TestAWorkerThatIsEndedAtItsStartIsReplacedOnce(t *testing.T) {
	starts := 0
	s := &fakeSystem{serve: answers(good), boot: func(context.Context) error {
		if starts++; starts == 1 {
			return startFailure(&supervise.StartError{Kind: supervise.KindKilled}, EngineKVM, EnforceRlimit)
		}
		return nil
	}}
	b := fakeBackend(t, s, Config{})
	if _, err := b.Acquire(t.Context(), key(), spec()); err != nil {
		t.Fatal(err)
	}
	if starts != 2 || s.launched != 1 {
		t.Errorf("%d workers of %d supervisors were started", starts, s.launched)
	}
}
