package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DisposalCode is why a disposal is not confirmed. Zero is unknown.
type DisposalCode uint8

// The codes.
const (
	// DisposalUnknown is everything that has no code of its own.
	DisposalUnknown DisposalCode = iota
	// DisposalUnreachable: what holds the sandbox could not be asked.
	DisposalUnreachable
	// DisposalTimeout: the end was not confirmed in time.
	DisposalTimeout
	// DisposalRefused: what holds the sandbox said no.
	DisposalRefused
	// DisposalUnlisted: the sandboxes could not be enumerated.
	DisposalUnlisted
)

var disposalWords = words{"disposal code", []string{"unknown", "unreachable", "timeout", "refused", "unlisted"}}

// String is the protocol's word.
func (c DisposalCode) String() string { return disposalWords.text(uint8(c)) }

// MarshalText is the protocol's word.
func (c DisposalCode) MarshalText() ([]byte, error) { return disposalWords.marshal(uint8(c)) }

// UnmarshalText takes the protocol's word. A word that this version does not
// know is unknown: a newer peer's failure is still a failure.
func (c *DisposalCode) UnmarshalText(text []byte) error {
	value, err := disposalWords.unmarshal(text)
	if err != nil {
		value = uint8(DisposalUnknown)
	}
	*c = DisposalCode(value)
	return nil
}

// precedence puts the code that tells most first.
func (c DisposalCode) precedence() int {
	if c == DisposalUnknown || !disposalWords.has(uint8(c)) {
		return len(disposalWords.names)
	}
	return int(c)
}

// DisposalFailure says that a sandbox is not confirmed gone. It must be taken
// for alive until a later disposal succeeds.
type DisposalFailure struct {
	// Code is why.
	Code DisposalCode `json:"code"`
	// Detail is the same in words, for operators.
	Detail string `json:"detail"`
}

// Error is the code and the detail, as "code: detail".
func (f *DisposalFailure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Detail) }

// AsDisposalFailure makes a failure of any error: the failure that it wraps, a
// time-out for a deadline that passed, else unknown with its text. It is nil
// for nil.
func AsDisposalFailure(err error) *DisposalFailure {
	var failure *DisposalFailure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, context.DeadlineExceeded):
		return &DisposalFailure{DisposalTimeout, err.Error()}
	}
	return &DisposalFailure{DisposalUnknown, err.Error()}
}

// FoldFailures makes one failure of many: the code that comes first in the
// order unreachable, timeout, refused, unlisted, unknown, and all details in
// the order given. It is nil when there are none; nil arguments do not count.
func FoldFailures(failures ...*DisposalFailure) *DisposalFailure {
	failures = slices.DeleteFunc(slices.Clone(failures), func(f *DisposalFailure) bool { return f == nil })
	if len(failures) == 0 {
		return nil
	}
	code := DisposalUnknown
	var details []string
	for _, failure := range failures {
		if failure.Code.precedence() < code.precedence() {
			code = failure.Code
		}
		if failure.Detail != "" {
			details = append(details, failure.Detail)
		}
	}
	return &DisposalFailure{code, strings.Join(details, "; ")}
}

// ScopePurge is what came of disposing of all sandboxes of a conversation.
type ScopePurge struct {
	// Disposed counts the sandboxes that are confirmed gone.
	Disposed int `json:"disposed"`
	// Undisposed folds the failures of all that are not; nil when all are.
	Undisposed *DisposalFailure `json:"undisposed"`
}

// Err is the failure as an error: nil when every sandbox is confirmed gone.
func (p ScopePurge) Err() error {
	if p.Undisposed == nil {
		return nil
	}
	return p.Undisposed
}

// DisposeOptions narrow a disposal. The zero value means every sandbox of the
// key.
type DisposeOptions struct {
	// Kind is the kind of sandbox; empty means every kind.
	Kind string
	// InstanceID is the generation that is meant; empty means whichever is
	// there. An id that is no longer the sandbox's is a no-op: it never
	// selects the replacement.
	InstanceID string
}
