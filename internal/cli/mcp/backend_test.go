package mcp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

var (
	key  = sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}
	spec = sandbox.Spec{Kind: "k"}
)

// lazily is a lazy backend over one in memory, whose starts fail as often as
// said.
func lazily(t *testing.T, failures int) (b *lazy, live *sandboxtest.Backend, starts *int) {
	t.Helper()
	live, starts = sandboxtest.New(sandboxtest.Config{}), new(int)
	b = newLazy(live, slog.New(slog.DiscardHandler), func(context.Context) (sandbox.Backend, error) {
		if *starts++; *starts <= failures {
			return nil, &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable}
		}
		return live, nil
	})
	return b, live, starts
}

func TestALazyBackendStartsAtItsFirstUse(t *testing.T) {
	b, live, starts := lazily(t, 0)
	if b.Name() != live.Name() || b.Isolation() != live.Isolation() {
		t.Error("it is not like the one behind")
	}
	if err := b.Dispose(t.Context(), key, sandbox.DisposeOptions{}); err != nil {
		t.Error(err)
	}
	if purge := b.DisposeScope(t.Context(), "s", "t"); purge.Err() != nil {
		t.Error(purge.Err())
	}
	if *starts != 0 {
		t.Error("a disposal started it")
	}
	for range 2 {
		if _, err := b.Acquire(t.Context(), key, spec); err != nil {
			t.Fatal(err)
		}
	}
	if *starts != 1 {
		t.Errorf("%d starts", *starts)
	}
	if purge := b.DisposeScope(t.Context(), "s", "t"); purge.Disposed != 1 {
		t.Errorf("purge %+v", purge)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Acquire(t.Context(), key, spec); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := live.Acquire(t.Context(), key, spec); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("the one behind after Close: %v", err)
	}
}

func TestWhatDoesNotStartIsTriedAgain(t *testing.T) {
	b, _, starts := lazily(t, 2)
	var log bytes.Buffer
	b.logger = slog.New(slog.NewTextHandler(&log, nil))
	b.Warm(t.Context())
	if !strings.Contains(log.String(), "no sandbox can be started") {
		t.Errorf("logged %q", &log)
	}
	if _, err := b.Acquire(t.Context(), key, spec); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := b.Acquire(t.Context(), key, spec); err != nil || *starts != 3 {
		t.Errorf("got %v after %d starts", err, *starts)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// reporter is a backend that reports what programs reach for.
type reporter struct {
	*sandboxtest.Backend
	report func(sandbox.EgressObservation)
}

func (r *reporter) ObserveEgress(report func(sandbox.EgressObservation)) { r.report = report }

func TestWhatProgramsReachForIsLogged(t *testing.T) {
	b, live, _ := lazily(t, 0)
	behind := &reporter{Backend: live}
	b.open = func(context.Context) (sandbox.Backend, error) { return behind, nil }
	var log bytes.Buffer
	observer := newRequests(slog.New(slog.NewTextHandler(&log, nil)), nil)
	b.ObserveEgress(func(o sandbox.EgressObservation) {
		observer.Observe(router.EgressObserved{Backend: "b", EgressObservation: o})
	})
	b.Warm(t.Context())
	behind.report(sandbox.EgressObservation{Key: key, Decisions: []sandbox.EgressDecision{
		{Host: "a.example", Port: 443, Allowed: true, Reason: "allowed"}, {Host: "\x1b[2J", Port: 80, Reason: "host"},
	}})
	for _, want := range []string{
		`level=INFO msg="a program made a request" key=s/t/a reason=allowed allowed=true port=443`,
		`level=WARN msg="a program made a request" key=s/t/a reason=host allowed=false port=80` + "\n", // and no word of the program
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in %s", want, &log)
		}
	}
	observer.Observe(router.SandboxAcquired{}) // is not its business
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d lines", lines)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestAClosedBackendNeverStarts(t *testing.T) {
	b, _, starts := lazily(t, 0)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), key, spec); !errors.Is(err, sandbox.ErrClosed) || *starts != 0 {
		t.Errorf("got %v, %d starts", err, *starts)
	}
}

func TestWhoGivesUpDoesNotWaitForAStart(t *testing.T) {
	b, live, _ := lazily(t, 0)
	starting, release := make(chan struct{}), make(chan struct{})
	b.open = func(context.Context) (sandbox.Backend, error) {
		close(starting)
		<-release
		return live, nil
	}
	warmed := make(chan struct{})
	go func() { defer close(warmed); b.Warm(context.WithoutCancel(t.Context())) }()
	<-starting
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx, key, spec); !errors.Is(err, sandbox.ErrCanceled) || !sandbox.Usable(err) {
		t.Errorf("got %v", err)
	}
	close(release)
	<-warmed
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
