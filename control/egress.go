package control

import "github.com/maf-sandbox/maf-sandbox-go/sandbox"

// ObserveEgress is the backend's, where it has one: a monitor is also a
// router.EgressReporter.
func (m *Monitor) ObserveEgress(report func(sandbox.EgressObservation)) {
	if reporter, ok := m.backend.(interface {
		ObserveEgress(report func(sandbox.EgressObservation))
	}); ok {
		reporter.ObserveEgress(report)
	}
}
