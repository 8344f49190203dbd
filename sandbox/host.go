package sandbox

import (
	"fmt"
	"strings"
)

// MaxHostBytes is the longest host name: what DNS can hold (RFC 1035, section
// 2.3.4). A longer one could never be resolved.
const MaxHostBytes = 253

// maxLabelBytes is the longest part between two dots, from the same section.
const maxLabelBytes = 63

const hostGrammar = "dot-separated labels of ASCII letters, digits and inner hyphens, at most one leading *. before them"

// Host is the name of a host in an egress rule, checked and in lower case, so
// that equal hosts are equal values. The zero value is no host.
//
// A name is made of labels of letters, digits and hyphens (not at the ends)
// separated by dots, and may start with "*." to mean the hosts under it. No
// scheme, port, path, user, space, underscore, trailing dot, IPv6 address or
// text beyond ASCII is accepted. IPv4 addresses and "localhost" are names in
// this grammar: whether they may be reached, egress decides, not syntax.
type Host struct{ name string }

// ParseHost checks a host's name and brings it to lower case. The error is a
// [*RefusalError] that matches [ErrInvalid].
func ParseHost(text string) (Host, error) {
	refuse := func(asked, allowed string) (Host, error) {
		return Host{}, invalid("egress host", asked, allowed)
	}
	if len(text) > MaxHostBytes {
		return refuse(fmt.Sprintf("a name of %d bytes", len(text)), fmt.Sprintf("up to %d bytes", MaxHostBytes))
	}
	if text == "*" {
		return refuse(`"*"`, "named hosts; for all hosts the egress mode is unrestricted")
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(text, "*."), ".") {
		if !isLabel(label) {
			return refuse(fmt.Sprintf("%q", cut(text)), hostGrammar)
		}
	}
	return Host{strings.ToLower(text)}, nil
}

// MustHost is ParseHost for names that are constants of the program; it panics
// on others.
func MustHost(text string) Host {
	host, err := ParseHost(text)
	if err != nil {
		panic(err)
	}
	return host
}

func isLabel(label string) bool {
	if label == "" || len(label) > maxLabelBytes || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, c := range []byte(label) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && c != '-' {
			return false
		}
	}
	return true
}

// IsZero says whether this is no host.
func (h Host) IsZero() bool { return h.name == "" }

// IsWildcard says whether the name stands for the hosts under it.
func (h Host) IsWildcard() bool { return strings.HasPrefix(h.name, "*.") }

// String is the name in lower case; empty for the zero value.
func (h Host) String() string { return h.name }

// MarshalText is the name in lower case. The zero value is refused.
func (h Host) MarshalText() ([]byte, error) {
	if h.IsZero() {
		return nil, invalid("egress host", "none", hostGrammar)
	}
	return []byte(h.name), nil
}

// UnmarshalText is ParseHost.
func (h *Host) UnmarshalText(text []byte) error {
	// Checked before the copy, so that foreign text is never copied whole.
	if len(text) > MaxHostBytes {
		text = text[:MaxHostBytes+1]
	}
	host, err := ParseHost(string(text))
	if err != nil {
		return err
	}
	*h = host
	return nil
}
