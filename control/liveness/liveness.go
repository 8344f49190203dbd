// Package liveness is how a sandbox tells what the process behind it is doing.
//
// It stands apart from package control so that a backend can speak of its
// workers without depending on the control plane.
package liveness

// State is what a worker is doing. Zero is unknown.
type State uint8

// The states.
const (
	// Unknown: it cannot be told. An operator sees such a sandbox as failed,
	// and its disposal is never confirmed.
	Unknown State = iota
	// Starting: not ready for its first operation yet.
	Starting
	// Ready: waiting for the next operation.
	Ready
	// Running: an operation is in progress.
	Running
	// Resetting: going back to its start.
	Resetting
	// Disposing: being ended.
	Disposing
	// Failed: of no use any more, but not observed to be gone.
	Failed
	// Exited: the process was observed to have ended, by whoever can know: its
	// parent, or the kernel through a pidfd. A process id that answers no
	// more is not enough, and neither is a connection that broke. Exited is
	// for ever.
	Exited
)

var names = [...]string{"unknown", "starting", "ready", "running", "resetting", "disposing", "failed", "exited"}

// String is the state in lower case.
func (s State) String() string {
	if int(s) < len(names) {
		return names[s]
	}
	return names[Unknown]
}

// Report is one look at a worker.
type Report struct {
	// State is what it is doing.
	State State
	// ProcessID is the worker's process as the host sees it; 0 when there is
	// none or it is not known.
	ProcessID int
}

// Reporter is a sandbox that knows its worker. A sandbox that is no Reporter is
// Unknown.
type Reporter interface {
	// Liveness looks at the worker. It returns at once, also while an
	// operation is in progress, and can be called at any time, also after
	// disposal.
	Liveness() Report
}

// Of is the report of a sandbox, whatever its type.
func Of(sandbox any) Report {
	if reporter, ok := sandbox.(Reporter); ok {
		return reporter.Liveness()
	}
	return Report{}
}
