package microvm

import (
	"context"
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// askHTTP is the name under which a program asks for a request (guest/_maf_http.py).
const askHTTP = "http"

// network is what the program of a sandbox can reach: nothing when the broker is
// nil.
type network struct{ broker *egress.Broker }

// newNetwork makes the network of a sandbox.
func (b *Backend) newNetwork(s *Sandbox) (network, error) {
	if s.spec.Egress != sandbox.EgressAllowlist {
		return network{}, nil
	}
	var private []sandbox.Host
	for _, rule := range s.spec.EgressAllow {
		if slices.Contains(b.config.PrivateHosts, rule.Host) {
			private = append(private, rule.Host)
		}
	}
	policy, err := egress.NewPolicy(b.decider(), s.spec, private...)
	if err != nil {
		return network{}, err
	}
	broker, err := egress.NewBroker(egress.Config{
		Policy: policy, Resolver: egress.NetResolver(b.config.Resolver), Roots: b.config.Roots,
		Observe: func(o egress.Observation) { b.observe(s, o) },
	})
	// A request belongs to the generation that made it: an exchange, and with it
	// the next reset, waits for the requests of its program.
	return network{broker}, err
}

func (n network) close() {
	if n.broker != nil {
		n.broker.Close()
	}
}

// serve answers what a program asks.
func (n network) serve(ctx context.Context, name string, request []byte) wire.Answer {
	if name != askHTTP || n.broker == nil {
		return wire.Answer{Unknown: true}
	}
	return wire.Answer{Payload: n.broker.Serve(ctx, request, roomOf(ctx))}
}

// ObserveEgress has every request of a program reported, allowed or not, from
// any goroutine; nil ends it. A router calls it. report is called when the request
// is done and before its program hears of it. The program waits for it, within its
// time limit; a run that is over waits another second, so that a report that does
// not return costs its own sandbox requests and nobody else anything. It may call
// the backend, and dispose of the sandbox: no lock is held. Only a run or a reset
// of that very sandbox would wait for itself.
func (b *Backend) ObserveEgress(report func(sandbox.EgressObservation)) { b.reporter.Store(&report) }

func (b *Backend) observe(s *Sandbox, o egress.Observation) {
	report := b.reporter.Load()
	if report == nil || *report == nil {
		return
	}
	d := sandbox.EgressDecision{Allowed: o.Decision.Allowed() && o.Failure != egress.KindAddress, Reason: o.Decision.Reason.String()}
	if o.Failure != egress.KindNone && o.Decision.Allowed() {
		d.Reason = o.Failure.String()
	}
	d.Duration = o.Duration
	if t := o.Decision.Target; !t.IsZero() { // else the URL was none that says
		d.Host, d.Port = t.Name(), t.Port()
	}
	(*report)(sandbox.EgressObservation{
		Key: s.place.Key, Kind: s.place.Kind, InstanceID: s.ID(), Decisions: []sandbox.EgressDecision{d},
	})
}
