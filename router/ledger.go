package router

import (
	"cmp"
	"slices"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// target is what a disposal was asked for and did not confirm.
type target struct {
	provider *provider
	options  sandbox.DisposeOptions
}

// covers says whether a disposal with the options reaches all that the other
// one would.
func covers(options, other sandbox.DisposeOptions) bool {
	return (options.Kind == "" || options.Kind == other.Kind) &&
		(options.InstanceID == "" || options.InstanceID == other.InstanceID)
}

// ledger has the keys whose earlier sandbox is not confirmed gone, each with
// what still has to be disposed of. A key whose last target is gone is clean.
// The zero value is empty and ready.
//
// Keys of single calls are not kept: there is no next acquire that could be
// refused, so that nobody would ever read or clear them.
type ledger struct {
	mu   sync.Mutex
	last uint64 // number of the newest mark
	keys map[sandbox.Key]map[target]mark
}

type mark struct {
	// number tells this mark from a later one of the same target, which a
	// disposal that began before it must not clear.
	number  uint64
	failure *sandbox.DisposalFailure // nil while none was tried
}

// claim is a target as it stood when a disposal began.
type claim struct {
	target
	number uint64
}

// mark refuses the key until the targets are disposed of.
func (l *ledger) mark(key sandbox.Key, failure *sandbox.DisposalFailure, targets ...target) {
	if key.CallID != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[sandbox.Key]map[target]mark)
	}
	if l.keys[key] == nil {
		l.keys[key] = make(map[target]mark)
	}
	for _, t := range targets {
		l.last++
		m := mark{l.last, failure}
		if failure == nil {
			m.failure = l.keys[key][t].failure
		}
		l.keys[key][t] = m
	}
}

// claims are the targets of the key that a disposal of the provider with these
// options covers, oldest first; of every provider when it is nil.
func (l *ledger) claims(key sandbox.Key, p *provider, options sandbox.DisposeOptions) []claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	var claims []claim
	for t, m := range l.keys[key] {
		if (p == nil || p == t.provider) && covers(options, t.options) {
			claims = append(claims, claim{t, m.number})
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.number, b.number) })
	return claims
}

// retire clears claims, except those that were marked again since.
func (l *ledger) retire(key sandbox.Key, claims []claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	targets := l.keys[key]
	for _, c := range claims {
		if targets[c.target].number == c.number {
			delete(targets, c.target)
		}
	}
	if len(targets) == 0 {
		delete(l.keys, key)
	}
}

// refusal is nil for a clean key.
func (l *ledger) refusal(key sandbox.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	targets, unclean := l.keys[key]
	if !unclean {
		return nil
	}
	marks := make([]mark, 0, len(targets))
	for _, m := range targets {
		marks = append(marks, m)
	}
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.number, b.number) })
	failures := make([]*sandbox.DisposalFailure, len(marks))
	for i, m := range marks {
		failures[i] = m.failure
	}
	return uncleanError(key, sandbox.FoldFailures(failures...))
}

// list are the unclean keys.
func (l *ledger) list() []sandbox.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]sandbox.Key, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, key)
	}
	return keys
}

func uncleanError(key sandbox.Key, failure *sandbox.DisposalFailure) error {
	refusal := &sandbox.RefusalError{
		Reason: sandbox.ErrUnclean, Subject: "key " + key.String(), Asked: "a sandbox",
		Allowed: "none until the earlier one is confirmed gone (Router.DisposeUnclean tries again)",
		Decider: "package router",
	}
	if failure != nil {
		refusal.Cause = failure
	}
	return refusal
}
