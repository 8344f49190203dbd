package control

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a [Control] over records in memory, for demonstrations and tests:
// disposing removes a record and nothing else.
type Memory struct {
	mu      sync.Mutex
	records []Record // guarded by mu
}

var _ Control = (*Memory)(nil)

// NewMemory makes a control that has the records.
func NewMemory(records ...Record) *Memory {
	return &Memory{records: slices.Clone(records)}
}

// DemoRecords are three sandboxes for a demonstration, as of now.
func DemoRecords(sourceID string, now time.Time) []Record {
	ago := func(seconds int) Timestamp { return At(now) - Timestamp(seconds) }
	demo := func(thread, agent, kind, id string, state State, created, signal, pid int, targets ...string) Record {
		return Record{
			SourceID: sourceID, Backend: "hyperlight", Scope: "tenant-labs", ThreadID: thread, AgentID: agent,
			Kind: kind, InstanceID: id, State: state, CreatedAt: ago(created), LastActivityAt: ago(signal),
			ProcessID: pid, ExecutionContract: "python-3.14-wasm", EgressTargets: targets,
		}
	}
	return []Record{
		demo("incident-184", "analyst", "codeact", "9f15a25d8c0d4ea0ab1af045d9481001", StateRunning, 184, 2, 28440, "https://api.github.com/"),
		demo("forecast-042", "planner", "codeact", "f2ecba87b2ce44659a66fd28fd0a1002", StateReady, 623, 91, 30112),
		demo("review-711", "reviewer", "python", "7720e57b3ad7441ca21f5a7392ce1003", StateFailed, 71, 11, 0),
	}
}

// List gives the records, sorted as consoles show them.
func (m *Memory) List(context.Context) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	records := slices.Clone(m.records)
	slices.SortFunc(records, Record.Compare)
	return records, nil
}

// Get gives one record.
func (m *Memory) Get(_ context.Context, instanceID string) (Record, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return single(m.records, instanceID)
}

// Dispose removes the record.
func (m *Memory) Dispose(_ context.Context, instanceID string, _ time.Duration) (DisposalResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch _, count := pick(m.records, instanceID); count {
	case 0:
		return notFound(instanceID, sayGone), nil
	case 1:
		m.records = slices.DeleteFunc(m.records, func(r Record) bool { return r.InstanceID == instanceID })
		return DisposalResult{Disposed, instanceID, sayDisposed}, nil
	}
	return disposalFailed(instanceID, sayDuplicate), nil
}

// Purge removes the records of the conversation.
func (m *Memory) Purge(_ context.Context, scope, threadID string, _ time.Duration) (PurgeResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.records)
	m.records = slices.DeleteFunc(m.records, func(r Record) bool { return r.Scope == scope && r.ThreadID == threadID })
	return PurgeResult{Purged, scope, threadID, before - len(m.records), sayPurged}, nil
}
