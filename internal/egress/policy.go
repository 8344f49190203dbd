package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// MaxHosts is how many hosts a policy lists at most: as many as the original
// backend serves.
const MaxHosts = 512

// defaultMethods are those of a rule that names none.
var defaultMethods = []string{"GET", "POST"}

// RuleMethods are the methods that a rule may name, for a backend's
// declarations. A rule that names none has GET and POST.
func RuleMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
}

// Policy says which requests a sandbox may make. It does not change. A nil
// policy allows nothing.
type Policy struct {
	hosts map[sandbox.Host]permission
	// names are the hosts in order, for refusals.
	names []string
}

// permission is what one host was given.
type permission struct {
	methods []string
	// addr is valid when the host is a literal: exactly this may be dialled.
	addr netip.Addr
	// private opens private, loopback, shared and the host's own addresses to the
	// name.
	private bool
}

// NewPolicy makes the policy of a spec: nothing when its egress is closed, its
// hosts when it has a list. The hosts in private, which the operator names and
// the spec must list, may be on private, loopback and shared addresses and on the
// host's own too; a listed literal address needs no such permission. The error holds a
// [*sandbox.RefusalError] for each thing that cannot be enforced, as [Unserved]
// finds them, in the decider's name.
func NewPolicy(decider string, spec sandbox.Spec, private ...sandbox.Host) (*Policy, error) {
	if err := Unserved(decider, spec); err != nil {
		return nil, err
	}
	p := &Policy{hosts: make(map[sandbox.Host]permission, len(spec.EgressAllow))}
	for _, rule := range spec.EgressRules() {
		methods := defaultMethods
		if rule.Methods != nil {
			methods = slices.Clone(rule.Methods)
		}
		addr, _ := literal(rule.Host)
		p.hosts[rule.Host] = permission{methods: methods, addr: addr, private: slices.Contains(private, rule.Host)}
		p.names = append(p.names, rule.Host.String())
	}
	var problems []error
	for _, host := range private {
		if _, listed := p.hosts[host]; !listed {
			problems = append(problems, &sandbox.RefusalError{
				Reason: sandbox.ErrInvalid, Subject: "private egress", Asked: fmt.Sprintf("%q", host.String()),
				Allowed: "a host that the sandbox's egress rules list", Decider: decider,
			})
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return p, nil
}

// Unserved says why a spec's egress cannot be enforced here, every reason at
// once: unrestricted, identities, wildcards, too many hosts, methods beyond
// [RuleMethods], and addresses that are none or are not one host. It is nil
// when it can. Each reason is a [*sandbox.RefusalError] that names the decider.
func Unserved(decider string, spec sandbox.Spec) error {
	var problems []error
	refuse := func(reason error, subject, asked, allowed string) {
		problems = append(problems, &sandbox.RefusalError{Reason: reason, Subject: subject, Asked: asked, Allowed: allowed, Decider: decider})
	}
	switch {
	case spec.Egress == sandbox.EgressClosed && len(spec.EgressAllow) == 0:
		return nil
	case spec.Egress != sandbox.EgressAllowlist:
		refuse(sandbox.ErrEgressNotEnforced, "spec.egress",
			fmt.Sprintf("%s with %d rules", spec.Egress, len(spec.EgressAllow)), "closed without rules, or allowlist")
		return errors.Join(problems...)
	}
	seen := make(map[sandbox.Host]sandbox.EgressRule, min(len(spec.EgressAllow), MaxHosts))
	for i, rule := range spec.EgressAllow {
		subject := fmt.Sprintf("spec.egress_allow[%d]", i)
		if err := rule.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", subject, err))
			continue
		}
		if first, again := seen[rule.Host]; again && !first.Equal(rule) {
			refuse(sandbox.ErrInvalid, subject, fmt.Sprintf("a rule for %s that contradicts an earlier one", rule.Host), "one rule for each host")
		}
		seen[rule.Host] = rule
		if rule.Authority != sandbox.IdentityUnset {
			refuse(sandbox.ErrEgressNotEnforced, subject+".authority", rule.Authority.String(), "rules without an identity")
		}
		for _, method := range rule.Methods {
			if !slices.Contains(RuleMethods(), method) {
				refuse(sandbox.ErrEgressNotEnforced, subject+".methods", method, strings.Join(RuleMethods(), ", "))
			}
		}
		switch addr, canonical := literal(rule.Host); {
		case rule.Host.IsWildcard():
			refuse(sandbox.ErrEgressNotEnforced, subject+".host", rule.Host.String(), "exact hosts")
		case !canonical:
			refuse(sandbox.ErrEgressNotEnforced, subject+".host", rule.Host.String(), "an address as four decimal numbers without leading zeros")
		case addr.IsValid() && !Classify(addr).dialable():
			refuse(sandbox.ErrEgressNotEnforced, subject+".host", fmt.Sprintf("%s (%s)", addr, Classify(addr)), "the address of one host")
		}
	}
	if len(seen) > MaxHosts {
		refuse(sandbox.ErrEgressNotEnforced, "spec.egress_allow", fmt.Sprintf("%d hosts", len(seen)), fmt.Sprintf("up to %d", MaxHosts))
	}
	return errors.Join(problems...)
}

// Decide judges a request by its text alone: nothing is looked up. It has an
// answer for every text.
func (p *Policy) Decide(method, url string) Decision {
	target, reason := parseTarget(url)
	if reason == ReasonAllowed {
		reason = p.judge(method, target)
	}
	return Decision{Reason: reason, Target: target}
}

func (p *Policy) judge(method string, target Target) Reason {
	switch {
	case !isMethod(method):
		return ReasonMethodMalformed
	case method == "CONNECT" || method == "TRACE":
		return ReasonMethodNever
	case p == nil || len(p.hosts) == 0:
		return ReasonClosed
	}
	// An IPv6 literal has no host and so is never listed.
	permission, listed := p.hosts[target.host]
	switch {
	case !listed:
		return ReasonHostNotListed
	case !slices.Contains(permission.methods, method):
		return ReasonMethodNotListed
	default:
		return ReasonAllowed
	}
}

// Judge says what kind of place an address is and whether a request for the
// target may be sent there: to a public one, to exactly the address that the
// target itself is, or to a private one when the operator allowed that for this
// host. A target that is not listed may be sent nowhere.
func (p *Policy) Judge(target Target, addr netip.Addr) (Class, bool) {
	class := Classify(addr)
	return class, p.judgeAs(target, addr, class)
}

// judgeAs is Judge of an address whose class is known.
func (p *Policy) judgeAs(target Target, addr netip.Addr, class Class) bool {
	if p == nil {
		return false
	}
	permission, listed := p.hosts[target.host]
	switch {
	case !listed || !class.dialable():
		return false
	case permission.addr.IsValid():
		return addr == permission.addr
	default:
		return class == ClassPublic || permission.private && class.private()
	}
}

// maxMethodBytes is longer than any method that is registered.
const maxMethodBytes = 32

// isMethod accepts capital letters and hyphens, which all registered methods
// are made of. Methods are case-sensitive (RFC 9110, section 9.1): "get" is not
// GET, and servers differ in what they make of it.
func isMethod(method string) bool {
	if method == "" || len(method) > maxMethodBytes {
		return false
	}
	return strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}
