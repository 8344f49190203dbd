package sandboxtest_test

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

func TestTheBackendInMemoryConforms(t *testing.T) {
	t.Parallel()
	h := sandboxtest.MemoryHarness(sandboxtest.Config{})
	h.Refused = []sandboxtest.RefusedSpec{{
		Name:   "a file capability",
		Spec:   sandbox.DefaultSpec("conformance"),
		Reason: sandbox.ErrCapabilityNotSupported,
	}}
	sandboxtest.RunConformance(t, h)
}

func TestABackendThatCanOnlyKillConformsToo(t *testing.T) {
	t.Parallel()
	sandboxtest.RunConformance(t, sandboxtest.MemoryHarness(sandboxtest.Config{RetireOnOverrun: true}))
}

func TestRulesAboutUndeclaredCapabilitiesAreSkipped(t *testing.T) {
	t.Parallel()
	h := sandboxtest.MemoryHarness(sandboxtest.Config{Declarations: &sandbox.Declarations{
		EgressModes: sandbox.SetOf(sandbox.EgressClosed),
	}})
	h.Spec.Requires = sandbox.Capabilities{}
	h.Sibling, h.FailDisposals, h.MaxCode, h.MaxOutput = nil, nil, 0, 0
	passed, failed, skipped := conform(h).rules()
	if len(failed) != 0 || len(passed) == 0 || len(skipped) < 30 {
		t.Errorf("%d rules passed, %d were skipped, and these failed: %q", len(passed), len(skipped), failed)
	}
}
