// Package hosttest chooses the engine that tests run guests on, so that the same
// tests serve machines with KVM and machines without.
package hosttest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// Env is the variable that names an engine for all tests.
const Env = "MAF_SANDBOX_TEST_ENGINE"

// Engine is the name of the engine that tests run on: what Env says, else KVM
// where it can be used or is promised (package expect), else host.Ptrace. Where
// there is neither it is host.Auto, whose error names what both lack.
var Engine = sync.OnceValue(func() string { return choose(os.Getenv(Env), expect.KVM.Promised(), strongest) })

// choose is Engine for what is named, empty for nothing, and for what Auto
// comes to.
func choose(named string, promised bool, auto func() (string, error)) string {
	switch {
	case named != "" && named != host.Auto:
		return named
	case named == "" && promised:
		return host.KVM
	}
	name, err := auto()
	if err != nil {
		return host.Auto
	}
	return name
}

// strongest is the name of what Auto opens here.
func strongest() (string, error) {
	p, _, err := host.Open(host.Auto)
	if err != nil {
		return "", err
	}
	return p.Name(), p.Close()
}

// Open opens that engine, or skips the test by name and reason.
func Open(t testing.TB) host.Platform {
	t.Helper()
	p, _, err := host.Open(Engine())
	if err != nil && !errors.Is(err, platform.ErrUnavailable) {
		t.Fatal(err)
	}
	if err != nil {
		expect.KVM.Skip(t, "needs engine %s: %v", Engine(), err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close engine %s: %v", Engine(), err)
		}
	})
	return p
}
