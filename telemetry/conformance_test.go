package telemetry_test

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

func conform(t *testing.T, i *telemetry.Instrumentation, config sandboxtest.Config) {
	t.Helper()
	h := sandboxtest.MemoryHarness(config)
	memory, sibling, fail := h.New, h.Sibling, h.FailDisposals
	behind := func(b sandbox.Backend) sandbox.Backend { return b.(*telemetry.Backend).Unwrap() }
	h.New = func(t sandboxtest.T) sandbox.Backend { return i.Backend(memory(t)) }
	h.Sibling = func(t sandboxtest.T, first sandbox.Backend) sandbox.Backend {
		return i.Backend(sibling(t, behind(first)))
	}
	h.FailDisposals = func(b sandbox.Backend) func() { return fail(behind(b)) }
	sandboxtest.RunConformance(t, h)
}

func TestADecoratedBackendKeepsThePromisesOfABackend(t *testing.T) {
	t.Parallel()
	s := newSDK(t)
	conform(t, telemetry.New(s.config), sandboxtest.Config{})
	if len(s.spans.Ended()) == 0 {
		t.Error("nothing was recorded")
	}
}

func TestADecoratedBackendThatCanOnlyKillDoesToo(t *testing.T) {
	t.Parallel()
	conform(t, telemetry.New(newSDK(t).config), sandboxtest.Config{RetireOnOverrun: true})
}

func TestADecoratedBackendWithoutProvidersDoesToo(t *testing.T) {
	t.Parallel()
	conform(t, telemetry.New(telemetry.Config{}), sandboxtest.Config{})
}
