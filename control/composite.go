package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
)

// Member is one host of a [Composite].
type Member struct {
	// SourceID is the host's name.
	SourceID string
	// Control is how the host is asked.
	Control Control
}

// Composite is the [Control] of several hosts together. Every operation has one
// deadline over all hosts; a host that answers later is not listened to, and
// what it did is never reported as done.
type Composite struct {
	members []Member
	absent  []*HostError
	// inventoryTime bounds a question to all hosts.
	inventoryTime time.Duration
}

var _ Control = (*Composite)(nil)

// NewComposite makes one control of many. The absent are hosts that are known
// to exist and cannot be asked: an inventory without them is incomplete.
func NewComposite(members []Member, absent []*HostError) *Composite {
	// A host that is late says so itself, after the time that it was given and
	// both of its allowances: see run.
	return &Composite{slices.Clone(members), slices.Clone(absent), DefaultHostTimeout + 2*settlement}
}

// PartialError says that not every host could be asked. An inventory or a
// sandbox that comes with it is from the others.
type PartialError struct {
	// Hosts are the failures, those that were known before first.
	Hosts []*HostError
}

// Error counts the hosts.
func (e *PartialError) Error() string {
	return fmt.Sprintf("inventory is incomplete on %d host(s)", len(e.Hosts))
}

// Unwrap gives the failures.
func (e *PartialError) Unwrap() []error {
	causes := make([]error, len(e.Hosts))
	for i, host := range e.Hosts {
		causes[i] = host
	}
	return causes
}

// unknown are the failures of hosts that may still have sandboxes. A host that
// is proved to have ended (see [ErrGone]) has none: its sandboxes end with it.
func unknown(failures []*HostError) []*HostError {
	return slices.DeleteFunc(slices.Clone(failures), func(host *HostError) bool { return errors.Is(host, ErrGone) })
}

func asHostError(sourceID string, err error) *HostError {
	var host *HostError
	if errors.As(err, &host) {
		return host
	}
	return &HostError{SourceID: sourceID, Message: err.Error(), Cause: err}
}

// said is what a member answered, by its index. A member without one was not
// done when the deadline passed.
type said[T any] struct {
	value T
	err   error
}

