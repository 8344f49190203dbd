package ceiling

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

func TestProbeNamesEveryEnforcementStrongestFirst(t *testing.T) {
	var got []microvm.Enforcement
	for _, o := range Probe() {
		got = append(got, o.Enforcement)
	}
	if want := []microvm.Enforcement{microvm.EnforceCgroup, microvm.EnforceSystemd, microvm.EnforceRlimit}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestARootThatIsNotThereComesWithTheOperatorsRecipe(t *testing.T) {
	if err := version2(); err != nil {
		t.Skip(err)
	}
	root := filepath.Join(t.TempDir(), "none")
	o := probeCgroup(root)
	if o.Err == nil || len(o.Mend) != len(cgroup.Recipe(root, "x")) || !strings.Contains(o.Mend[0], root) {
		t.Errorf("got %+v", o)
	}
}

func TestSystemdIsNotOfferedWithoutItsMessageBus(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	if o := probeSystemd(none, none); o.Err == nil {
		t.Errorf("got %+v", o)
	}
}
