package control

import (
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// DisposalStatus is how an exact disposal ended.
type DisposalStatus string

// The ends of an exact disposal.
const (
	// Disposed: the sandbox was observed to be gone.
	Disposed DisposalStatus = "disposed"
	// NotFound: no sandbox has the id, or not any more.
	NotFound DisposalStatus = "not_found"
	// DisposalFailed: nothing is confirmed; it may still be there.
	DisposalFailed DisposalStatus = "failed"
)

// DisposalResult is what came of disposing of one sandbox.
type DisposalResult struct {
	// Status is how it ended.
	Status DisposalStatus
	// InstanceID is the id that was asked for.
	InstanceID string
	// Message is one sentence for people. A client got it from its host.
	Message string
}

// MarshalJSON writes the result, compact and in ASCII.
func (r DisposalResult) MarshalJSON() ([]byte, error) {
	var o pyjson.Object
	o.String("status", string(r.Status))
	o.String("instance_id", r.InstanceID)
	o.String("message", r.Message)
	return o.Bytes(), nil
}

// UnmarshalJSON reads a foreign result.
func (r *DisposalResult) UnmarshalJSON(data []byte) error {
	fields, err := wirejson.Parse(data)
	if err != nil {
		return err
	}
	var read DisposalResult
	status, err := fields.String("status")
	if err != nil {
		return err
	}
	switch read.Status = DisposalStatus(status); read.Status {
	case Disposed, NotFound, DisposalFailed:
	default:
		return &wirejson.FieldError{Field: "status", Want: fmt.Sprintf("%s, %s or %s", Disposed, NotFound, DisposalFailed)}
	}
	if err := readTexts(fields, textField{"instance_id", &read.InstanceID}); err != nil {
		return err
	}
	if read.Message, err = fields.String("message"); err != nil {
		return err
	}
	*r = read
	return nil
}

// PurgeStatus is how the purge of a conversation ended.
type PurgeStatus string

// The ends of a purge.
const (
	// Purged: nothing of the conversation is left.
	Purged PurgeStatus = "purged"
	// PurgePartial: something is left, or may be.
	PurgePartial PurgeStatus = "partial"
)

// PurgeResult is what came of disposing of all sandboxes of a conversation.
type PurgeResult struct {
	// Status is how it ended.
	Status PurgeStatus
	// Scope and ThreadID are the conversation that was asked for.
	Scope, ThreadID string
	// Disposed counts the sandboxes that are confirmed gone, at most
	// [MaxInventory] of one host.
	Disposed int
	// Message is one sentence for people. A client got it from its host.
	Message string
}

// counts says whether the number of sandboxes is one that a host can have: sums
// of such numbers do not overflow.
func (r PurgeResult) counts() bool { return r.Disposed >= 0 && r.Disposed <= MaxInventory }

// MarshalJSON writes the result, compact and in ASCII.
func (r PurgeResult) MarshalJSON() ([]byte, error) {
	var o pyjson.Object
	o.String("status", string(r.Status))
	o.String("scope", r.Scope)
	o.String("thread_id", r.ThreadID)
	o.Int("disposed", r.Disposed)
	o.String("message", r.Message)
	return o.Bytes(), nil
}

// UnmarshalJSON reads a foreign result.
func (r *PurgeResult) UnmarshalJSON(data []byte) error {
	fields, err := wirejson.Parse(data)
	if err != nil {
		return err
	}
	var read PurgeResult
	err = readTexts(fields, textField{"status", (*string)(&read.Status)}, textField{"scope", &read.Scope}, textField{"thread_id", &read.ThreadID})
	if err != nil {
		return err
	}
	if read.Status != Purged && read.Status != PurgePartial {
		return &wirejson.FieldError{Field: "status", Want: fmt.Sprintf("%s or %s", Purged, PurgePartial)}
	}
	if read.Message, err = fields.String("message"); err != nil {
		return err
	}
	if read.Disposed, err = fields.Int("disposed"); err != nil {
		return err
	}
	if !read.counts() {
		return &wirejson.FieldError{Field: "disposed", Want: fmt.Sprintf("0 to %d", MaxInventory)}
	}
	*r = read
	return nil
}
