package cli

import (
	"errors"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// kinds are the words of --json for the classes of errors; the first row that
// matches counts.
var kinds = []struct {
	class error
	word  string
}{
	{sandbox.ErrTimeout, "timeout"},
	{sandbox.ErrQueuedTimeout, "timeout"},
	{sandbox.ErrOutputLimit, "output_limit"},
	{sandbox.ErrMemory, "memory"},
	{sandbox.ErrDeadlock, "deadlock"},
	{sandbox.ErrGuestCrash, "guest_crash"},
	{sandbox.ErrWorkerLost, "worker_lost"},
	{sandbox.ErrRefused, "refused"},
	{sandbox.ErrUnavailable, "unavailable"},
	{sandbox.ErrCanceled, "canceled"},
}

// Kind classifies err in one word for programs; "internal" if it has no class.
func Kind(err error) string {
	for _, row := range kinds {
		if errors.Is(err, row.class) {
			return row.word
		}
	}
	return "internal"
}

// NotRunError says that a program was not run, because of something that is
// the caller's to change.
type NotRunError struct{ Err error }

// Error says why.
func (e *NotRunError) Error() string { return "nothing was run: " + e.Err.Error() }

// Unwrap gives sandbox.ErrRefused and the error inside.
func (e *NotRunError) Unwrap() []error { return []error{sandbox.ErrRefused, e.Err} }

// SandboxUsable is true: nothing has happened to one.
func (*NotRunError) SandboxUsable() bool { return true }

// Line gives what Explain says on one line that is safe to show on a terminal.
func Line(err error) string {
	// Errors that are joined have a line each.
	return streams.OneLine(strings.NewReplacer(":\n", ": ", "\n", "; ").Replace(strings.TrimSpace(Explain(err))))
}

// Explain gives the text of err for people: of an operation on a sandbox the
// detail and the cause, without its name and its class, which the detail says
// in better words.
func Explain(err error) string {
	var op *sandbox.OpError
	if !errors.As(err, &op) || op.Error() != err.Error() {
		return err.Error()
	}
	var parts []string
	if op.Detail != "" {
		parts = append(parts, op.Detail)
	}
	if op.Cause != nil {
		parts = append(parts, Explain(op.Cause))
	}
	if len(parts) == 0 {
		return err.Error()
	}
	return strings.Join(parts, ": ")
}
