package egress

import "fmt"

// Reason says why a request was or was not allowed. Zero refuses: a decision
// that nobody made allows nothing.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	ReasonUndecided Reason = iota
	// ReasonAllowed is the only one that allows.
	ReasonAllowed
	// ReasonURLTooLong: beyond MaxURLBytes.
	ReasonURLTooLong
	// ReasonURLMalformed: no absolute URL of visible ASCII without backslashes.
	ReasonURLMalformed
	// ReasonScheme: neither http nor https.
	ReasonScheme
	// ReasonCredentials: a user or a password before the host.
	ReasonCredentials
	// ReasonHostMalformed: the host is no name in the protocol's grammar and no
	// address in its one canonical spelling.
	ReasonHostMalformed
	// ReasonPort: another port than 80 for http and 443 for https.
	ReasonPort
	// ReasonMethodMalformed: no HTTP method in upper case.
	ReasonMethodMalformed
	// ReasonMethodNever: CONNECT and TRACE, which no rule can allow.
	ReasonMethodNever
	// ReasonClosed: the sandbox has no network.
	ReasonClosed
	// ReasonHostNotListed: no rule names the host.
	ReasonHostNotListed
	// ReasonMethodNotListed: the host's rule does not have the method.
	ReasonMethodNotListed
	reasonEnd
)

var reasonNames = [reasonEnd]string{
	ReasonUndecided: "undecided", ReasonAllowed: "allowed", ReasonURLTooLong: "URL too long",
	ReasonURLMalformed: "URL malformed", ReasonScheme: "scheme not allowed", ReasonCredentials: "credentials in the URL",
	ReasonHostMalformed: "host malformed", ReasonPort: "port not allowed", ReasonMethodMalformed: "method malformed",
	ReasonMethodNever: "method never allowed", ReasonClosed: "no network", ReasonHostNotListed: "host not listed",
	ReasonMethodNotListed: "method not listed",
}

// String is the reason in words.
func (r Reason) String() string {
	if r >= reasonEnd {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return reasonNames[r]
}

// malformed says whether the request means nothing, whatever the policy.
func (r Reason) malformed() bool {
	switch r {
	case ReasonURLTooLong, ReasonURLMalformed, ReasonHostMalformed, ReasonMethodMalformed:
		return true
	default:
		return false
	}
}

// Decision is what a policy says about a request.
type Decision struct {
	// Reason is why.
	Reason Reason
	// Target is where the request goes; zero unless the URL could be read.
	Target Target
}

// Allowed says whether the request may be made.
func (d Decision) Allowed() bool { return d.Reason == ReasonAllowed }
