package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/places"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// HostConfig is what a [Host] needs. SourceID, Monitors and Router are required.
type HostConfig struct {
	// SourceID is the host's name for itself, for operators.
	SourceID string
	// Monitors are the router's backends. What others give is not seen.
	Monitors []*Monitor
	// Router is the one that serves the host's calls.
	Router Router

	// Quiesce keeps new work for the key from starting, on every replica of
	// the host, waits for the work that is under way, and returns a function
	// that lets work start again. It returns early when the context ends. When
	// it is nil, the host cannot promise that, and exact disposal is refused.
	// Package control/fence has one that stops the work instead.
	Quiesce func(ctx context.Context, key sandbox.Key) (release func(), err error)
	// Purge disposes of a conversation through the router, under the same
	// kind of promise for the whole conversation. It returns early when the
	// context ends. When it is nil, purges are refused.
	Purge func(ctx context.Context, scope, threadID string) (sandbox.ScopePurge, error)
}

// Host is the [Control] of a host over its own router. An operator's wish goes
// the way of the host's own work: under the host's quiescence, through the
// router's policy, and confirmed only by what the monitors observed.
type Host struct{ config HostConfig }

var _ Control = (*Host)(nil)

// NewHost checks the configuration; all problems are reported at once and match
// [ErrConfig].
func NewHost(config HostConfig) (*Host, error) {
	var problems []error
	if err := checkSourceID(config.SourceID); err != nil {
		problems = append(problems, err)
	}
	if len(config.Monitors) == 0 || slices.Contains(config.Monitors, nil) {
		problems = append(problems, fmt.Errorf("%w: monitors are needed, and none may be nil", ErrConfig))
	}
	if config.Router == nil {
		problems = append(problems, fmt.Errorf("%w: a router is needed", ErrConfig))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	config.Monitors = slices.Clone(config.Monitors)
	return &Host{config}, nil
}

// errOwnTimeout tells the end of an operation's own time from that of its
// caller's.
var errOwnTimeout = errors.New("time of the control operation is over")

func (h *Host) inventory() []entry {
	var entries []entry
	for _, monitor := range h.config.Monitors {
		entries = append(entries, monitor.inventory(h.config.SourceID)...)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.place.Compare(b.place) })
	return entries
}

// List is what is visible now, by scope, thread, agent, call and kind.
func (h *Host) List(ctx context.Context) ([]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries := h.inventory()
	records := make([]Record, len(entries))
	for i, e := range entries {
		records[i] = e.record
	}
	return records, nil
}

// Get is the visible sandbox with the id.
func (h *Host) Get(ctx context.Context, instanceID string) (Record, bool, error) {
	records, err := h.List(ctx)
	if err != nil {
		return Record{}, false, err
	}
	return single(records, instanceID)
}

// find gives the visible sandboxes with the id.
func (h *Host) find(instanceID string) []entry {
	return slices.DeleteFunc(h.inventory(), func(e entry) bool { return e.record.InstanceID != instanceID })
}

// Dispose disposes of exactly the sandbox with the id: inside of quiescence the
// generation is looked at again, and only the exit of its worker confirms the
// disposal. It is disposed only if all of that was within the timeout. An error
// means that the caller gave up or that quiescence failed.
func (h *Host) Dispose(ctx context.Context, instanceID string, timeout time.Duration) (DisposalResult, error) {
	timeout = bounded(timeout)
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errOwnTimeout)
	defer cancel()
	result, err := h.dispose(ctx, instanceID, deadline)
	switch over := errors.Is(context.Cause(ctx), errOwnTimeout); {
	case !over && ctx.Err() != nil:
		return DisposalResult{}, ctx.Err()
	case over || !time.Now().Before(deadline): // the router's clock may have been sooner than the context's
		return disposalFailed(instanceID, "Disposal timed out and was not confirmed."), nil
	}
	return result, err
}

