package telemetry_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

// reaching is a backend in memory whose programs' words are hosts that they reach
// for.
type reaching struct {
	*sandboxtest.Backend
	report func(sandbox.EgressObservation)
}

func (b *reaching) Declarations() sandbox.Declarations {
	d := b.Backend.Declarations()
	d.ObservesEgress = true
	return d
}

func (b *reaching) ObserveEgress(report func(sandbox.EgressObservation)) { b.report = report }

func (b *reaching) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := b.Backend.Acquire(ctx, key, spec)
	return &reachingSandbox{Sandbox: s, of: b, kind: spec.Kind}, err
}

type reachingSandbox struct {
	sandbox.Sandbox
	of   *reaching
	kind string
}

func (s *reachingSandbox) RunCode(ctx context.Context, code string, _ time.Duration) (sandbox.ExecResult, error) {
	for host := range strings.FieldsSeq(code) {
		d := sandbox.EgressDecision{Host: host, Port: 443, Allowed: true, Reason: "allowed", Duration: time.Millisecond}
		if !strings.HasPrefix(host, "allowed") {
			d = sandbox.EgressDecision{Host: host, Port: 443, Reason: "host not listed"}
		}
		s.of.report(sandbox.EgressObservation{Key: mainKey, Kind: s.kind, InstanceID: s.ID(), Decisions: []sandbox.EgressDecision{d}})
	}
	return s.Sandbox.RunCode(ctx, "", 0)
}

func reachingSpec(hosts ...string) sandbox.Spec {
	spec := pythonSpec
	spec.Egress = sandbox.EgressAllowlist
	for _, host := range hosts {
		spec.EgressAllow = append(spec.EgressAllow, sandbox.EgressRule{Host: sandbox.MustHost(host)})
	}
	return spec
}

func TestAnEgressDecisionIsBelowTheRunThatMadeIt(t *testing.T) {
	s := newSDK(t)
	inner := &reaching{Backend: memory(sandboxtest.Config{})}
	b := telemetry.New(s.config).Backend(inner)
	box := acquire(t, b, reachingSpec("allowed.example"))
	if _, err := box.RunCode(t.Context(), "allowed.example s3cret.example", 0); err != nil {
		t.Fatal(err)
	}
	equal(t, "the tree", s.tree("sandbox.egress.reason", "server.address", "server.port"), `sandbox.acquire
sandbox.run
  sandbox.egress sandbox.egress.reason=allowed server.address=allowed.example server.port=443
  sandbox.egress sandbox.egress.reason=host_not_listed Error: host_not_listed
`)
	for _, span := range s.spans.Ended() {
		if address, listed := attributeOf(span, "server.address"); listed && address.AsString() == "allowed.example" {
			if took := span.EndTime().Sub(span.StartTime()); took != time.Millisecond {
				t.Errorf("the request took %v", took)
			}
			if id, _ := attributeOf(span, "sandbox.instance.id"); id.AsString() != box.ID() {
				t.Errorf("the request was made by %q", id.AsString())
			}
		}
	}
	equalLines(t, "the decisions", s.series(t, "sandbox.egress"),
		"sandbox.egress.decisions{sandbox.backend=in-memory,sandbox.egress.allowed=false,sandbox.egress.reason=host_not_listed,sandbox.kind=python} 1",
		"sandbox.egress.decisions{sandbox.backend=in-memory,sandbox.egress.allowed=true,sandbox.egress.reason=allowed,sandbox.kind=python} 1")
	s.silent(t, append(identities, "s3cret")...)
}

