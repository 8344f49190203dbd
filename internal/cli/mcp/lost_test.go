package mcp

import (
	"reflect"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/askedtest"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/router"
)

// What this module asks of a value whether it can do more than its type says, and
// what the lazy backend makes of it. It hands out the sandboxes of the backend behind
// it, without a decorator.
var asked = map[string]string{
	"sandbox.Executor": "the sandbox itself", "sandbox.FileWriter": "the sandbox itself", "sandbox.FileReader": "the sandbox itself",
	"sandbox.FileLister": "the sandbox itself", "sandbox.FileRemover": "the sandbox itself", "sandbox.Reclaimer": "the sandbox itself",
	"router.Voucher": "the sandbox itself", "liveness.Reporter": "the sandbox itself", "interface{Fresh}": "the sandbox itself",
	"telemetry.decorated":   "the sandbox itself",
	"router.EgressReporter": "lazy.ObserveEgress", "interface{ObserveEgress}": "lazy.ObserveEgress", "telemetry.egressReporter": "lazy.ObserveEgress",
	"interface{Warm}": "lazy.Warm", "telemetry.warmer": "lazy.Warm",
	// Nothing to pass on, which the test below holds.
	"router.AdmissionWatcher": "not package microvm's", "control.admissionWatcher": "not package microvm's",
	"telemetry.admissionWatcher": "not package microvm's", "router.CallAdmitter": "not package microvm's", "interface{Unwrap}": "not package microvm's",
	"interface{Report}": "not a backend's",
}

func TestEveryOptionalInterfaceIsKnownToTheLazyBackend(t *testing.T) {
	askedtest.Compare(t, "../../..", asked)
}

func TestTheLazyBackendHasWhatRoutersFindInTheOneBehindIt(t *testing.T) {
	for _, optional := range []reflect.Type{
		reflect.TypeFor[router.EgressReporter](), reflect.TypeFor[router.AdmissionWatcher](), reflect.TypeFor[router.CallAdmitter](),
	} {
		if has, had := reflect.TypeFor[*lazy]().Implements(optional), reflect.TypeFor[*microvm.Backend]().Implements(optional); has != had {
			t.Errorf("the lazy backend is a %s: %t; the one behind it: %t", optional, has, had)
		}
	}
}
