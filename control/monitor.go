package control

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/liveness"
	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Monitor is a [sandbox.Backend] that keeps account of the sandboxes of another
// one. What the router admitted is in the inventory: a monitor is a
// router.AdmissionWatcher, and without a router's word nothing is visible. What
// became of it is learned from the workers themselves (package liveness), never
// from what a backend says it did.
//
// A sandbox whose disposal had an uncertain end is withheld: it is not offered
// to operators any more, and it counts as long as its worker was not observed
// to have exited.
type Monitor struct {
	backend sandbox.Backend
	now     func() time.Time

	mu      sync.Mutex
	tracked map[places.Place]*tracked // what lives at each place; guarded by mu
	// replaced are withheld sandboxes whose place has another one now;
	// guarded by mu
	replaced []*tracked
	looks    uint64 // how many have begun; guarded by mu
}

var _ sandbox.Backend = (*Monitor)(nil)

// tracked is a sandbox that was admitted. Place, sandbox, contract and targets
// do not change; the rest is guarded by Monitor.mu.
type tracked struct {
	place    places.Place
	sandbox  sandbox.Sandbox
	contract string
	targets  []string

	// looked is the look that the id is from: one that began earlier and ends
	// later must not bring back an older generation.
	looked       uint64
	id           string
	created      time.Time
	lastActivity time.Time
	withheld     bool
}

// signalled is when the last signal was, by a clock that may have been set back
// meanwhile: nothing is active before it is made.
func (t *tracked) signalled(now time.Time) time.Time {
	if now.Before(t.created) {
		return t.created
	}
	return now
}

// exited says whether the worker was observed to be gone.
func (t *tracked) exited() bool { return liveness.Of(t.sandbox).State == liveness.Exited }

// NewMonitor makes a monitor of a backend.
func NewMonitor(backend sandbox.Backend) *Monitor {
	return &Monitor{backend: backend, now: wallClock, tracked: make(map[places.Place]*tracked)}
}

// wallClock is the time that operators are told: without the reading of the
// monotonic clock, by which moments would compare otherwise than they are shown.
func wallClock() time.Time { return time.Now().Round(0) }

// Unwrap is the backend behind the monitor, for what only that one can do: a router
// finds a router.CallAdmitter there.
func (m *Monitor) Unwrap() sandbox.Backend { return m.backend }

// Name is the backend's.
func (m *Monitor) Name() string { return m.backend.Name() }

// Isolation is the backend's.
func (m *Monitor) Isolation() sandbox.Isolation { return m.backend.Isolation() }

// Declarations are the backend's.
func (m *Monitor) Declarations() sandbox.Declarations { return m.backend.Declarations() }

// Close closes the backend.
func (m *Monitor) Close() error { return m.backend.Close() }

// Acquire is the backend's. The sandbox becomes visible when it is admitted.
func (m *Monitor) Acquire(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return m.backend.Acquire(ctx, key, spec)
}

// admissionWatcher is router.AdmissionWatcher, which this package does not import.
type admissionWatcher interface {
	Admitted(key sandbox.Key, spec sandbox.Spec, box sandbox.Sandbox)
	Refused(key sandbox.Key, kind string)
}

// Refused has nothing to forget: only what was admitted is kept. A backend that
// watches too is told.
func (m *Monitor) Refused(key sandbox.Key, kind string) {
	if watcher, ok := m.backend.(admissionWatcher); ok {
		watcher.Refused(key, kind)
	}
}

// Admitted makes a sandbox visible, under the spec with which the router hands
// it out. For a sandbox that is visible it is a signal of activity. A backend that
// watches too is told.
func (m *Monitor) Admitted(key sandbox.Key, spec sandbox.Spec, box sandbox.Sandbox) {
	if watcher, ok := m.backend.(admissionWatcher); ok {
		watcher.Admitted(key, spec, box)
	}
	id, now := box.ID(), m.now()
	fresh := &tracked{
		place: places.Place{Key: key, Kind: spec.Kind}, sandbox: box, contract: spec.ExecutionContract, targets: targets(spec),
		id: id, created: now, lastActivity: now,
	}
	m.mu.Lock()
	old := m.tracked[fresh.place]
	m.mu.Unlock()
	// Asked without the lock; a sandbox that was reset meanwhile is the same.
	same := old != nil && old.sandbox.ID() == id
	m.mu.Lock()
	defer m.mu.Unlock()
	if current := m.tracked[fresh.place]; current != nil {
		same = same && current == old
		if current.id == id {
			fresh.created = current.created
		} else if current.withheld && !same {
			m.replaced = append(m.replaced, current)
		}
	}
	fresh.lastActivity = fresh.signalled(now)
	m.tracked[fresh.place] = fresh
}

