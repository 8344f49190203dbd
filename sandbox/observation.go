package sandbox

import "time"

// EgressDecision is one attempt of a program to reach something.
type EgressDecision struct {
	// Allowed says whether it was let out.
	Allowed bool
	// Host and Port are what the program asked for; empty and zero when that does not
	// say, or nothing that is ever allowed. The host is the program's text, which the
	// backend has bounded.
	Host string
	Port uint16
	// Reason is why, in the backend's words.
	Reason string
	// Duration is the time from the request to its end; zero when the backend
	// does not know it.
	Duration time.Duration
}

// EgressObservation is what a backend that declares ObservesEgress saw one
// sandbox reach for.
type EgressObservation struct {
	// Key and Kind are what the sandbox was acquired under, InstanceID is the
	// generation whose program reached out.
	Key              Key
	Kind, InstanceID string
	// Decisions in the order in which they were made.
	Decisions []EgressDecision
	// Truncated says that there were more than the backend keeps.
	Truncated bool
	// Unreadable, if not empty, is why they are not known.
	Unreadable string
}
