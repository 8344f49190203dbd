//go:build linux

package test

import (
	"os"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
)

func TestTheOperatorsRecipeIsTheOneThatTheProgramPrints(t *testing.T) {
	b, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(cgroup.Recipe(cgroup.DefaultRoot, "ann"), "\n"); !strings.Contains(string(b), want) {
		t.Errorf("docs/operations.md does not have these commands:\n%s", want)
	}
}
