package owner

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// ErrBusy is the class of every *BusyError.
	ErrBusy = errors.New("owned by another process")
	// ErrUnsafe is the class of every *UnsafeError.
	ErrUnsafe = errors.New("ownership cannot be relied on")
)

// BusyError says that somebody else owns a namespace.
type BusyError struct {
	// Namespace and Path are what was asked for and its file.
	Namespace, Path string
	// PID is the process that took the lock, as far as this process can see it;
	// 0 when it cannot. It is for messages only: that process may be gone while
	// those it gave the lock to still hold it.
	PID int
	// Command is that process's name; empty when it cannot be told.
	Command string
}

// Error is one line.
func (e *BusyError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
		if e.Command != "" {
			who += fmt.Sprintf(" (%s)", e.Command)
		}
	}
	return fmt.Sprintf("%s owns the namespace %q; route requests and purges to that host, or choose another namespace (lock: %s)", who, e.Namespace, e.Path)
}

// Unwrap gives ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// UnsafeError says what is wrong with a lock file or its folder.
type UnsafeError struct {
	// Path is what was looked at, Problem what is wrong with it.
	Path, Problem string
}

// Error is one line.
func (e *UnsafeError) Error() string { return e.Path + " " + e.Problem }

// Unwrap gives ErrUnsafe.
func (e *UnsafeError) Unwrap() error { return ErrUnsafe }
