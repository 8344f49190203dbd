package cli

import (
	"fmt"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/exits"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The exit statuses that are the program's own. Everything else is the status
// of the Python program. 124 and 125 are those of timeout(1); 128 plus a
// signal's number is what a shell reports for a process that the signal ended.
const (
	ExitUsage      = 2
	ExitTimeLimit  = 124
	ExitSandbox    = 125
	ExitHangup     = 128 + int(syscall.SIGHUP)
	ExitInterrupt  = 128 + int(syscall.SIGINT)
	ExitPipe       = 128 + int(syscall.SIGPIPE)
	ExitTerminated = 128 + int(syscall.SIGTERM)
)

// UsageError is a command line that makes no sense.
type UsageError = exits.UsageError

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return exits.Usagef(format, args...) }

// StatusError ends the program with a status and nothing more to say.
type StatusError struct{ Status int }

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// statuses is the one table from error class to exit status.
var statuses = exits.Table{
	{Match: exits.Is[*StatusError], Status: func(err error) int { return exits.As[*StatusError](err).Status }, Silent: true},
	{Match: exits.Is[*UsageError], Status: exits.Fixed(ExitUsage)},
	{Match: exits.Same(streams.ErrPipe), Status: exits.Fixed(ExitPipe), Silent: true},
	{Match: exits.Same(streams.ErrWrite), Status: exits.Fixed(ExitSandbox)},
	{Match: exits.Is[*SignalError], Status: func(err error) int { return exits.Signal(exits.As[*SignalError](err).Signal) }, Silent: true},
	{Match: exits.Same(sandbox.ErrTimeout), Status: exits.Fixed(ExitTimeLimit)},
	{Match: exits.Any, Status: exits.Fixed(ExitSandbox)},
}

// ExitStatus gives the exit status for what a command returned.
func ExitStatus(err error) int {
	status, _ := statuses.Classify(err)
	return status
}

// Message gives the line to show for err, empty if there is nothing to say.
func Message(err error) string {
	if _, silent := statuses.Classify(err); silent {
		return ""
	}
	return Program + ": " + Line(err)
}