// targets are the hosts that a spec lets a sandbox reach.
func targets(spec sandbox.Spec) []string {
	hosts := make([]string, 0, len(spec.EgressAllow))
	for _, rule := range spec.EgressAllow {
		hosts = append(hosts, rule.Host.String())
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// look learns which generation every sandbox is now and gives all that fit, in
// the order of their places. A reset shows as a new sandbox.
func (m *Monitor) look(fits func(*tracked) bool) []*tracked {
	m.mu.Lock()
	m.looks++
	mine := m.looks
	all := slices.Clone(m.replaced)
	for _, t := range m.tracked {
		all = append(all, t)
	}
	m.mu.Unlock()
	// The sandboxes are asked without the lock: they are not this package's.
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.sandbox.ID()
	}
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var fitting []*tracked
	for i, t := range all {
		if t.looked < mine {
			t.looked = mine
			if t.id != ids[i] {
				t.id, t.created, t.lastActivity = ids[i], now, now
			}
		}
		if fits(t) {
			fitting = append(fitting, t)
		}
	}
	slices.SortStableFunc(fitting, func(a, b *tracked) int { return a.place.Compare(b.place) })
	return fitting
}

// remove forgets sandboxes.
func (m *Monitor) remove(gone []*tracked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range gone {
		if m.tracked[t.place] == t {
			delete(m.tracked, t.place)
		}
	}
	m.replaced = slices.DeleteFunc(m.replaced, func(t *tracked) bool { return slices.Contains(gone, t) })
}

// withhold takes sandboxes out of the inventory and keeps counting them.
func (m *Monitor) withhold(uncertain []*tracked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range uncertain {
		t.withheld = true
	}
}

// settle removes those that are observed to be gone and gives the others.
func (m *Monitor) settle(targets []*tracked) (gone, left []*tracked) {
	for _, t := range targets {
		if t.exited() {
			gone = append(gone, t)
		} else {
			left = append(left, t)
		}
	}
	m.remove(gone)
	return gone, left
}

// Dispose has the backend dispose, and keeps account: a sandbox is gone when
// its worker was observed to have exited. When the backend says in time that it
// failed, the sandbox stays visible, to be disposed of again; when it did not
// answer in time or not in the protocol's words, the end is uncertain.
func (m *Monitor) Dispose(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
	targets := m.look(func(t *tracked) bool {
		return t.place.Key == key && (options.Kind == "" || t.place.Kind == options.Kind) &&
			(options.InstanceID == "" || t.id == options.InstanceID)
	})
	// A backend that does not obey the context is overtaken by it.
	stop := context.AfterFunc(ctx, func() { m.withhold(targets) })
	err := m.backend.Dispose(ctx, key, options)
	stop()
	if err != nil {
		// One whose worker has exited stays too when the failure is certain: what
		// is left of it keeps its key unclean, and has no other name.
		if uncertain(ctx, err) {
			_, left := m.settle(targets)
			m.withhold(left)
		}
		return err
	}
	gone, _ := m.settle(targets)
	receiptOf(ctx).add(key, options, len(gone))
	return nil
}

// uncertain says whether a failed disposal may still have happened or go on.
func uncertain(ctx context.Context, err error) bool {
	var failure *sandbox.DisposalFailure
	return ctx.Err() != nil || !errors.As(err, &failure)
}

// DisposeScope has the backend purge a conversation, and keeps account as
// Dispose does. When only some are gone, it is uncertain which.
func (m *Monitor) DisposeScope(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
	targets := m.look(inConversation(scope, threadID))
	stop := context.AfterFunc(ctx, func() { m.withhold(targets) })
	purge := m.backend.DisposeScope(ctx, scope, threadID)
	stop()
	_, left := m.settle(targets)
	if purge.Undisposed != nil && (ctx.Err() != nil || purge.Disposed > 0) {
		m.withhold(left)
	}
	return purge
}

func inConversation(scope, threadID string) func(*tracked) bool {
	return func(t *tracked) bool { return t.place.Key.Scope == scope && t.place.Key.ThreadID == threadID }
}

// retains says whether anything of a conversation is left, visible or withheld.
func (m *Monitor) retains(scope, threadID string) bool {
	return len(m.look(inConversation(scope, threadID))) > 0
}

// entry is a visible sandbox.
type entry struct {
	place  places.Place
	record Record
}

// inventory is what is visible, in the order of places.
func (m *Monitor) inventory(sourceID string) []entry {
	visible := m.look(func(t *tracked) bool { return !t.withheld })
	entries := make([]entry, len(visible))
	for i, t := range visible {
		report := liveness.Of(t.sandbox)
		key := t.place.Key
		m.mu.Lock()
		entries[i] = entry{t.place, Record{
			SourceID: sourceID, Backend: m.backend.Name(),
			Scope: key.Scope, ThreadID: key.ThreadID, AgentID: key.AgentID, CallID: key.CallID,
			Kind: t.place.Kind, InstanceID: t.id, State: stateOf(report.State),
			CreatedAt: At(t.created), LastActivityAt: At(t.lastActivity), ProcessID: max(0, report.ProcessID),
			ExecutionContract: t.contract, EgressTargets: t.targets,
		}}
		m.mu.Unlock()
	}
	return entries
}

// stateOf is what operators are told of a worker.
func stateOf(s liveness.State) State {
	switch s {
	case liveness.Starting:
		return StateStarting
	case liveness.Ready:
		return StateReady
	case liveness.Running:
		return StateRunning
	case liveness.Resetting:
		return StateResetting
	case liveness.Disposing:
		return StateDisposing
	}
	return StateFailed
}
