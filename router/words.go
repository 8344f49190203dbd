package router

import (
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Selection is how a router finds the backend of a spec. Zero is fixed.
type Selection uint8

// The selections.
const (
	// SelectFixed: one backend serves everything, Config.Selected or else the
	// first.
	SelectFixed Selection = iota
	// SelectPerSpec: the first backend that can serve the spec. The order of
	// Config.Backends is the order of preference; load and health do not count.
	SelectPerSpec
)

var selectionWords = []string{"fixed", "per_spec"}

// String is the protocol's word.
func (s Selection) String() string { return text(selectionWords, "selection", s) }

// MarshalText is the protocol's word.
func (s Selection) MarshalText() ([]byte, error) { return marshal(selectionWords, "selection", s) }

// UnmarshalText takes the protocol's word.
func (s *Selection) UnmarshalText(word []byte) error {
	return unmarshal(selectionWords, "selection", word, s)
}

// ReclaimPolicy is what becomes of a sandbox that could not be cleaned after a
// call. Zero is dispose.
type ReclaimPolicy uint8

// The policies.
const (
	// ReclaimDispose disposes of it, and refuses its key until that is
	// confirmed.
	ReclaimDispose ReclaimPolicy = iota
	// ReclaimKeep leaves a sandbox that could not be reclaimed as it is, for
	// the next call, and refuses no key because of a disposal that failed. It
	// is for hosts that would rather see what is left than lose it. A sandbox
	// that the router does not know is still not handed out uncleaned.
	ReclaimKeep
)

var policyWords = []string{"dispose", "keep"}

// String is the protocol's word.
func (p ReclaimPolicy) String() string { return text(policyWords, "reclaim policy", p) }

// MarshalText is the protocol's word.
func (p ReclaimPolicy) MarshalText() ([]byte, error) {
	return marshal(policyWords, "reclaim policy", p)
}

// UnmarshalText takes the protocol's word.
func (p *ReclaimPolicy) UnmarshalText(word []byte) error {
	return unmarshal(policyWords, "reclaim policy", word, p)
}

// Adoption is how a router made sure that a sandbox holds nothing of anybody
// else when it handed it out.
type Adoption uint8

// The adoptions.
const (
	// AdoptionNone: nothing was handed out.
	AdoptionNone Adoption = iota
	// AdoptionKnown: the router handed this generation out before, or cleaned
	// it itself.
	AdoptionKnown
	// AdoptionFresh: the sandbox vouched that nothing has reached it.
	AdoptionFresh
	// AdoptionReset: it was reset first.
	AdoptionReset
	// AdoptionReplaced: it was disposed of, and another one created.
	AdoptionReplaced
	// AdoptionOwnCall: its key names a call, so that nobody else had it.
	AdoptionOwnCall
)

var adoptionWords = []string{"none", "known", "fresh", "reset", "replaced", "own_call"}

// String is the adoption in one word.
func (a Adoption) String() string { return text(adoptionWords, "adoption", a) }

// Outcome is what became of a sandbox after a call that could not be cleaned
// up as it should.
type Outcome uint8

// The outcomes.
const (
	// OutcomeDisposed: it is confirmed gone.
	OutcomeDisposed Outcome = iota
	// OutcomeUnconfirmed: it must be taken for alive.
	OutcomeUnconfirmed
	// OutcomeKept: it was left as it is, as [ReclaimKeep] says.
	OutcomeKept
)

var outcomeWords = []string{"disposed", "unconfirmed", "kept"}

// String is the outcome in one word.
func (o Outcome) String() string { return text(outcomeWords, "outcome", o) }

// ToolOutcome is how the call of a host's tool ended.
type ToolOutcome uint8

// The outcomes of calls.
const (
	// ToolReturned: it gave a result. Whether that fits into an answer is found out
	// later.
	ToolReturned ToolOutcome = iota
	// ToolFailed: it gave an error.
	ToolFailed
	// ToolPanicked: it panicked, or ended its goroutine.
	ToolPanicked
	// ToolAbandoned: nobody waited for it any more; it may go on.
	ToolAbandoned
)

var toolOutcomeWords = []string{"returned", "failed", "panicked", "abandoned"}

// String is the outcome in one word.
func (o ToolOutcome) String() string { return text(toolOutcomeWords, "outcome", o) }

func text[W ~uint8](words []string, what string, value W) string {
	if int(value) < len(words) {
		return words[value]
	}
	return "no " + what
}

func marshal[W ~uint8](words []string, what string, value W) ([]byte, error) {
	if int(value) < len(words) {
		return []byte(words[value]), nil
	}
	return nil, &sandbox.UnknownWordError{What: what, Word: text(words, what, value), Allowed: words}
}

// maxQuoted bounds how much of a foreign word an error repeats, in bytes.
const maxQuoted = 100

func unmarshal[W ~uint8](words []string, what string, word []byte, value *W) error {
	found := slices.Index(words, string(word))
	if found < 0 {
		quoted := strings.ToValidUTF8(string(word[:min(len(word), maxQuoted)]), "")
		return &sandbox.UnknownWordError{What: what, Word: quoted, Allowed: words}
	}
	*value = W(found)
	return nil
}
