package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// ProtocolVersion is the version of the protocol that this package speaks.
const ProtocolVersion = 1

// ErrInvalidMessage is the class of every error about a foreign message that
// is not what the protocol says.
var ErrInvalidMessage = wirejson.ErrInvalid

// State is what an operator is told that a sandbox is doing.
type State string

// The states of the protocol.
const (
	// StateStarting: its worker is not ready yet.
	StateStarting State = "starting"
	// StateReady: it waits for a program.
	StateReady State = "ready"
	// StateRunning: a program runs in it.
	StateRunning State = "running"
	// StateResetting: it is put back to its start.
	StateResetting State = "resetting"
	// StateDisposing: it is being disposed of.
	StateDisposing State = "disposing"
	// StateFailed: its worker is gone or cannot be looked at.
	StateFailed State = "failed"
)

// States are all states, in the order of a sandbox's life.
func States() []State {
	return []State{StateStarting, StateReady, StateRunning, StateResetting, StateDisposing, StateFailed}
}

// ParseState takes the word of a state.
func ParseState(word string) (State, error) {
	if state := State(word); slices.Contains(States(), state) {
		return state, nil
	}
	return "", fmt.Errorf("%w: %q is no state; known: %v", ErrInvalidMessage, wirejson.Cut(word, maxQuoted), States())
}

// maxQuoted bounds how much of a foreign text an error repeats, in bytes.
const maxQuoted = 100

// Timestamp is a moment as the protocol writes it: seconds since 1970 in UTC,
// with a fraction.
type Timestamp float64

// At is the moment as a Timestamp.
func At(t time.Time) Timestamp {
	return Timestamp(float64(t.Unix()) + float64(t.Nanosecond())/1e9)
}

// maxTimestamp is the year 9999: what every calendar here can show.
const maxTimestamp = 253402300799

// Time is the moment in UTC. What lies outside of the years 1 to 9999 becomes
// the nearest end.
func (t Timestamp) Time() time.Time {
	const minTimestamp = -62135596800
	seconds, fraction := math.Modf(float64(min(max(t, minTimestamp), maxTimestamp)))
	return time.Unix(int64(seconds), int64(math.Round(fraction*1e9))).UTC()
}

// Age is how long ago the moment was, and never negative: clocks are set back.
func (t Timestamp) Age(now time.Time) time.Duration {
	return max(0, now.Sub(t.Time()))
}

// MaxTextBytes bounds every text of a record that is read, and the name of a
// host: no part of a key has more than a quarter of that (sandbox.MaxNameBytes).
const MaxTextBytes = 4 << 10

// wantSource is what a host's name must be.
var wantSource = fmt.Sprintf("a text of 1 to %d bytes", MaxTextBytes)

// textField is a text of a foreign message and where it goes.
type textField struct {
	name string
	into *string
}

// readTexts reads texts of bounded length, in their order: of several that are
// wrong the first is told.
func readTexts(fields wirejson.Fields, texts ...textField) error {
	for _, text := range texts {
		value, err := fields.String(text.name)
		if err != nil {
			return err
		}
		if err := checkText(text.name, value); err != nil {
			return err
		}
		*text.into = value
	}
	return nil
}

func checkText(name, value string) error {
	if len(value) > MaxTextBytes {
		return &wirejson.FieldError{Field: name, Want: fmt.Sprintf("of at most %d bytes", MaxTextBytes)}
	}
	return nil
}

// Bounds of the targets of a record that is read. A console shows them as one
// text, which must not keep it busy.
const (
	// MaxEgressTargets bounds their number.
	MaxEgressTargets = 4096
	// MaxEgressBytes bounds all of them together, in bytes.
	MaxEgressBytes = 256 << 10
)

// Record is one physical sandbox in an inventory.
type Record struct {
	// SourceID names the host that reports it; never empty.
	SourceID string
	// Backend is the name of the backend that made it.
	Backend string
	// Scope, ThreadID, AgentID and CallID are the parts of its key; CallID is
	// empty for a sandbox that a conversation shares.
	Scope, ThreadID, AgentID, CallID string
	// Kind is the sort of sandbox within its key.
	Kind string
	// InstanceID is its generation: new after every reset.
	InstanceID string
	// State is what it is doing.
	State State
	// CreatedAt is when this generation was first seen.
	CreatedAt Timestamp
	// LastActivityAt is the last lifecycle signal; a run that begins and ends
	// between two looks leaves none.
	LastActivityAt Timestamp
	// ProcessID is its worker's process; 0 when not known.
	ProcessID int
	// ExecutionContract is the contract it was acquired under; may be empty.
	ExecutionContract string
	// EgressTargets are the hosts it may reach.
	EgressTargets []string
}

