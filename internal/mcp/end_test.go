package mcp

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestTheEndOfASessionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})
		r, err := router.New(router.Config{Backends: []sandbox.Backend{b}})
		if err != nil {
			t.Fatal(err)
		}
		gate := sandboxtest.NewGate()
		b.Script(sandboxtest.OpDisposeScope, sandboxtest.Step{Gate: gate})
		of := newSession(Config{Router: r, Logger: slog.New(slog.DiscardHandler)}, &fence.Fence{}, "", nil)
		of.end = func() {}
		begin := time.Now()
		of.finish()
		if took := time.Since(begin); took != endTimeout {
			t.Errorf("it took %v of the clock", took)
		}
		gate.Release()
	})
}
