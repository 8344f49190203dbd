// Package private keeps files that only this user may read and change, and
// refuses folders and files of which that is not sure.
package private

import (
	"errors"
	"fmt"
)

// ErrUnsafe is the class of every *UnsafeError.
var ErrUnsafe = errors.New("unsafe file or folder")

// UnsafeError says what is wrong with a folder or file and what mends it.
type UnsafeError struct {
	// Path is what was looked at.
	Path string
	// Problem is what is wrong with it.
	Problem string
	// Mend is a shell command that puts it right.
	Mend string
}

// Error is one line.
func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s %s; to mend it: %s", e.Path, e.Problem, e.Mend)
}

// Unwrap gives ErrUnsafe.
func (e *UnsafeError) Unwrap() error { return ErrUnsafe }
