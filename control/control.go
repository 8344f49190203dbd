package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
)

// DefaultTimeout is the time of a disposal or purge that names none, and a
// server's upper bound when its configuration names none.
const DefaultTimeout = 10 * time.Second

// MaxTimeout is what a longer time of an operation is cut to. Nobody waits for
// more, and a time with its allowances does not overflow.
const MaxTimeout = 365 * 24 * time.Hour

// bounded is the time of an operation for which a caller gave one, or none.
func bounded(timeout time.Duration) time.Duration {
	return min(cmp.Or(timeout, DefaultTimeout), MaxTimeout)
}

// settlement is what an operation that ran out of time is given to end before
// it is left to itself. The protocol's first implementation waits as long.
const settlement = 100 * time.Millisecond

// Control sees and removes sandboxes. A [Host] is one, a [Client] and a
// [Composite] are. All methods may be called at the same time.
//
// Results are about the sandboxes; an error says that the question could not be
// put or answered, and that nothing is known, but for a [*PartialError].
type Control interface {
	// List is the inventory now.
	List(ctx context.Context) ([]Record, error)
	// Get is the sandbox with the id, and false when there is none. An id that
	// more than one sandbox has is an error that matches ErrDuplicate.
	Get(ctx context.Context, instanceID string) (Record, bool, error)
	// Dispose disposes of exactly the sandbox with the id. The timeout bounds
	// everything and begins now; zero means DefaultTimeout.
	Dispose(ctx context.Context, instanceID string, timeout time.Duration) (DisposalResult, error)
	// Purge disposes of all sandboxes of a conversation. The timeout bounds
	// everything and begins now; zero means DefaultTimeout.
	Purge(ctx context.Context, scope, threadID string, timeout time.Duration) (PurgeResult, error)
}

// The sentences of the protocol that more than one place says.
const (
	sayGone         = "The sandbox is already gone or its generation changed."
	sayDisposed     = "Sandbox disposed."
	sayDuplicate    = "Duplicate physical instance id reported; exact disposal refused."
	sayPurged       = "Conversation purged."
	sayDuplicateGet = "duplicate physical instance id reported by this host"
)

func disposalFailed(instanceID, message string) DisposalResult {
	return DisposalResult{DisposalFailed, instanceID, message}
}

func notFound(instanceID, message string) DisposalResult {
	return DisposalResult{NotFound, instanceID, message}
}

// ErrDuplicate says that more than one sandbox has an id, so that it names none.
var ErrDuplicate = errors.New("instance id is reported more than once")

// single is what Get returns for an inventory.
func single(records []Record, instanceID string) (Record, bool, error) {
	record, count := pick(records, instanceID)
	switch count {
	case 0:
		return Record{}, false, nil
	case 1:
		return *record, true, nil
	}
	return Record{}, false, fmt.Errorf("%w: %q", ErrDuplicate, wirejson.Cut(instanceID, maxQuoted))
}

// pick is a record with the id, nil when there is none, and how many there are.
func pick(records []Record, instanceID string) (*Record, int) {
	var found *Record
	count := 0
	for i := range records {
		if records[i].InstanceID == instanceID {
			found = &records[i]
			count++
		}
	}
	return found, count
}
