package supervise

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
)

// Errors for errors.Is.
var (
	// ErrConfig says that a Config cannot be used.
	ErrConfig = errors.New("unusable configuration of a supervisor")
	// ErrSupervisor says that the supervisor is gone, or was closed.
	ErrSupervisor = errors.New("the supervisor has ended")
	// ErrReleased says that a worker has ended because it was released.
	ErrReleased = errors.New("the worker was released")
	// ErrUnconfirmed says that it is not known yet whether all is gone. It can
	// be waited for again.
	ErrUnconfirmed = errors.New("not confirmed to be gone")
)

// maxDiagnostics is how much of a helper's standard error is kept, in bytes.
const maxDiagnostics = 64 << 10

// KindKilled is the StartError.Kind of a worker that a signal from outside has
// ended before it was ready: the next one may well start.
const KindKilled = "killed"

// StartError says why a worker could not be started.
type StartError struct {
	// Kind classifies it in the engine's words; "unavailable" if this machine has
	// not what it takes, the control groups of Limits included, "memory" if the
	// worker reached its limit, KindKilled if somebody else ended it, "internal" if
	// it is none of them.
	Kind string
	// Message is one line.
	Message string
	// Ceiling says that the limits cannot be enforced as Limits wants it.
	Ceiling bool
	// Mend are the commands that put it right, in order, for a shell of the
	// operator; none if no command can, or it is not known.
	Mend []string
	// Diagnostics is what the worker wrote to its standard error, at most 64 KiB.
	Diagnostics string
}

// Error is the message, and the last line of the diagnostics.
func (e *StartError) Error() string {
	said := last(e.Diagnostics)
	if strings.HasSuffix(said, e.Message) {
		said = "" // the same, told on both ways
	}
	return "start of a worker: " + e.Message + said
}

// GoneError says how a worker ended.
type GoneError struct {
	// ExitCode is its exit code; -1 if a signal ended it.
	ExitCode int
	// Signal is the number of that signal, or 0.
	Signal int
	// OutOfMemory: the kernel ended it because it reached its memory limit.
	OutOfMemory bool
	// Diagnostics is what it wrote to its standard error, at most 64 KiB.
	Diagnostics string
}

// Error is one line, with the last line of the diagnostics.
func (e *GoneError) Error() string {
	switch {
	case e.OutOfMemory:
		return "the worker reached its memory limit" + last(e.Diagnostics)
	case e.Signal != 0:
		return fmt.Sprintf("the worker was ended by signal %d (%v)%s", e.Signal, syscall.Signal(e.Signal), last(e.Diagnostics))
	}
	return fmt.Sprintf("the worker ended with exit code %d%s", e.ExitCode, last(e.Diagnostics))
}

// last is the last line of diagnostics, ready to be appended.
func last(diagnostics string) string {
	s := strings.TrimSpace(diagnostics)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	if s == "" {
		return ""
	}
	// A worker's words are shown, never obeyed by a terminal.
	quoted := fmt.Sprintf("%.500q", s)
	return ": " + quoted[1:len(quoted)-1]
}

// head keeps the beginning of what is written to it.
type head struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer; it takes everything.
func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = append(h.b, b[:min(len(b), maxDiagnostics-len(h.b))]...)
	return len(b), nil
}

// String is what was kept; bytes that are no UTF-8 are question marks.
func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.ToValidUTF8(string(h.b), "?")
}