// A request that is given up with its run may be reported when the run is over.
func TestADecisionThatComesLateIsStillBelowItsRun(t *testing.T) {
	s := newSDK(t)
	inner := &reaching{Backend: memory(sandboxtest.Config{})}
	box := acquire(t, telemetry.New(s.config).Backend(inner), reachingSpec("allowed.example"))
	if _, err := box.RunCode(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	inner.report(sandbox.EgressObservation{
		Key: mainKey, Kind: "python", InstanceID: box.ID(), Decisions: []sandbox.EgressDecision{{Allowed: true, Host: "allowed.example", Reason: "connect"}},
	})
	equal(t, "the tree", s.tree("server.address"), `sandbox.acquire
sandbox.run
  sandbox.egress server.address=allowed.example Error: connection_failed
`)
}

func TestRequestsOfARunThatIsNotSampledAreNotEither(t *testing.T) {
	s := newSDK(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	inner := &reaching{Backend: memory(sandboxtest.Config{})}
	box := acquire(t, telemetry.New(s.config).Backend(inner), reachingSpec("allowed.example"))
	if _, err := box.RunCode(t.Context(), "allowed.example", 0); err != nil {
		t.Fatal(err)
	}
	if tree := s.tree(); tree != "" {
		t.Errorf("sampled were\n%s", tree)
	}
	if got := s.series(t, "sandbox.egress"); len(got) != 1 {
		t.Errorf("the decisions are %q", got) // metrics are not sampled
	}
}

func TestOnlyHostsThatTheSpecListsAreNamed(t *testing.T) {
	for _, r := range []struct {
		name     string
		spec     sandbox.Spec
		decision sandbox.EgressDecision
		other    bool // the report is of another generation
		host     bool
		reason   string
	}{
		{"listed and reached", reachingSpec("a.example"), sandbox.EgressDecision{Allowed: true, Host: "a.example", Reason: "allowed"}, false, true, "allowed"},
		{"listed and refused by its address", reachingSpec("a.example"), sandbox.EgressDecision{Host: "a.example", Reason: "address"}, false, true, "address_refused"},
		{"allowed but not listed as it is written", reachingSpec("*.a.example"), sandbox.EgressDecision{Allowed: true, Host: "s3cret.a.example", Reason: "allowed"}, false, false, "allowed"},
		{"not listed", reachingSpec("a.example"), sandbox.EgressDecision{Host: "s3cret.example", Reason: "host not listed"}, false, false, "host_not_listed"},
		{"of no known sandbox", reachingSpec("a.example"), sandbox.EgressDecision{Allowed: true, Host: "a.example", Reason: "allowed"}, true, false, "allowed"},
		{"a reason that is free text", reachingSpec("a.example"), sandbox.EgressDecision{Host: "x", Reason: "s3cret is not listed"}, false, false, "_OTHER"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := newSDK(t)
			inner := &reaching{Backend: memory(sandboxtest.Config{})}
			b := telemetry.New(s.config).Backend(inner)
			id := acquire(t, b, r.spec).ID()
			if r.other {
				id = "s3cret-not"
			}
			o := sandbox.EgressObservation{Key: mainKey, Kind: "python", InstanceID: id, Decisions: []sandbox.EgressDecision{r.decision}}
			inner.report(o)
			span := s.span(t, "sandbox.egress")
			host, there := attributeOf(span, "server.address")
			if there != r.host || there && host.AsString() != r.decision.Host {
				t.Errorf("the host is named: %t, as %q", there, host.AsString())
			}
			if reason, _ := attributeOf(span, "sandbox.egress.reason"); reason.AsString() != r.reason {
				t.Errorf("the reason is %q, want %q", reason.AsString(), r.reason)
			}
			if span.Parent().IsValid() {
				t.Error("it is below something")
			}
			if !r.other {
				s.silent(t, "s3cret")
			}
		})
	}
}

func TestDecisionsThatCannotBeReadAreCounted(t *testing.T) {
	s := newSDK(t)
	inner := &reaching{Backend: memory(sandboxtest.Config{})}
	telemetry.New(s.config).Backend(inner)
	inner.report(sandbox.EgressObservation{Key: mainKey, Kind: "python", Unreadable: "s3cret"})
	equalLines(t, "the decisions", s.series(t, "sandbox.egress"),
		"sandbox.egress.decisions{sandbox.backend=in-memory,sandbox.egress.allowed=false,sandbox.egress.reason=unreadable,sandbox.kind=python} 1")
	s.silent(t, "s3cret")
}

// The reasons of package egress are the words of its backend; one that telemetry
// does not know would be counted with whatever nobody knows.
func TestEveryReasonOfABrokerHasAWord(t *testing.T) {
	words := make(map[string]string)
	check := func(reason string) {
		s := newSDK(t)
		inner := &reaching{Backend: memory(sandboxtest.Config{})}
		telemetry.New(s.config).Backend(inner)
		inner.report(sandbox.EgressObservation{Kind: "k", Decisions: []sandbox.EgressDecision{{Reason: reason}}})
		value, _ := attributeOf(s.span(t, "sandbox.egress"), attribute.Key("sandbox.egress.reason"))
		word := value.AsString()
		if other, taken := words[word]; word == sandbox.OtherError || strings.ContainsAny(word, " ABCDEFGHIJKLMNOPQRSTUVWXYZ") || taken && other != reason {
			t.Errorf("%q has the word %q, as %q has", reason, word, other)
		}
		words[word] = reason
	}
	for r := egress.Reason(0); !strings.HasPrefix(r.String(), "reason "); r++ {
		check(r.String())
	}
	for k := egress.KindPolicy; !strings.HasPrefix(k.String(), "kind "); k++ {
		check(k.String())
	}
	if len(words) < 20 {
		t.Errorf("only %d reasons were found", len(words))
	}
}

func TestReportsOfManySandboxesAtOnceAreKeptApart(t *testing.T) {
	s := newSDK(t)
	inner := &reaching{Backend: memory(sandboxtest.Config{})}
	b := telemetry.New(s.config).Backend(inner)
	var group sync.WaitGroup
	for _, kind := range []string{"a", "b", "c", "d"} {
		spec := reachingSpec("allowed.example")
		spec.Kind = kind
		group.Go(func() {
			for range 20 {
				box, err := b.Acquire(context.Background(), mainKey, spec)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = box.RunCode(context.Background(), "allowed.example", 0)
				_ = b.Dispose(context.Background(), mainKey, sandbox.DisposeOptions{Kind: kind})
			}
		})
	}
	group.Wait()
	kinds := make(map[string]string)
	for _, span := range s.spans.Ended() {
		kind, _ := attributeOf(span, "sandbox.kind")
		kinds[span.SpanContext().SpanID().String()] = kind.AsString()
	}
	requests := 0
	for _, span := range s.spans.Ended() {
		if span.Name() != "sandbox.egress" {
			continue
		}
		requests++
		kind, _ := attributeOf(span, "sandbox.kind")
		if parent := kinds[span.Parent().SpanID().String()]; parent != kind.AsString() {
			t.Errorf("a request of %q is below a run of %q", kind.AsString(), parent)
		}
	}
	if requests != 80 {
		t.Errorf("%d requests, want 80", requests)
	}
}
