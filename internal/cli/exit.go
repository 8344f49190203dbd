package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"

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
type UsageError struct{ Err error }

// Error gives what is wrong, naming the flag or argument.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the error inside.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// StatusError ends the program with a status and nothing more to say.
type StatusError struct{ Status int }

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// exits is the one table from error class to exit status; the first row that
// matches counts. A silent class has said, or has, nothing to say.
var exits = []struct {
	class  string
	match  func(error) bool
	status func(error) int
	silent bool
}{
	{"status", is[*StatusError], func(err error) int { return as[*StatusError](err).Status }, true},
	{"usage", is[*UsageError], fixed(ExitUsage), false},
	{"closed pipe", same(streams.ErrPipe), fixed(ExitPipe), true},
	{"full device", same(streams.ErrWrite), fixed(ExitSandbox), false},
	{"signal", is[*SignalError], func(err error) int { return signalStatus(as[*SignalError](err).Signal) }, true},
	{"time limit", same(sandbox.ErrTimeout), fixed(ExitTimeLimit), false},
	{"anything else", func(error) bool { return true }, fixed(ExitSandbox), false},
}

// ExitStatus gives the exit status for what a command returned.
func ExitStatus(err error) int {
	if err == nil {
		return 0
	}
	status, _ := classify(err)
	return status
}

// Message gives the line to show for err, empty if there is nothing to say.
func Message(err error) string {
	if err == nil {
		return ""
	}
	if _, silent := classify(err); silent {
		return ""
	}
	return Program + ": " + streams.OneLine(Explain(err))
}

func classify(err error) (status int, silent bool) {
	for _, row := range exits {
		if row.match(err) {
			return row.status(err), row.silent
		}
	}
	return ExitSandbox, false
}

func is[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

func as[T error](err error) T {
	var t T
	errors.As(err, &t)
	return t
}

func same(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func fixed(status int) func(error) int { return func(error) int { return status } }

func signalStatus(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return ExitInterrupt
}
