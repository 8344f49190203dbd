package telemetry

import (
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/askedtest"
)

// What this module asks of a value whether it can do more than its type says, in
// code that is no test. A decorator that does not pass it on takes something away.
var asked = map[string]string{
	// Sandboxes: kept exactly, by decorate.
	"sandbox.Executor":    "optional",
	"sandbox.FileWriter":  "optional",
	"sandbox.FileReader":  "optional",
	"sandbox.FileLister":  "optional",
	"sandbox.FileRemover": "optional",
	"sandbox.Reclaimer":   "optional",
	// Sandboxes: kept always, since absence means what the decorator then says.
	"router.Voucher":    "box.Fresh",
	"liveness.Reporter": "box.Liveness",
	// Backends: kept always, likewise.
	"router.EgressReporter":    "Backend.ObserveEgress",
	"router.AdmissionWatcher":  "Backend.Admitted and Refused",
	"interface{ObserveEgress}": "Backend.ObserveEgress",
	"interface{Warm}":          "Backend.Warm",
	// Backends: its absence says something, so that routers look behind decorators.
	"router.CallAdmitter": "Backend.Unwrap",
	// This package's own, of what was just listed.
	"telemetry.egressReporter":   "Backend.ObserveEgress",
	"telemetry.admissionWatcher": "Backend.Admitted and Refused",
	"control.admissionWatcher":   "Backend.Admitted and Refused",
	"telemetry.warmer":           "Backend.Warm",
	"telemetry.decorated":        "box",
	"interface{Fresh}":           "box.Fresh",
	// Neither a sandbox's nor a backend's.
	"interface{Unwrap}": "errors; and of backends: Backend.Unwrap",
	"interface{Report}": "of routers: Calls.Report",
}

// optional interfaces get lost when somebody asks a sandbox or a backend for
// something new and does not tell this package: this test finds the question.
func TestEveryOptionalInterfaceIsKnown(t *testing.T) { askedtest.Compare(t, "..", asked) }
