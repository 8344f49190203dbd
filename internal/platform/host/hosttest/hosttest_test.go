package hosttest

import (
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

func TestTestsRunOnTheStrongestEngineUnlessOneIsNamed(t *testing.T) {
	for _, c := range []struct {
		name, named string
		promised    bool
		auto        string // empty: there is none
		want        string
	}{
		{"with KVM", "", false, host.KVM, host.KVM},
		{"without KVM", "", false, host.Ptrace, host.Ptrace},
		{"with neither", "", false, "", host.Auto},
		{"where KVM is promised and broken", "", true, host.Ptrace, host.KVM},
		{"one is named", host.Ptrace, true, host.KVM, host.Ptrace},
		{"auto is named", host.Auto, true, host.Ptrace, host.Ptrace},
		{"a wrong one is named", "nonesuch", false, host.KVM, "nonesuch"},
	} {
		got := choose(c.named, c.promised, func() (string, error) {
			if c.auto == "" {
				return "", errors.New("none")
			}
			return c.auto, nil
		})
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAnOpenEngineIsTheOneThatWasChosen(t *testing.T) {
	if p := Open(t); p.Name() != Engine() {
		t.Errorf("%s is open, %s was chosen", p.Name(), Engine())
	}
}
