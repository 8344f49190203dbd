package selfupdate

import (
	"errors"
	"fmt"
	"time"
)

// The classes of the package's errors.
var (
	// ErrRefused is the class of *RefusedError: nothing was changed.
	ErrRefused = errors.New("refused to update")
	// ErrVersion is a target version that is none; nothing was changed.
	ErrVersion = errors.New("invalid target version")
	// ErrOptions are options that contradict each other; nothing was changed.
	ErrOptions = errors.New("invalid options")
	// ErrVerify is the class of *VerifyError.
	ErrVerify = errors.New("the installed program is not the wanted one")
	// ErrBusy is another update of the same installation that is under way;
	// nothing was changed.
	ErrBusy = errors.New("another update of this installation is under way; when it is done, ask for the version to see what it installed")
	// ErrNoRelease is an index without a release of the wanted kind.
	ErrNoRelease = errors.New("no release found")
)

// RefusedError says why this installation is not updated from within, and what
// its operator can type instead.
type RefusedError struct {
	Installation Installation
	// Reason is a sentence or two.
	Reason string
	// Requirement is the pinned requirement, such as name==1.2.3 or
	// module/cmd@v1.2.3.
	Requirement string
	// Command does what was asked, in a shell of this system.
	Command string
}

// Error gives the reason and the command.
func (e *RefusedError) Error() string {
	if e.Command == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Command
}

// Unwrap gives ErrRefused.
func (e *RefusedError) Unwrap() error { return ErrRefused }

// StepError is a step that failed or ran out of time.
type StepError struct {
	Step Step
	// Timeout is the step's limit, zero unless the step reached it.
	Timeout time.Duration
	// Retry does the step by hand; empty when there is nothing to type.
	Retry string
	Err   error
}

// Error says which step failed, why, and what to do.
func (e *StepError) Error() string {
	s := fmt.Sprintf("%s: %v", e.Step, e.Err)
	if e.Timeout > 0 {
		s = fmt.Sprintf("%s: not done within %v (a longer --timeout allows more)", e.Step, e.Timeout)
	}
	if e.Retry != "" {
		s += "; by hand: " + e.Retry
	}
	return s
}

// Unwrap gives the cause; context.DeadlineExceeded when time ran out.
func (e *StepError) Unwrap() error { return e.Err }

// VerifyError is an installation after which a fresh process did not give the
// wanted version.
type VerifyError struct {
	Want string
	// Got is what the fresh process gave; empty if it gave no version, for the
	// reason in Err.
	Got string
	Err error
	// Undo installs the version from before; empty where nothing was replaced.
	Undo string
}

// Error says what was wanted, what is there, and how to go back.
func (e *VerifyError) Error() string {
	s := fmt.Sprintf("%s was installed, but a fresh process gives version %s", e.Want, e.Got)
	if e.Err != nil {
		s = fmt.Sprintf("%s was installed, but a fresh process gives no version: %v", e.Want, e.Err)
	}
	if e.Undo == "" {
		return s + "; it was not put in place"
	}
	return s + "; to go back: " + e.Undo
}

// Unwrap gives ErrVerify and the cause.
func (e *VerifyError) Unwrap() []error { return []error{ErrVerify, e.Err} }
