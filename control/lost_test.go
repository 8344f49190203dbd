package control_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/askedtest"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// What this module asks of a value whether it can do more than its type says, and
// how a monitor passes it on.
var asked = map[string]string{
	// Sandboxes: a monitor hands out those of its backend, without a decorator.
	"sandbox.Executor":    "the sandbox itself",
	"sandbox.FileWriter":  "the sandbox itself",
	"sandbox.FileReader":  "the sandbox itself",
	"sandbox.FileLister":  "the sandbox itself",
	"sandbox.FileRemover": "the sandbox itself",
	"sandbox.Reclaimer":   "the sandbox itself",
	"router.Voucher":      "the sandbox itself",
	"liveness.Reporter":   "the sandbox itself",
	"interface{Fresh}":    "the sandbox itself",
	"telemetry.decorated": "the sandbox itself",
	// Backends.
	"router.EgressReporter":      "Monitor.ObserveEgress",
	"interface{ObserveEgress}":   "Monitor.ObserveEgress",
	"telemetry.egressReporter":   "Monitor.ObserveEgress",
	"router.AdmissionWatcher":    "Monitor.Admitted and Refused",
	"control.admissionWatcher":   "Monitor.Admitted and Refused",
	"telemetry.admissionWatcher": "Monitor.Admitted and Refused",
	"router.CallAdmitter":        "Monitor.Unwrap",
	"interface{Unwrap}":          "Monitor.Unwrap",
	// Of the backend below a monitor, by the command that makes both.
	"interface{Warm}":  "not the monitor's",
	"telemetry.warmer": "not the monitor's",
	// Of routers.
	"interface{Report}": "not a backend's",
}

func TestEveryOptionalInterfaceIsKnownToAMonitor(t *testing.T) { askedtest.Compare(t, "..", asked) }

// optional is a backend with what only some backends have.
type optional struct {
	sandbox.Backend
	told   []any
	report func(sandbox.EgressObservation)
}

func (b *optional) ObserveEgress(report func(sandbox.EgressObservation)) { b.report = report }
func (b *optional) Refused(key sandbox.Key, kind string) {
	b.told = append(b.told, "refused", key, kind)
}
func (b *optional) Admitted(key sandbox.Key, spec sandbox.Spec, s sandbox.Sandbox) {
	b.told = append(b.told, "admitted", key, spec.Kind, s.ID())
}
func (b *optional) AdmitCall(_ context.Context, key sandbox.Key, spec sandbox.Spec) (router.CallLease, error) {
	b.told = append(b.told, "call", key, spec.Kind)
	return b, nil
}
func (b *optional) Context(ctx context.Context) context.Context { return ctx }
func (b *optional) Release()                                    { b.told = append(b.told, "released") }

func TestARouterFindsAllThatABackendCanBehindAMonitor(t *testing.T) {
	inner := &optional{Backend: sandboxtest.New(sandboxtest.Config{Isolation: sandbox.IsolationMicroVM})}
	var events []router.Event
	r, err := router.New(router.Config{
		Backends: []sandbox.Backend{control.NewMonitor(inner)}, MinCleanup: sandbox.CleanupReset,
		Observer: router.ObserverFunc(func(e router.Event) { events = append(events, e) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	key, spec := sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}, sandbox.Spec{Kind: "k"}
	id := ""
	if err := r.WithSandbox(t.Context(), key, spec, func(_ context.Context, s sandbox.Sandbox) error { id = s.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []any{"call", key, "k", "admitted", key, "k", id, "released"}; !reflect.DeepEqual(inner.told, want) {
		t.Errorf("the backend was told %v, want %v", inner.told, want)
	}
	if admitted, ok := events[0].(router.CallAdmitted); !ok || !admitted.Exclusive {
		t.Errorf("the observer heard %+v first", events[0])
	}
	inner.told = nil
	control.NewMonitor(inner).Refused(key, "k")
	if want := []any{"refused", key, "k"}; !reflect.DeepEqual(inner.told, want) {
		t.Errorf("the backend was told %v, want %v", inner.told, want)
	}
	control.NewMonitor(inner).ObserveEgress(func(sandbox.EgressObservation) { events = nil })
	inner.report(sandbox.EgressObservation{})
	if events != nil {
		t.Error("the report is lost")
	}
	// A backend that wants none of it is not asked.
	plain := control.NewMonitor(sandboxtest.New(sandboxtest.Config{}))
	plain.Refused(key, "k")
	plain.ObserveEgress(nil)
}
