package mcp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// newLive gives a session that nothing but the test ends.
func newLive(t *testing.T, keep bool) (*session, *sandboxtest.Backend) {
	t.Helper()
	b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
	r, err := router.New(router.Config{Backends: []sandbox.Backend{b}, MinCleanup: sandbox.CleanupReset})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Router: r, KeepState: keep, Tool: codeact.Config{Timeout: 2 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	of, err := s.newSession("", nil)
	if err != nil {
		t.Fatal(err)
	}
	of.life, of.end = context.WithCancel(t.Context())
	return of, b
}

// runs is a call of a program in a session.
func (of *session) runs(t *testing.T, code string) (o codeact.Outcome, lost bool) {
	t.Helper()
	ctx, v, leave, err := of.enter(t.Context(), nil)
	if err != nil {
		t.Error(err)
		return o, false
	}
	defer leave()
	o, err = of.tool.Execute(ctx, code)
	if err != nil {
		t.Error(err)
	}
	return o, v.lost
}

// A program's time limit is also how long it waits for each one ahead.
func TestProgramsThatEndInTimeAreWaitedOutInASession(t *testing.T) {
	for name, keep := range map[string]bool{"with names that stay": true, "anew each time": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of, _ := newLive(t, keep)
				defer of.finish()
				outcomes := make(chan codeact.Outcome, 4)
				for range cap(outcomes) {
					go func() {
						o, _ := of.runs(t, `sleep "1500ms"`)
						outcomes <- o
					}()
				}
				for range cap(outcomes) {
					if o := <-outcomes; o.Failure != "" {
						t.Errorf("after %v: %s", o.Duration, o.Message())
					}
				}
			})
		})
	}
}

func TestACanceledResetThatWasDoneIsToldByTheNextProgram(t *testing.T) {
	of, b := newLive(t, true)
	defer of.finish()
	// reset resets, and gives up meanwhile if asked to.
	reset := func(cancels bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx, v, leave, err := of.enter(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		if cancels {
			gate := sandboxtest.NewGate()
			b.Script(sandboxtest.OpReset, sandboxtest.Step{Gate: gate})
			go func() { <-gate.Entered(); cancel(); gate.Release() }()
		}
		if _, err := of.reset(ctx, v); err != nil {
			t.Error(err)
		}
	}
	of.runs(t, `set "x" "1"`)
	reset(true)
	for _, want := range []bool{true, false} {
		if o, lost := of.runs(t, `get "x"`); lost != want || o.Stderr == "" {
			t.Errorf("lost %t, want %t: %+v", lost, want, o)
		}
	}
	reset(true)
	reset(false) // is answered, and is what was asked for
	if _, lost := of.runs(t, ""); lost {
		t.Error("a loss is told after a reset")
	}
}
