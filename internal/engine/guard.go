//go:build linux

package engine

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic that was caught. Its text is one line; the stack is for
// a report of the mistake.
type PanicError struct {
	Value any
	Stack []byte
}

// Error gives what the panic was about.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// guard calls f and turns a panic into an error that retires the machine: a
// mistake in answering one guest must not take the others with it. A memory
// fault counts too: host copies from a template file that was cut off raise
// SIGBUS.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &Error{Kind: KindInternal, Message: "a fault in the sandbox's kernel; the sandbox is retired", Cause: &PanicError{r, debug.Stack()}}
		}
	}()
	return f()
}
