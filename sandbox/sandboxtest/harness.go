package sandboxtest

import (
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Harness is what the conformance suite must know of a backend.
type Harness struct {
	// New makes a fresh backend without sandboxes. The suite closes it; what
	// else it needs, New removes with t.Cleanup.
	New func(t T) sandbox.Backend
	// Sibling makes another backend value that shares the sandboxes of the
	// first, as two of one host process do. Optional.
	Sibling func(t T, first sandbox.Backend) sandbox.Backend
	// Spec is one that the backend serves; with the capabilities run_code and
	// snapshot where they are declared.
	Spec sandbox.Spec
	// Programs in the backend's language.
	Programs Programs

	// MaxCode and MaxOutput are the backend's limits in bytes. Zero skips the
	// rules about them.
	MaxCode, MaxOutput int
	// FailDisposals has every disposal fail until the returned function is
	// called. Optional.
	FailDisposals func(b sandbox.Backend) (heal func())
	// Refused are further specs that the backend must refuse.
	Refused []RefusedSpec

	// Patience bounds a hang; no rule asserts how fast something is. Zero
	// means DefaultPatience.
	Patience time.Duration
	// Short is the time that programs are given that must overrun it. Zero
	// means DefaultShort.
	Short time.Duration
	// Busy is how long a program occupies a sandbox, so that others wait for
	// it longer than Short. Zero means ten times Short.
	Busy time.Duration
}

// RefusedSpec is a spec that a backend must refuse, and as what.
type RefusedSpec struct {
	// Name completes "refuses ...".
	Name string
	// Spec is what is asked for.
	Spec sandbox.Spec
	// Reason is what the refusal must match by errors.Is.
	Reason error
}

// The times of a harness that names none.
const (
	// DefaultPatience is long enough for everything that should happen.
	DefaultPatience = 30 * time.Second
	// DefaultShort is overrun by every program that should overrun.
	DefaultShort = 100 * time.Millisecond
)

// MemoryHarness is the harness of a [Backend] in memory. The configuration's
// Registry is not used: each backend gets one of its own.
func MemoryHarness(config Config) Harness {
	return Harness{
		New: func(T) sandbox.Backend {
			config := config
			config.Registry = new(Registry)
			return New(config)
		},
		Sibling: func(t T, first sandbox.Backend) sandbox.Backend {
			t.Helper()
			memory, ok := first.(*Backend)
			if !ok {
				t.Fatalf("the backend is a %T, not one in memory", first)
			}
			config := config
			config.Registry = memory.registry
			return New(config)
		},
		Spec: sandbox.Spec{
			Kind:     "conformance",
			Requires: sandbox.SetOf(sandbox.CapRunCode, sandbox.CapSnapshot),
		},
		Programs:  CommandPrograms(),
		MaxCode:   New(config).config.MaxCode,
		MaxOutput: New(config).config.MaxOutput,
		FailDisposals: func(b sandbox.Backend) func() {
			memory, ok := b.(*Backend)
			if !ok {
				return func() {}
			}
			memory.Always(OpDispose, Step{Err: &sandbox.DisposalFailure{
				Code: sandbox.DisposalUnreachable, Detail: "scripted",
			}})
			return func() { memory.Always(OpDispose, Step{}) }
		},
		Short: 20 * time.Millisecond,
	}
}

// RunConformance runs every rule against the backend, each as a subtest.
func RunConformance(t *testing.T, h Harness) {
	t.Helper()
	Conform(testingT{t}, h)
}

// Conform is RunConformance for any kind of test.
func Conform(t T, h Harness) {
	t.Helper()
	if h.New == nil || h.Spec.Kind == "" {
		t.Fatalf("a harness needs New and a Spec with a kind")
	}
	if h.Patience == 0 {
		h.Patience = DefaultPatience
	}
	if h.Short == 0 {
		h.Short = DefaultShort
	}
	if h.Busy == 0 {
		h.Busy = 10 * h.Short
	}
	for _, suite := range suites() {
		t.Run(suite.name, func(t T) {
			for _, rule := range suite.rules {
				t.Run(rule.name, func(t T) { rule.check(t, h) })
			}
		})
	}
}

// suite is a subject with its rules.
type suite struct {
	name  string
	rules []rule
}

// rule is one sentence that must be true of a backend.
type rule struct {
	name string
	// needs are the capabilities without which the rule says nothing.
	needs sandbox.Capabilities
	probe func(f *fixture)
}

func suites() []suite {
	all := []suite{
		{"acquire", acquireRules()},
		{"run_code", runRules()},
		{"reset", resetRules()},
		{"host tools", toolRules()},
		{"deadlines", deadlineRules()},
		{"limits", limitRules()},
		{"disposal", disposalRules()},
		{"scope purge", purgeRules()},
		{"close", closeRules()},
		{"refusals", refusalRules()},
		{"concurrency", concurrencyRules()},
		{"leaks", leakRules()},
	}
	return all
}

func (r rule) check(t T, h Harness) {
	t.Helper()
	f := newFixture(t, h)
	if missing := r.needs.Minus(f.backend.Declarations().Capabilities); !missing.IsEmpty() {
		t.Skipf("the backend does not declare %s", missing)
	}
	r.probe(f)
}
