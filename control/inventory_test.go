package control

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// plain is a backend of one sandbox, which goes when it is told to, and the router
// of it.
type plain struct {
	sandbox.Backend
	box     *generation
	monitor *Monitor
}

func (*plain) Name() string { return "plain" }
func (p *plain) Dispose(context.Context, sandbox.Key, sandbox.DisposeOptions) error {
	p.box.gone = true
	return nil
}

func (p *plain) DisposeKind(ctx context.Context, key sandbox.Key, kind, id string, _ time.Duration) error {
	return p.monitor.Dispose(ctx, key, sandbox.DisposeOptions{Kind: kind, InstanceID: id})
}

// A clock that is set back makes no sandbox another one and none active before
// it was made, and takes no time from a disposal.
func TestAClockThatIsSetBackChangesNoSandbox(t *testing.T) {
	if now := wallClock(); now != now.Round(0) {
		t.Error("moments compare otherwise than they are shown")
	}
	p := &plain{box: &generation{id: "one"}}
	p.monitor = NewMonitor(p)
	m, box := p.monitor, p.box
	now := time.Unix(1_800_000_000, 0)
	m.now = func() time.Time { return now }
	key, spec := sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}, sandbox.Spec{Kind: "python"}
	m.Admitted(key, spec, box)
	host, err := NewHost(HostConfig{
		SourceID: "s", Monitors: []*Monitor{m}, Router: p,
		Quiesce: func(context.Context, sandbox.Key) (func(), error) { return func() {}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	one := func() Record {
		t.Helper()
		records, err := host.List(t.Context())
		if err != nil || len(records) != 1 {
			t.Fatalf("listed %+v, %v", records, err)
		}
		return records[0]
	}
	first := one()
	now = now.Add(-time.Hour)
	m.Admitted(key, spec, box)
	if again := one(); again.InstanceID != "one" || again.CreatedAt != first.CreatedAt || again.LastActivityAt != first.CreatedAt {
		t.Errorf("after the clock was set back %+v, before %+v", again, first)
	}
	if age := first.CreatedAt.Age(now); age != 0 {
		t.Errorf("its age is %v", age)
	}
	// A generation that is new is as old as the clock says now.
	box.id = "two"
	if reset := one(); reset.InstanceID != "two" || reset.CreatedAt != At(now) || reset.LastActivityAt != At(now) {
		t.Errorf("after a reset %+v", reset)
	}
	if result, err := host.Dispose(t.Context(), "two", hang); err != nil || result.Status != Disposed {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
}

// generation is a sandbox with nothing but an id, and gone when it is disposed of.
type generation struct {
	sandbox.Sandbox
	id   string
	gone bool
}

func (g *generation) ID() string { return g.id }
func (g *generation) Liveness() liveness.Report {
	if g.gone {
		return liveness.Report{State: liveness.Exited}
	}
	return liveness.Report{State: liveness.Ready}
}

// slow is a sandbox of which one look hears late: it is told what was true before
// a reset, and another look begins and ends meanwhile.
type slow struct {
	generation
	first   atomic.Bool
	reading chan struct{} // closed when that look has its answer
	letGo   chan struct{} // closed when it may have it
}

func (s *slow) ID() string {
	id := s.generation.id
	if s.first.CompareAndSwap(false, true) {
		close(s.reading)
		<-s.letGo
	}
	return id
}

func TestALookThatEndsLateBringsNoOlderGenerationBack(t *testing.T) {
	m := NewMonitor(&plain{})
	now := time.Unix(1_800_000_000, 0)
	m.now = func() time.Time { now = now.Add(time.Second); return now }
	box := &slow{generation: generation{id: "one"}, reading: make(chan struct{}), letGo: make(chan struct{})}
	key := sandbox.Key{Scope: "s", ThreadID: "t", AgentID: "a"}
	m.Admitted(key, sandbox.Spec{Kind: "python"}, &box.generation)
	m.tracked[places.Place{Key: key, Kind: "python"}].sandbox = box

	late := make(chan []entry, 1)
	go func() { late <- m.inventory("s") }()
	<-box.reading
	box.generation = generation{id: "two"}
	reset := m.inventory("s")
	close(box.letGo)
	for name, got := range map[string][]entry{"the look that was late": <-late, "the next look": m.inventory("s")} {
		if len(reset) != 1 || len(got) != 1 || got[0].record.InstanceID != "two" || got[0].record.CreatedAt != reset[0].record.CreatedAt {
			t.Errorf("%s has %+v, and the one between %+v", name, got, reset)
		}
	}
}

func TestTheInventoriesOfSeveralMonitorsAreOneInTheOrderOfPlaces(t *testing.T) {
	at := func(thread, kind string) Record { return Record{ThreadID: thread, Kind: kind} }
	var monitors []*Monitor
	for _, places := range [][]Record{{at("c", "python"), at("a", "python")}, {at("b", "python"), at("a", "codeact")}, {at("a", "node")}} {
		m := NewMonitor(&plain{})
		for _, p := range places {
			key := sandbox.Key{Scope: "s", ThreadID: p.ThreadID, AgentID: "a"}
			m.Admitted(key, sandbox.Spec{Kind: p.Kind}, &generation{id: p.ThreadID + p.Kind})
		}
		monitors = append(monitors, m)
	}
	host, err := NewHost(HostConfig{SourceID: "s", Monitors: monitors, Router: &plain{}})
	if err != nil {
		t.Fatal(err)
	}
	records, err := host.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range records {
		order = append(order, r.ThreadID+" "+r.Kind)
	}
	if want := []string{"a codeact", "a node", "a python", "b python", "c python"}; !slices.Equal(order, want) {
		t.Errorf("listed %q, want %q", order, want)
	}
}