func (h *Host) dispose(ctx context.Context, instanceID string, deadline time.Time) (DisposalResult, error) {
	before := h.find(instanceID)
	switch {
	case len(before) > 1:
		return disposalFailed(instanceID, sayDuplicate), nil
	case len(before) == 0:
		return notFound(instanceID, sayGone), nil
	case h.config.Quiesce == nil:
		return disposalFailed(instanceID, "Exact disposal is disabled because the host did not configure a quiescence boundary."), nil
	}
	at := before[0].place
	release, err := h.config.Quiesce(ctx, at.Key)
	if release != nil {
		defer release()
	}
	if err != nil {
		return DisposalResult{}, fmt.Errorf("quiesce %s: %w", at.Key, err)
	}
	// A quiescence that came too late is not used.
	if err := ctx.Err(); err != nil {
		return DisposalResult{}, err
	}
	current := h.find(instanceID)
	switch {
	case len(current) > 1:
		return disposalFailed(instanceID, sayDuplicate), nil
	case len(current) == 0 || current[0].place != at:
		return notFound(instanceID, sayChanged), nil
	}
	r := &receipt{key: at.Key, options: sandbox.DisposeOptions{Kind: at.Kind, InstanceID: instanceID}}
	err = h.config.Router.DisposeKind(withReceipt(ctx, r), at.Key, at.Kind, instanceID, max(time.Nanosecond, time.Until(deadline)))
	if err != nil {
		return disposalFailed(instanceID, "A registered backend reported a disposal failure."), nil
	}
	return h.verdict(at, instanceID, r), nil
}

const sayChanged = "The sandbox generation changed before disposal could be confirmed."

// verdict judges a disposal that no backend failed, by what is left.
func (h *Host) verdict(at places.Place, instanceID string, r *receipt) DisposalResult {
	listed, replaced := false, false
	for _, e := range h.inventory() {
		if e.record.InstanceID == instanceID {
			listed = true
		} else if e.place == at {
			replaced = true
		}
	}
	answers, observed := r.read()
	switch {
	case listed:
		return disposalFailed(instanceID, "Disposal was not confirmed; the backend retained the sandbox for retry.")
	case observed > 0:
		return DisposalResult{Disposed, instanceID, sayDisposed}
	case replaced:
		return notFound(instanceID, sayChanged)
	case answers > 0:
		return notFound(instanceID, sayGone)
	}
	return disposalFailed(instanceID, "Disposal completed without a matching backend receipt.")
}

// Purge has the host's callback purge the conversation. It is purged when the
// callback reports no failure, within the timeout, and the monitors know of
// nothing that is left. An error means that the caller gave up or that the
// callback failed.
func (h *Host) Purge(ctx context.Context, scope, threadID string, timeout time.Duration) (PurgeResult, error) {
	timeout = bounded(timeout)
	partial := func(disposed int, message string) PurgeResult {
		return PurgeResult{PurgePartial, scope, threadID, disposed, message}
	}
	if h.config.Purge == nil {
		return partial(0, "Conversation purge is disabled because the host did not configure a quiescence boundary."), nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errOwnTimeout)
	defer cancel()
	purge, err := h.config.Purge(ctx, scope, threadID)
	if err != nil {
		purge = sandbox.ScopePurge{}
	}
	retained := slices.ContainsFunc(h.config.Monitors, func(m *Monitor) bool { return m.retains(scope, threadID) })
	switch {
	case errors.Is(context.Cause(ctx), errOwnTimeout):
		return partial(purge.Disposed, "Conversation purge timed out and was not confirmed."), nil
	case ctx.Err() != nil:
		return PurgeResult{}, ctx.Err()
	case err != nil:
		return PurgeResult{}, fmt.Errorf("purge: %w", err)
	case purge.Undisposed != nil:
		return partial(purge.Disposed, "Conversation purge was not confirmed: "+purge.Undisposed.Detail), nil
	case retained:
		return partial(purge.Disposed, "Conversation purge was not confirmed: matching sandboxes remain"), nil
	}
	return PurgeResult{Purged, scope, threadID, purge.Disposed, sayPurged}, nil
}
