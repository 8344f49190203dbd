package ceiling

import (
	"errors"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

func TestTheStrongestEnforcementThatCanBeHadIsTaken(t *testing.T) {
	no := errors.New("no")
	for _, r := range []struct {
		name            string
		cgroup, systemd error
		want            microvm.Enforcement
	}{
		{"everything", nil, nil, microvm.EnforceCgroup},
		{"no delegated group", no, nil, microvm.EnforceSystemd},
		{"neither", no, no, microvm.EnforceRlimit},
	} {
		offers := []Offer{
			{Enforcement: microvm.EnforceCgroup, Err: r.cgroup},
			{Enforcement: microvm.EnforceSystemd, Err: r.systemd},
			{Enforcement: microvm.EnforceRlimit},
		}
		if got := Strongest(offers); got != r.want {
			t.Errorf("%s: got %s, want %s", r.name, got, r.want)
		}
	}
	if got := Strongest(nil); got != microvm.EnforceRlimit {
		t.Errorf("nothing offered: got %s", got)
	}
}