// askAll asks every member at once and waits until all have answered, the
// context ends, or the time is over. Members are then told to end and left
// alone: their answers no longer count.
func askAll[T any](ctx context.Context, members []Member, limit time.Duration, ask func(context.Context, Control) (T, error)) map[int]said[T] {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type indexed struct {
		index int
		said  said[T]
	}
	answers := make(chan indexed, len(members))
	for i, member := range members {
		go func() {
			value, err := ask(ctx, member.Control)
			answers <- indexed{i, said[T]{value, err}}
		}()
	}
	all := make(map[int]said[T], len(members))
	for len(all) < len(members) {
		select {
		case a := <-answers:
			// What comes when the time is over is late, also by a little.
			if ctx.Err() != nil {
				return all
			}
			all[a.index] = a.said
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// inventory asks all hosts for their sandboxes. The failures are those of the
// hosts that did not answer well, the absent ones first.
func (c *Composite) inventory(ctx context.Context, limit time.Duration) (lists map[int][]Record, failures []*HostError, pending int) {
	answers := askAll(ctx, c.members, limit, func(ctx context.Context, control Control) ([]Record, error) { return control.List(ctx) })
	failures = slices.Clone(c.absent)
	lists = make(map[int][]Record, len(answers))
	for i, member := range c.members {
		switch a, there := answers[i]; {
		case !there:
			pending++
			failures = append(failures, &HostError{
				SourceID: member.SourceID, Cause: context.DeadlineExceeded,
				Message: "host did not respond before the inventory deadline",
			})
		case a.err != nil:
			failures = append(failures, asHostError(member.SourceID, a.err))
		default:
			lists[i] = a.value
		}
	}
	return lists, failures, pending
}

// List is the inventory of all hosts, sorted. When hosts are missing in it, the
// error is a [*PartialError] and the records are those of the others.
func (c *Composite) List(ctx context.Context) ([]Record, error) {
	lists, failures, _ := c.inventory(ctx, c.inventoryTime)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var records []Record
	for _, list := range lists {
		records = append(records, list...)
	}
	slices.SortFunc(records, Record.Compare)
	if len(failures) > 0 {
		return records, &PartialError{failures}
	}
	return records, nil
}

// Get finds a sandbox on the host that has it. When other hosts cannot be asked,
// the error is a [*PartialError] beside what was found, if anything was: they may
// have the id too.
func (c *Composite) Get(ctx context.Context, instanceID string) (Record, bool, error) {
	type found struct {
		record Record
		there  bool
	}
	answers := askAll(ctx, c.members, c.inventoryTime, func(ctx context.Context, control Control) (found, error) {
		record, there, err := control.Get(ctx, instanceID)
		return found{record, there}, err
	})
	failures := slices.Clone(c.absent)
	var matches []Record
	for i, member := range c.members {
		switch a, answered := answers[i]; {
		case !answered:
			failures = append(failures, &HostError{
				SourceID: member.SourceID, Cause: context.DeadlineExceeded, Message: "host did not respond in time",
			})
		case a.err != nil:
			failures = append(failures, asHostError(member.SourceID, a.err))
		case a.value.there:
			matches = append(matches, a.value.record)
		}
	}
	switch {
	case ctx.Err() != nil:
		return Record{}, false, ctx.Err()
	case len(matches) > 1:
		return Record{}, false, severalHosts(instanceID)
	}
	var record Record
	if len(matches) == 1 {
		record = matches[0]
	}
	if len(failures) > 0 {
		return record, len(matches) == 1, &PartialError{failures}
	}
	return record, len(matches) == 1, nil
}

func severalHosts(instanceID string) error {
	return &HostError{Message: fmt.Sprintf("instance id %q is reported by several hosts", wirejson.Cut(instanceID, maxQuoted)), Cause: ErrDuplicate}
}

// Dispose finds the one host that has the sandbox and has it dispose of it.
// Unless every host answered and exactly one has it, nothing is disposed of; an
// id that several hosts have is an error that matches [ErrDuplicate]. A host that
// is gone ([ErrGone]) needs not answer.
func (c *Composite) Dispose(ctx context.Context, instanceID string, timeout time.Duration) (DisposalResult, error) {
	timeout = bounded(timeout)
	deadline := time.Now().Add(timeout)
	lists, failures, pending := c.inventory(ctx, timeout)
	if err := ctx.Err(); err != nil {
		return DisposalResult{}, err
	}
	failures = unknown(failures)
	locating := disposalFailed(instanceID, "Disposal timed out while locating the owning host.")
	if pending > 0 {
		return locating, nil
	}
	var owners []Member
	for i, member := range c.members {
		if _, count := pick(lists[i], instanceID); count > 0 {
			owners = append(owners, member)
		}
	}
	switch {
	case len(owners) > 1:
		return DisposalResult{}, severalHosts(instanceID)
	case len(owners) == 0 && len(failures) > 0:
		return disposalFailed(instanceID, fmt.Sprintf("Sandbox owner could not be confirmed on %d unavailable host(s).", len(failures))), nil
	case len(owners) == 0:
		return notFound(instanceID, sayGone), nil
	case len(failures) > 0:
		return disposalFailed(instanceID, fmt.Sprintf("Sandbox ownership could not be confirmed on %d unavailable host(s).", len(failures))), nil
	}
	remaining := time.Until(deadline)
	if remaining <= 0 {
		return locating, nil
	}
	answers := askAll(ctx, owners, remaining, func(ctx context.Context, control Control) (DisposalResult, error) {
		// Scheduling may have taken what was left.
		remaining := time.Until(deadline)
		if remaining <= 0 || ctx.Err() != nil {
			return locating, nil
		}
		return control.Dispose(ctx, instanceID, remaining)
	})
	answer, answered := answers[0]
	switch {
	case ctx.Err() != nil:
		return DisposalResult{}, ctx.Err()
	case !answered || errors.Is(answer.err, context.DeadlineExceeded) || time.Now().After(deadline):
		return disposalFailed(instanceID, "Disposal timed out while invoking the owning host."), nil
	}
	return answer.value, answer.err
}

const sayNobody = "No responsive MAF host could confirm the purge."

// Purge has every host purge the conversation. It is purged only when every
// host that is known says so, apart from those that are gone ([ErrGone]).
func (c *Composite) Purge(ctx context.Context, scope, threadID string, timeout time.Duration) (PurgeResult, error) {
	timeout = bounded(timeout)
	result := PurgeResult{Status: PurgePartial, Scope: scope, ThreadID: threadID}
	if len(c.members) == 0 {
		result.Message = sayNobody
		return result, nil
	}
	answers := askAll(ctx, c.members, timeout, func(ctx context.Context, control Control) (PurgeResult, error) {
		return control.Purge(ctx, scope, threadID, timeout)
	})
	if err := ctx.Err(); err != nil {
		return PurgeResult{}, err
	}
	failures, confirmed := len(unknown(c.absent)), 0
	for _, answer := range answers {
		if errors.Is(answer.err, ErrGone) {
			continue
		}
		// A number that no host can have is not what the host did.
		believed := answer.err == nil && answer.value.counts()
		if believed {
			result.Disposed += answer.value.Disposed
		}
		if !believed || answer.value.Status != Purged {
			failures++
		} else {
			confirmed++
		}
	}
	switch pending := len(c.members) - len(answers); {
	case pending > 0 && failures > 0:
		result.Message = fmt.Sprintf("Conversation purge timed out before %d host(s) responded; %d other host failure(s) were reported.", pending, failures)
	case pending > 0:
		result.Message = fmt.Sprintf("Conversation purge timed out before %d host(s) responded.", pending)
	case failures > 0:
		result.Message = fmt.Sprintf("Conversation purge was incomplete on %d host(s).", failures)
	case confirmed == 0:
		result.Message = sayNobody
	default:
		result.Status = Purged
		result.Message = fmt.Sprintf("Conversation purged across %d host(s).", confirmed)
	}
	return result, nil
}
