package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Kind says how a request ended without an answer. Zero is none: there was an
// answer, whatever its status.
type Kind uint8

// The kinds. Their names are part of the messages to guests.
const (
	KindNone Kind = iota
	// KindPolicy: refused by its text; nothing was looked up.
	KindPolicy
	// KindName: the host's name has no address.
	KindName
	// KindLookup: whether it has one could not be learned.
	KindLookup
	// KindAddress: the name has addresses, but none that may be reached.
	KindAddress
	// KindConnect: no connection, or no complete answer over it.
	KindConnect
	// KindRefused: nobody listens at the host.
	KindRefused
	// KindTLS: the server did not prove to be the host.
	KindTLS
	// KindTimeout: the request's time was over.
	KindTimeout
	// KindTooLarge: the request or the answer is beyond a limit.
	KindTooLarge
	// KindMalformed: the request means nothing.
	KindMalformed
	// KindBusy: too many requests at once; nothing was sent.
	KindBusy
	// KindNoRoom: the host has no memory left for the answer, since it has so many
	// others; the request was sent.
	KindNoRoom
	kindEnd
)

var kindNames = [kindEnd]string{
	KindNone: "none", KindPolicy: "policy", KindName: "name", KindLookup: "lookup", KindAddress: "address",
	KindConnect: "connect", KindRefused: "refused",
	KindTLS: "tls", KindTimeout: "timeout", KindTooLarge: "too_large", KindMalformed: "malformed", KindBusy: "busy",
	KindNoRoom: "no_room",
}

// String is the kind's name in messages.
func (k Kind) String() string {
	if k >= kindEnd {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

// Error says how a request ended without an answer.
type Error struct {
	// Kind is never KindNone.
	Kind Kind
	// Reason is the policy's, with KindPolicy and some of KindMalformed.
	Reason Reason
	// Class is that of the first address, with KindAddress.
	Class Class
	// Connecting, with KindTimeout, says that it was the Request.ConnectTimeout.
	Connecting bool
	// Message is one short line of visible ASCII for the guest: what happened,
	// what is allowed and who decides.
	Message string
	// Cause is the error behind it, if any; it may tell more than a guest
	// should know.
	Cause error
}

// Error is the kind and the message.
func (e *Error) Error() string { return e.Kind.String() + ": " + e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// fail makes an error whose message may hold foreign text.
func fail(kind Kind, cause error, format string, a ...any) *Error {
	return &Error{Kind: kind, Message: plain(fmt.Sprintf(format, a...)), Cause: cause}
}

// ended makes the error of something that was going on: what the context says
// when it is done, since everything fails then, or else what went wrong itself.
func ended(ctx context.Context, kind Kind, cause error, format string, a ...any) *Error {
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(KindTimeout, errors.Join(ctx.Err(), cause), "the request's time is over")
	case ctx.Err() != nil:
		return fail(KindConnect, errors.Join(ctx.Err(), cause), "the request was given up with the run that made it")
	case errors.As(cause, &timeout) && timeout.Timeout():
		return fail(KindTimeout, cause, format+": no answer in time", a...)
	default:
		return fail(kind, cause, format, a...)
	}
}

// maxMessageBytes bounds a message: a line that a person still reads.
const maxMessageBytes = 512

// plain makes text one short line of visible ASCII.
func plain(text string) string {
	cut := false
	if len(text) > maxMessageBytes {
		text, cut = text[:maxMessageBytes], true
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if cut {
		text += "..."
	}
	return text
}

// shownHosts is how many listed hosts a refusal names.
const shownHosts = 8

// refusal says why a decision refuses, to a guest.
func (p *Policy) refusal(d Decision, method, url string) *Error {
	const host = "the host program decides, not this sandbox"
	shown := fmt.Sprintf("%+q", url)
	if len(url) > 100 {
		shown = fmt.Sprintf("%+q...", url[:100])
	}
	e := &Error{Kind: KindPolicy, Reason: d.Reason}
	if d.Reason.malformed() {
		e.Kind = KindMalformed
	}
	var text string
	switch d.Reason {
	case ReasonURLTooLong:
		text = fmt.Sprintf("the URL has %d bytes; at most %d are allowed", len(url), MaxURLBytes)
	case ReasonURLMalformed:
		text = fmt.Sprintf("%s is no http or https URL of visible ASCII; other characters must be percent-encoded", shown)
	case ReasonScheme:
		text = fmt.Sprintf("%s: only http and https URLs can be requested", shown)
	case ReasonCredentials:
		text = "the URL names a user before the host; send credentials in a header instead"
	case ReasonHostMalformed:
		text = fmt.Sprintf("%s: the host is no plain name (letters, digits, hyphens and dots, no dot at the end) and no address in its usual spelling", shown)
	case ReasonPort:
		text = fmt.Sprintf("%s: only port 80 for http and port 443 for https are allowed", shown)
	case ReasonMethodMalformed:
		text = fmt.Sprintf("%+.40q is no HTTP method in upper case", method)
	case ReasonMethodNever:
		text = fmt.Sprintf("the method %s is never allowed", method)
	case ReasonClosed:
		text = "this sandbox has no network; " + host
	case ReasonHostNotListed:
		text = fmt.Sprintf("%s is not on this sandbox's list of hosts (%s); %s", d.Target.Name(), p.listed(), host)
	case ReasonMethodNotListed:
		text = fmt.Sprintf("%s may be sent %s only, not %s; %s", d.Target.Name(),
			strings.Join(p.hosts[d.Target.host].methods, ", "), method, host)
	default:
		text = "the request was not judged"
	}
	e.Message = plain(text)
	return e
}

func (p *Policy) listed() string {
	if len(p.names) <= shownHosts {
		return strings.Join(p.names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(p.names[:shownHosts], ", "), len(p.names)-shownHosts)
}
