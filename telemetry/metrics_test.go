package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
	"github.com/maf-sandbox/maf-sandbox-go/telemetry"
)

func TestOperationsAreMeasuredByTheirOutcome(t *testing.T) {
	s := newSDK(t)
	b, _, tool := host(t, s, nil)
	b.Script(sandboxtest.OpRunCode, sandboxtest.Step{}, sandboxtest.Step{},
		sandboxtest.Step{Err: &sandbox.OpError{Class: sandbox.ErrTimeout, Usable: true, Detail: "s3cret"}})
	execute(t.Context(), t, tool, `print "x"`)
	execute(t.Context(), t, tool, `raise "s3cret"`)
	execute(t.Context(), t, tool, `print "x"`)
	const of = "sandbox.operation.duration{"
	equalLines(t, "the operations", s.series(t, "sandbox.operation"),
		of+"error.type=timeout,sandbox.backend=in-memory,sandbox.kind=codeact,sandbox.operation=run,sandbox.outcome=error} 1",
		of+"error.type=timeout,sandbox.kind=codeact,sandbox.operation=call,sandbox.outcome=error} 1",
		of+"sandbox.backend=in-memory,sandbox.kind=codeact,sandbox.operation=acquire,sandbox.outcome=ok} 3",
		of+"sandbox.backend=in-memory,sandbox.kind=codeact,sandbox.operation=reset,sandbox.outcome=ok} 4",
		of+"sandbox.backend=in-memory,sandbox.kind=codeact,sandbox.operation=run,sandbox.outcome=ok} 1",
		of+"sandbox.backend=in-memory,sandbox.kind=codeact,sandbox.operation=run,sandbox.outcome=program_failed} 1",
		of+"sandbox.kind=codeact,sandbox.operation=call,sandbox.outcome=ok} 2",
	)
	for _, m := range s.metrics(t) {
		if m.Name != "sandbox.operation.duration" {
			continue
		}
		bounds := m.Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds
		if m.Unit != "s" || bounds[0] != 0.0001 || bounds[len(bounds)-1] != 120 || !slices.IsSorted(bounds) {
			t.Errorf("in %q, with the bounds %v", m.Unit, bounds)
		}
	}
	s.silent(t, append(identities, "s3cret")...)
}

func TestARouterIsMeasured(t *testing.T) {
	s := newSDK(t)
	var heard int
	b, calls, _ := host(t, s, func(c *router.Config) {
		c.Observer = telemetry.New(s.config).Observer(router.ObserverFunc(func(router.Event) { heard++ }))
	})
	nothing := func(context.Context, sandbox.Sandbox) error { return nil }
	serve := func(want error) {
		t.Helper()
		if err := calls.WithSandbox(t.Context(), mainKey, pythonSpec, nothing); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	serve(nil)
	serve(nil)
	b.Script(sandboxtest.OpReset, sandboxtest.Step{Err: &sandbox.OpError{Class: sandbox.ErrInternal}})
	serve(nil) // and what it left is disposed of
	b.Script(sandboxtest.OpAcquire, sandboxtest.Step{Err: &sandbox.OpError{Class: sandbox.ErrUnavailable, Usable: true}})
	serve(sandbox.ErrUnavailable)
	const of = "{sandbox.backend=in-memory,"
	equalLines(t, "the acquisitions", s.series(t, "sandbox.acquisitions"),
		"sandbox.acquisitions{sandbox.adoption=known,sandbox.backend=in-memory,sandbox.kind=python} 2",
		"sandbox.acquisitions{sandbox.adoption=reset,sandbox.backend=in-memory,sandbox.kind=python} 1")
	equalLines(t, "the refusals", s.series(t, "sandbox.refusals"),
		"sandbox.refusals{error.type=unavailable,sandbox.backend=in-memory,sandbox.kind=python} 1")
	equalLines(t, "the cleanups", s.series(t, "sandbox.cleanups"),
		"sandbox.cleanups{error.type=internal,sandbox.backend=in-memory,sandbox.cleanup=reset,sandbox.kind=python,sandbox.outcome=error} 1",
		"sandbox.cleanups"+of+"sandbox.cleanup=reset,sandbox.kind=python,sandbox.outcome=ok} 2")
	equalLines(t, "the waits", s.series(t, "sandbox.admission"),
		"sandbox.admission.wait"+of+"sandbox.exclusive=false,sandbox.kind=python} 4")
	if heard == 0 {
		t.Error("the next observer heard nothing")
	}
}

func TestTheWaitOfACallIsForTheCallsAheadOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t)
		_, calls, _ := host(t, s, nil)
		spec := pythonSpec
		spec.ExclusiveAdmission = true
		inside, leave := make(chan struct{}), make(chan struct{})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			first <- calls.WithSandbox(context.Background(), mainKey, spec, func(context.Context, sandbox.Sandbox) error {
				close(inside)
				<-leave
				return nil
			})
		}()
		<-inside
		go func() {
			second <- calls.WithSandbox(context.Background(), mainKey, spec, func(context.Context, sandbox.Sandbox) error { return nil })
		}()
		time.Sleep(time.Minute) // on this test's own clock
		close(leave)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Fatal(err)
		}
		for _, m := range s.metrics(t) {
			if m.Name != "sandbox.admission.wait" {
				continue
			}
			points := m.Data.(metricdata.Histogram[float64]).DataPoints
			shortest, _ := points[0].Min.Value()
			longest, _ := points[0].Max.Value()
			if len(points) != 1 || points[0].Count != 2 || shortest != 0 || longest != 60 {
				t.Errorf("the waits are %+v", points)
			}
			return
		}
		t.Error("no wait was measured")
	})
}

