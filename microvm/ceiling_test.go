package microvm

import (
	"errors"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestACeilingThatCannotBeEnforcedSaysWhatCanBeDone(t *testing.T) {
	root := t.TempDir() + "/none"
	b := open(t, func(c *Config) { c.Enforcement, c.CgroupRoot = EnforceCgroup, root })
	_, err := b.Acquire(t.Context(), key(), spec())
	var setup *SetupError
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.As(err, &setup) {
		t.Fatalf("got %v", err)
	}
	if setup.Enforcement != EnforceCgroup || len(setup.Mend) == 0 || !strings.Contains(strings.Join(setup.Mend, "\n"), root) {
		t.Errorf("got %+v", setup)
	}
	for _, want := range []string{"the memory ceiling cannot be enforced", root, "Config.Enforcement", "EnforceRlimit", "docs/operations.md"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	// Without a command that mends it there is the choice all the same.
	if err := (&SetupError{Enforcement: EnforceSystemd, Problem: "no bus"}); !strings.HasPrefix(err.Error(), "no bus; choose another Config.Enforcement than systemd") {
		t.Errorf("got %q", err)
	}
}
