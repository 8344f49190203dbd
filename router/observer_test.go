package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/maf-sandbox/maf-sandbox-go/router"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// telling is an event in one line.
func telling(event router.Event) string {
	switch e := event.(type) {
	case router.SandboxAcquired:
		line := fmt.Sprintf("acquired %s %s on %q (%s): %s", e.Key, e.Spec.Kind, e.Backend, e.Isolation, e.Adoption)
		if e.Err != nil {
			line = fmt.Sprintf("refused %s %q on %q: unclean %t", e.Key, e.Spec.Kind, e.Backend, errors.Is(e.Err, sandbox.ErrUnclean))
		}
		return line
	case router.CallAdmitted:
		return fmt.Sprintf("admitted %s on %s: exclusive %t, waited %t", e.Kind, e.Backend, e.Exclusive, e.Wait > 0)
	case router.SandboxCleaned:
		return fmt.Sprintf("%s %s on %s: new %t, skipped %t, %v", e.Rung, e.Kind, e.Backend, e.Before != e.After, e.Skipped, e.Err)
	case router.SandboxDisposed:
		return fmt.Sprintf("disposed %s by id %t on %s: failed %t", e.Options.Kind, e.Options.InstanceID != "", e.Backend, e.Failure != nil)
	case router.EgressObserved:
		return fmt.Sprintf("egress %s %v", e.Backend, e.Decisions)
	}
	return fmt.Sprintf("%T", event)
}

func TestTheObserverHearsWhatHappens(t *testing.T) {
	b := snapshots()
	b.vouches = true
	observer := new(recorder)
	config := lenient(b)
	config.Observer = observer
	r := newRouter(t, config)
	scripted := errors.New("scripted")
	call := func(prepare func(), work func(context.Context, sandbox.Sandbox) error) {
		if prepare != nil {
			prepare()
		}
		_ = r.WithSandbox(t.Context(), mainKey, pythonSpec, work)
	}
	x := running(t, `print "x"`, "x")
	call(nil, x)
	call(nil, func(context.Context, sandbox.Sandbox) error { return nil })
	call(func() { b.Script(sandboxtest.OpReset, failing(scripted)) }, x)
	_ = r.WithSandbox(t.Context(), mainKey, sandbox.Spec{Kind: "odd", MinIsolation: sandbox.IsolationVM}, x)
	r.MarkUnclean(mainKey, sandbox.DisposeOptions{}, scripted)
	_, _ = r.Acquire(t.Context(), mainKey, pythonSpec)
	isNil(t, "Dispose", r.Dispose(t.Context(), mainKey))

	want := []string{
		"admitted python on memory: exclusive false, waited true",
		`acquired tenant/thread/agent python on "memory" (microvm): fresh`,
		"reset python on memory: new true, skipped false, <nil>",
		"admitted python on memory: exclusive false, waited true",
		`acquired tenant/thread/agent python on "memory" (microvm): known`,
		"reset python on memory: new false, skipped true, <nil>",
		"admitted python on memory: exclusive false, waited true",
		`acquired tenant/thread/agent python on "memory" (microvm): known`,
		"reset python on memory: new false, skipped false, reset: internal error: scripted",
		"disposed python by id true on memory: failed false",
		`refused tenant/thread/agent "odd" on "": unclean false`,
		`refused tenant/thread/agent "python" on "": unclean true`,
		"disposed  by id false on memory: failed false",
	}
	var got []string
	for _, event := range observer.take() {
		got = append(got, telling(event))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the observer heard\n%q\nwant\n%q", got, want)
	}
}

func TestTheObserverGetsACopyOfTheSpec(t *testing.T) {
	config := lenient(snapshots())
	spec := pythonSpec
	spec.Labels = map[string]string{"team": "a"}
	config.Observer = router.ObserverFunc(func(event router.Event) {
		if acquired, ok := event.(router.SandboxAcquired); ok {
			acquired.Spec.Labels["team"] = "changed"
		}
	})
	acquire(t, newRouter(t, config), spec)
	if spec.Labels["team"] != "a" {
		t.Error("an observer changed the caller's spec")
	}
}

// reporting is a backend that can tell what its sandboxes reach for.
type reporting struct {
	*fake
	told   int
	report func(sandbox.EgressObservation)
}

func (b *reporting) Declarations() sandbox.Declarations {
	declares := b.fake.Declarations()
	declares.ObservesEgress = true
	return declares
}

func (b *reporting) ObserveEgress(report func(sandbox.EgressObservation)) {
	b.told++
	b.report = report
}

func TestEgressReachesTheObserver(t *testing.T) {
	b := &reporting{fake: snapshots()}
	observer := new(recorder)
	config := lenient(b)
	config.Observer = observer
	newRouter(t, config)
	b.report(sandbox.EgressObservation{Key: mainKey, Decisions: []sandbox.EgressDecision{{Host: "example.com", Port: 80}}})
	events := observer.take()
	if len(events) != 1 || telling(events[0]) != "egress memory [{false example.com 80  0s}]" {
		t.Errorf("the observer heard %v", events)
	}

	// Without an observer the backend need not look.
	newRouter(t, lenient(b))
	if b.told != 2 || b.report != nil {
		t.Errorf("the backend was told %d times; the last time to report: %t", b.told, b.report != nil)
	}
	// A router that is refused changes nothing.
	config.Selection = 9
	if _, err := router.New(config); err == nil || b.told != 2 {
		t.Errorf("New = %v, and the backend was told %d times", err, b.told)
	}
}

func TestAnObserverThatPanicsKeepsNobodyOut(t *testing.T) {
	for name, at := range map[string]func(router.Event) bool{
		"when a call is admitted":       func(e router.Event) bool { _, is := e.(router.CallAdmitted); return is },
		"when a call is refused":        func(e router.Event) bool { a, is := e.(router.SandboxAcquired); return is && a.Err != nil },
		"when a sandbox is acquired":    func(e router.Event) bool { a, is := e.(router.SandboxAcquired); return is && a.Err == nil },
		"when a sandbox is cleaned":     func(e router.Event) bool { _, is := e.(router.SandboxCleaned); return is },
		"when a sandbox is disposed of": func(e router.Event) bool { _, is := e.(router.SandboxDisposed); return is },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := snapshots()
				config := lenient(b)
				panics := true
				config.Observer = router.ObserverFunc(func(e router.Event) {
					if panics && at(e) {
						panic("scripted")
					}
				})
				r := newRouter(t, config)
				panicked := 0
				attempt := func(work func()) {
					defer func() {
						if recover() != nil {
							panicked++
						}
					}()
					work()
				}
				exclusive := router.CallOptions{Exclusive: true}
				attempt(func() { _ = r.Serve(t.Context(), mainKey, pythonSpec, exclusive, running(t, `print "x"`, "x")) })
				attempt(func() { _ = r.Serve(t.Context(), mainKey, sandbox.Spec{}, exclusive, nil) })
				attempt(func() { _ = r.Dispose(t.Context(), mainKey) })
				if panicked == 0 {
					t.Fatal("the observer's panic is lost")
				}
				panics = false
				isNil(t, "what was left", r.DisposeUnclean(t.Context(), mainKey, sandbox.DisposeOptions{}, 0))
				isNil(t, "the next call", r.Serve(t.Context(), mainKey, pythonSpec, exclusive, running(t, `print "x"`, "x")))
			})
		})
	}
}