// talking is a sandbox that says what its process does.
type talking struct {
	sandbox.Sandbox
	state *liveness.State
}

func (s talking) Liveness() liveness.Report { return liveness.Report{State: *s.state} }

type talkingBackend struct {
	*sandboxtest.Backend
	state liveness.State
}

func (b *talkingBackend) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := b.Backend.Acquire(ctx, key, spec)
	if err != nil {
		return nil, err
	}
	return talking{s, &b.state}, nil
}

func TestSandboxesThatLiveAreCounted(t *testing.T) {
	s := newSDK(t)
	talks := &talkingBackend{memory(sandboxtest.Config{}), liveness.Ready}
	b := telemetry.New(s.config).Backend(talks)
	count := func(want ...string) {
		t.Helper()
		equalLines(t, "the count", s.series(t, "sandbox.count"), want...)
	}
	other := pythonSpec
	other.Kind = "other"
	count()
	acquire(t, b, pythonSpec)
	acquire(t, b, pythonSpec) // the same
	acquire(t, b, other)
	const of = "sandbox.count{sandbox.backend=in-memory,sandbox.kind="
	count(of+"other,sandbox.state=ready} 1", of+"python,sandbox.state=ready} 1")
	talks.state = liveness.Running
	count(of+"other,sandbox.state=running} 1", of+"python,sandbox.state=running} 1")
	if err := b.Dispose(t.Context(), mainKey, sandbox.DisposeOptions{Kind: "other", InstanceID: "another"}); err != nil {
		t.Fatal(err)
	}
	count(of+"other,sandbox.state=running} 1", of+"python,sandbox.state=running} 1")
	talks.Script(sandboxtest.OpDispose, sandboxtest.Step{Err: &sandbox.DisposalFailure{}})
	_ = b.Dispose(t.Context(), mainKey, sandbox.DisposeOptions{Kind: "other"})
	count(of+"other,sandbox.state=running} 1", of+"python,sandbox.state=running} 1")
	if err := b.Dispose(t.Context(), mainKey, sandbox.DisposeOptions{Kind: "other"}); err != nil {
		t.Fatal(err)
	}
	count(of + "python,sandbox.state=running} 1")
	talks.state = liveness.Exited
	count()
	talks.state = liveness.Ready
	count(of + "python,sandbox.state=ready} 1")
	if purge := b.DisposeScope(t.Context(), mainKey.Scope, mainKey.ThreadID); purge.Err() != nil {
		t.Fatal(purge.Err())
	}
	count()
	acquire(t, b, pythonSpec)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	count()
	if err := b.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func TestASandboxThatSaysNothingCountsUntilItIsFoundLost(t *testing.T) {
	s := newSDK(t)
	memory := memory(sandboxtest.Config{})
	b := telemetry.New(s.config).Backend(memory)
	box := acquire(t, b, pythonSpec)
	equalLines(t, "the count", s.series(t, "sandbox.count"), "sandbox.count{sandbox.backend=in-memory,sandbox.kind=python,sandbox.state=unknown} 1")
	memory.Script(sandboxtest.OpRunCode, sandboxtest.Step{Err: &sandbox.OpError{Class: sandbox.ErrWorkerLost}})
	if _, err := box.RunCode(t.Context(), `print "x"`, 0); sandbox.Usable(err) {
		t.Fatalf("got %v", err)
	}
	equalLines(t, "the count", s.series(t, "sandbox.count"))
	acquire(t, b, pythonSpec) // another
	if got := s.series(t, "sandbox.count"); len(got) != 1 {
		t.Errorf("the count is %q", got)
	}
}
