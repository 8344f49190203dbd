// Package exits maps what commands return to exit statuses.
package exits

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// UsageError is a command line that makes no sense.
type UsageError struct{ Err error }

// Error gives what is wrong, naming the flag or argument.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the error inside.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Echo is how long after a signal that asks a program to end another one is taken
// for the same: timeout(1) tells the process and then its group, where it is
// again. One that comes later ends the process at once.
const Echo = 100 * time.Millisecond

// Signal is 128 plus the number of a signal, as a shell reports it; one without a
// number counts as an interrupt.
func Signal(s os.Signal) int {
	n, ok := s.(syscall.Signal)
	if !ok {
		n = syscall.SIGINT
	}
	return 128 + int(n)
}

// Row is a class of errors. A silent one has said, or has, nothing to say.
type Row struct {
	Match  func(error) bool
	Status func(error) int
	Silent bool
}

// Table is from error class to exit status; the first row that matches counts, and
// the last must match everything.
type Table []Row

// Classify gives the status for what a command returned, and whether nothing is to
// be said of it. No error is 0.
func (t Table) Classify(err error) (status int, silent bool) {
	if err == nil {
		return 0, true
	}
	for _, row := range t {
		if row.Match(err) {
			return row.Status(err), row.Silent
		}
	}
	panic("a table of exit statuses without a last row")
}

// Is says whether there is a T in the chain of an error.
func Is[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

// As gives the T in the chain of an error.
func As[T error](err error) T {
	var t T
	errors.As(err, &t)
	return t
}

// Same matches errors that have target in their chain.
func Same(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// Any matches every error.
func Any(error) bool { return true }

// Fixed is a status for all errors of a class.
func Fixed(status int) func(error) int { return func(error) int { return status } }
