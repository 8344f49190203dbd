package cli

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestAnEnforcementThatIsAskedForIsTheOnlyOneTried(t *testing.T) {
	for _, e := range []microvm.Enforcement{microvm.EnforceCgroup, microvm.EnforceSystemd, microvm.EnforceRlimit} {
		if got := Enforcements(string(e)); !slices.Equal(got, []microvm.Enforcement{e}) {
			t.Errorf("%s: %v are tried", e, got)
		}
	}
}

func TestTheAutomaticChoiceAlwaysHasSomethingThatCanBeHad(t *testing.T) {
	got := Enforcements(LimitsAuto)
	if len(got) == 0 || got[len(got)-1] == microvm.EnforceSystemd {
		t.Errorf("%v are tried", got)
	}
}

func TestASandboxThatDoesNotStartIsExplained(t *testing.T) {
	const hint = "; 'maf-sandbox doctor' says what mends it"
	for _, r := range []struct {
		name string
		err  error
		kind string
		want string
	}{
		{"the host lacks something", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrUnavailable, Cause: fs.ErrPermission}, "unavailable", "permission denied" + hint},
		{
			"the ceiling cannot be enforced", &sandbox.OpError{
				Op: "acquire", Class: sandbox.ErrUnavailable, Detail: "the memory ceiling cannot be enforced",
				Cause: &microvm.SetupError{Enforcement: microvm.EnforceCgroup, Problem: "no root", Mend: []string{"sudo x"}},
			}, "unavailable", "the memory ceiling cannot be enforced: no root; --limits rlimit needs no setup" + hint,
		},
		{
			"the engine cannot be had", &sandbox.OpError{
				Op: "acquire", Class: sandbox.ErrUnavailable, Cause: &microvm.EngineError{Engine: microvm.EngineKVM, Problem: "no device"},
			}, "unavailable", "no device" + hint,
		},
		{"it takes too long", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrTimeout}, "unavailable", "no sandbox was ready within 2m0s"},
		{"the user gave up", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrCanceled}, "canceled", "acquire: canceled"},
		{"something is broken", &sandbox.OpError{Op: "acquire", Class: sandbox.ErrInternal, Detail: "odd"}, "internal", "odd"},
		{"anything else", errors.New("x"), "internal", "x"},
	} {
		err := StartFailure(r.err)
		if Kind(err) != r.kind || Explain(err) != r.want || ExitStatus(err) != ExitSandbox {
			t.Errorf("%s: got %q, %q, status %d", r.name, Kind(err), Explain(err), ExitStatus(err))
		}
	}
}