// LogicalName is the key for people: its parts, separated by slashes.
func (r Record) LogicalName() string {
	name := r.Scope + "/" + r.ThreadID + "/" + r.AgentID
	if r.CallID != "" {
		name += "/" + r.CallID
	}
	return name
}

// Compare orders records as consoles show them: by source, logical name and
// kind, and by instance so that the order is always the same.
func (r Record) Compare(other Record) int {
	return cmp.Or(
		strings.Compare(r.SourceID, other.SourceID),
		strings.Compare(r.LogicalName(), other.LogicalName()),
		strings.Compare(r.Kind, other.Kind),
		strings.Compare(r.InstanceID, other.InstanceID),
	)
}

// MarshalJSON writes the record with all its keys, compact and in ASCII.
func (r Record) MarshalJSON() ([]byte, error) {
	for _, t := range []Timestamp{r.CreatedAt, r.LastActivityAt} {
		if math.IsNaN(float64(t)) || math.IsInf(float64(t), 0) {
			return nil, fmt.Errorf("record %q: a time that is no finite number", wirejson.Cut(r.InstanceID, maxQuoted))
		}
	}
	var o pyjson.Object
	o.String("source_id", r.SourceID)
	o.String("backend", r.Backend)
	o.String("scope", r.Scope)
	o.String("thread_id", r.ThreadID)
	o.String("agent_id", r.AgentID)
	o.String("call_id", r.CallID)
	o.String("kind", r.Kind)
	o.String("instance_id", r.InstanceID)
	o.String("state", string(r.State))
	o.Float("created_at", float64(r.CreatedAt))
	o.Float("last_activity_at", float64(r.LastActivityAt))
	o.OptionalInt("process_id", r.ProcessID)
	o.OptionalString("execution_contract", r.ExecutionContract)
	o.Strings("egress_targets", r.EgressTargets)
	return o.Bytes(), nil
}

// UnmarshalJSON reads a foreign record. Unknown keys are ignored; an unknown
// state is an error, and so is a text of more than [MaxTextBytes].
func (r *Record) UnmarshalJSON(data []byte) error {
	fields, err := wirejson.Parse(data)
	if err != nil {
		return err
	}
	var read Record
	if err := readTexts(
		fields,
		textField{"source_id", &read.SourceID}, textField{"backend", &read.Backend}, textField{"scope", &read.Scope},
		textField{"thread_id", &read.ThreadID}, textField{"agent_id", &read.AgentID}, textField{"call_id", &read.CallID},
		textField{"kind", &read.Kind}, textField{"instance_id", &read.InstanceID},
	); err != nil {
		return err
	}
	if read.SourceID == "" {
		return &wirejson.FieldError{Field: "source_id", Want: wantSource}
	}
	state, err := fields.String("state")
	if err != nil {
		return err
	}
	if read.State, err = ParseState(state); err != nil {
		return err
	}
	created, err := fields.Float("created_at")
	if err != nil {
		return err
	}
	active, err := fields.Float("last_activity_at")
	if err != nil {
		return err
	}
	read.CreatedAt, read.LastActivityAt = Timestamp(created), Timestamp(active)
	if read.ProcessID, err = fields.OptionalInt("process_id"); err != nil {
		return err
	}
	if read.ExecutionContract, err = fields.OptionalString("execution_contract"); err != nil {
		return err
	}
	if err := checkText("execution_contract", read.ExecutionContract); err != nil {
		return err
	}
	if read.EgressTargets, err = fields.Strings("egress_targets", MaxEgressTargets); err != nil {
		return err
	}
	if err := checkTargets(read.EgressTargets); err != nil {
		return err
	}
	*r = read
	return nil
}

func checkTargets(targets []string) error {
	total := 0
	for _, target := range targets {
		if err := checkText("egress_targets", target); err != nil {
			return err
		}
		total += len(target)
	}
	if total > MaxEgressBytes {
		return &wirejson.FieldError{Field: "egress_targets", Want: fmt.Sprintf("of at most %d bytes together", MaxEgressBytes)}
	}
	return nil
}
