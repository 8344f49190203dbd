package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Egress is what a sandbox may reach. Zero is closed: nothing.
type Egress uint8

// The modes.
const (
	// EgressClosed: nothing.
	EgressClosed Egress = iota
	// EgressAllowlist: the hosts of [Spec.EgressAllow].
	EgressAllowlist
	// EgressUnrestricted: everything. Few backends offer it.
	EgressUnrestricted
)

var egressWords = words{"egress mode", []string{"closed", "allowlist", "unrestricted"}}

// String is the protocol's word.
func (e Egress) String() string { return egressWords.text(uint8(e)) }

// MarshalText is the protocol's word.
func (e Egress) MarshalText() ([]byte, error) { return egressWords.marshal(uint8(e)) }

// UnmarshalText takes the protocol's word.
func (e *Egress) UnmarshalText(text []byte) error { return take(&egressWords, text, e) }

// Bounds of one rule's methods. HTTP's own methods are fewer and shorter.
const (
	maxMethods     = 64
	maxMethodBytes = 64
)

// EgressRule lets a sandbox reach one host, or all hosts under a wildcard.
type EgressRule struct {
	// Host is where to.
	Host Host `json:"host"`
	// Methods are the HTTP methods allowed, in upper case and without
	// duplicates; nil leaves them to the backend (package microvm: GET and
	// POST). An empty list that is not nil is refused: it would be a rule that
	// allows nothing.
	Methods []string `json:"methods"`
	// Authority, when set, has the host add this identity's credentials to
	// requests; it needs a host that is no wildcard.
	Authority Identity `json:"authority,omitempty"`
}

// AllowHosts makes one rule for each host, without naming methods. It reports every
// name that is no host.
func AllowHosts(names ...string) ([]EgressRule, error) {
	rules := make([]EgressRule, 0, len(names))
	var problems []error
	for _, name := range names {
		host, err := ParseHost(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		rules = append(rules, EgressRule{Host: host})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return rules, nil
}

// Validate reports every problem of the rule, as [*RefusalError]s that match
// [ErrInvalid].
func (r EgressRule) Validate() error { return r.validate("rule") }

func (r EgressRule) validate(subject string) error {
	var problems []error
	refuse := func(field, asked, allowed string) {
		problems = append(problems, invalid(subject+"."+field, asked, allowed))
	}
	if r.Host.IsZero() {
		refuse("host", "none", "a host from ParseHost")
	}
	switch {
	case r.Methods == nil:
	case len(r.Methods) == 0:
		refuse("methods", "an empty list", "nil for every method, or at least one")
	case len(r.Methods) > maxMethods:
		refuse("methods", fmt.Sprintf("%d methods", len(r.Methods)), fmt.Sprintf("up to %d", maxMethods))
	default:
		for i, method := range r.Methods {
			field := fmt.Sprintf("methods[%d]", i)
			if !isMethod(method) {
				refuse(field, fmt.Sprintf("%q", cut(method)), "an HTTP method in upper case")
			} else if slices.Index(r.Methods, method) < i {
				refuse(field, fmt.Sprintf("%q again", method), "each method once")
			}
		}
	}
	switch {
	case !identityWords.has(uint8(r.Authority)):
		refuse("authority", r.Authority.String(), "app or user")
	case r.Authority != IdentityUnset && r.Host.IsWildcard():
		refuse("authority", fmt.Sprintf("%s for %s", r.Authority, r.Host), "a concrete host")
	}
	return errors.Join(problems...)
}

// Equal says whether both rules allow the same; the order of methods does not
// count.
func (r EgressRule) Equal(other EgressRule) bool {
	return r.Host == other.Host && r.Authority == other.Authority &&
		(r.Methods == nil) == (other.Methods == nil) &&
		slices.Equal(slices.Sorted(slices.Values(r.Methods)), slices.Sorted(slices.Values(other.Methods)))
}

// isMethod accepts a token of RFC 9110, section 5.6.2, without lower case.
func isMethod(method string) bool {
	if method == "" || len(method) > maxMethodBytes {
		return false
	}
	for _, c := range []byte(method) {
		upper := c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if !upper && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// foldRules sorts the rules by host and drops equal duplicates. It reports
// every host whose rules contradict each other.
func foldRules(rules []EgressRule) ([]EgressRule, error) {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b EgressRule) int { return cmp.Compare(a.Host.name, b.Host.name) })
	var problems []error
	folded := sorted[:0]
	for _, rule := range sorted {
		last := len(folded) - 1
		switch {
		case last < 0 || folded[last].Host != rule.Host:
			folded = append(folded, rule)
		case !folded[last].Equal(rule):
			problems = append(problems, invalid("spec.egress_allow",
				fmt.Sprintf("rules for %s that contradict each other", rule.Host), "one rule for each host"))
		}
	}
	return folded, errors.Join(problems...)
}
