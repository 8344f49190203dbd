package sandbox

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
)

// words are the protocol's names of an enumeration's values, by value. An
// empty name at zero stands for "not set".
type words struct {
	// what the enumeration is, for error texts
	what  string
	names []string
}

// UnknownWordError is a word that an enumeration of the protocol lacks.
type UnknownWordError struct {
	// What names the enumeration, such as "isolation".
	What string
	// Word is the foreign text, cut to a bounded length.
	Word string
	// Allowed are the words that exist.
	Allowed []string
}

// Error names the word and the words that exist.
func (e *UnknownWordError) Error() string {
	return fmt.Sprintf("%q is no %s; known: %s", e.Word, e.What, strings.Join(e.Allowed, ", "))
}

// Is says that an unknown word is an invalid value.
func (e *UnknownWordError) Is(target error) bool { return target == ErrInvalid || target == ErrRefused }

func (w *words) text(value uint8) string {
	if int(value) < len(w.names) {
		return w.names[value]
	}
	return fmt.Sprintf("%s(%d)", w.what, value)
}

func (w *words) has(value uint8) bool { return int(value) < len(w.names) }

func (w *words) marshal(value uint8) ([]byte, error) {
	if !w.has(value) {
		return nil, w.unknown(w.text(value))
	}
	return []byte(w.names[value]), nil
}

func (w *words) unmarshal(text []byte) (uint8, error) {
	for value, name := range w.names {
		if string(text) == name {
			return uint8(value), nil
		}
	}
	return 0, w.unknown(string(text))
}

func (w *words) unknown(word string) *UnknownWordError {
	allowed := make([]string, 0, len(w.names))
	for _, name := range w.names {
		if name != "" {
			allowed = append(allowed, name)
		}
	}
	return &UnknownWordError{What: w.what, Word: cut(word), Allowed: allowed}
}

// maxQuoted bounds how much of a foreign text an error repeats, in bytes.
const maxQuoted = 100

// cut bounds foreign text for an error message.
func cut(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "..."
}

// Word is an enumeration of the protocol whose values can be in a [Set].
type Word interface {
	Capability | IsolationScope | Egress | Identity | OSFamily | AuthorityChannel
	fmt.Stringer
}

// Set is a set of words. Its zero value is the empty set, and sets compare
// with ==.
type Set[W Word] struct{ bits uint64 }

// SetOf makes a set of its arguments.
func SetOf[W Word](members ...W) Set[W] {
	var set Set[W]
	for _, member := range members {
		set.bits |= 1 << (uint(member) & 63)
	}
	return set
}

// Has says whether the word is a member.
func (s Set[W]) Has(member W) bool { return s.bits&(1<<(uint(member)&63)) != 0 }

// With is the set and the words.
func (s Set[W]) With(members ...W) Set[W] { return s.Union(SetOf(members...)) }

// Union is what is in either set.
func (s Set[W]) Union(other Set[W]) Set[W] { return Set[W]{s.bits | other.bits} }

// Intersect is what is in both sets.
func (s Set[W]) Intersect(other Set[W]) Set[W] { return Set[W]{s.bits & other.bits} }

// Minus is what the set has and the other lacks.
func (s Set[W]) Minus(other Set[W]) Set[W] { return Set[W]{s.bits &^ other.bits} }

// IsEmpty says whether the set has no member.
func (s Set[W]) IsEmpty() bool { return s.bits == 0 }

// Len counts the members.
func (s Set[W]) Len() int { return bits.OnesCount64(s.bits) }

// Members are the words of the set, in the order of the protocol.
func (s Set[W]) Members() []W {
	members := make([]W, 0, s.Len())
	for rest := s.bits; rest != 0; rest &= rest - 1 {
		members = append(members, W(bits.TrailingZeros64(rest)))
	}
	return members
}

// String lists the members, separated by commas; "none" when there are none.
func (s Set[W]) String() string {
	if s.IsEmpty() {
		return "none"
	}
	var names []string
	for _, member := range s.Members() {
		names = append(names, member.String())
	}
	return strings.Join(names, ", ")
}

// MarshalJSON is the members as a list of words.
func (s Set[W]) MarshalJSON() ([]byte, error) { return json.Marshal(s.Members()) }

// UnmarshalJSON takes a list of words; every word must be known.
func (s *Set[W]) UnmarshalJSON(data []byte) error {
	var members []W
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	*s = SetOf(members...)
	return nil
}
