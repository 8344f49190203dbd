package image

import (
	"errors"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

// Sentinels for errors.Is.
var (
	// ErrNoPython is returned when there is no Python to capture.
	ErrNoPython = errors.New("no Python found: install Python 3.9 or later (on Debian and Ubuntu: apt install python3)")
	// ErrUnsupported is returned for a Python that cannot become a guest. The
	// error is an *UnsupportedError.
	ErrUnsupported = errors.New("unsupported Python")
	// ErrDamaged is returned when an image file is not what it claims to be.
	ErrDamaged = errors.New("damaged image")
	// ErrNotFound is returned when the store, or an image, does not hold what
	// was asked for.
	ErrNotFound = errors.New("not found")
	// ErrUnsafeFolder is returned when the store's folder could be changed by
	// someone else. The error is a *private.UnsafeError.
	ErrUnsafeFolder = private.ErrUnsafe
	// ErrName is returned for a name that an image cannot have.
	ErrName = errors.New("bad image name")
)

// UnsupportedError says why a Python cannot be captured.
type UnsupportedError struct {
	// Python is the program on the host.
	Python string
	// Reason completes "cannot capture X: it is ...".
	Reason string
}

// Error names the program and the reason.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("cannot capture %s: it is %s; needed is CPython 3.9 or later for x86-64 Linux with glibc", e.Python, e.Reason)
}

// Unwrap gives ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// MissingLibraryError says that the host's loader does not find a library.
type MissingLibraryError struct {
	// Library is the name that was looked for.
	Library string
	// NeededBy is the file on the host that needs it.
	NeededBy string
}

// Error names the library and the file that needs it.
func (e *MissingLibraryError) Error() string {
	return fmt.Sprintf("the shared library %s is missing on this machine: %s needs it", e.Library, e.NeededBy)
}

// LibraryConflictError says that two different files want the same place.
type LibraryConflictError struct {
	// Library is the shared object name.
	Library string
	// First and Second are the two files on the host.
	First, Second string
}

// Error names both files.
func (e *LibraryConflictError) Error() string {
	return fmt.Sprintf("two different files are the shared library %s: %s and %s", e.Library, e.First, e.Second)
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}
