package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// MaxURLBytes is the longest URL that is looked at: RFC 9110, section 4.1, asks
// for 8000 octets at least.
const MaxURLBytes = 8192

// Target is where a request goes: a URL that was read once and strictly, so
// that nobody can read it differently later. The zero value is no target.
type Target struct {
	secure bool
	// host is zero for an IPv6 literal, which the protocol cannot list.
	host sandbox.Host
	// addr is valid for literals only.
	addr netip.Addr
	// uri is path and query, as they are sent.
	uri string
}

// IsZero says whether this is no target.
func (t Target) IsZero() bool { return t.uri == "" }

// Host is the name to reach; zero for an IPv6 literal.
func (t Target) Host() sandbox.Host { return t.host }

// Name is the host as it is sent in the Host header: in lower case, without a
// port, and in brackets when it is an IPv6 literal.
func (t Target) Name() string {
	if t.addr.Is6() {
		return "[" + t.addr.String() + "]"
	}
	return t.host.String()
}

// Scheme is "http" or "https".
func (t Target) Scheme() string {
	if t.secure {
		return "https"
	}
	return "http"
}

// Port is 80 for http and 443 for https; there are no others.
func (t Target) Port() uint16 {
	if t.secure {
		return 443
	}
	return 80
}

// String is the URL in its one spelling, without a fragment.
func (t Target) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Scheme() + "://" + t.Name() + t.uri
}

// url gives the target to net/http, or says that it reads the text differently.
func (t Target) url() (*url.URL, bool) {
	u, err := url.Parse(t.String())
	if err != nil || u.Scheme != t.Scheme() || u.Host != t.Name() || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, false
	}
	return u, true
}

// parseTarget reads a URL. The reason is ReasonAllowed when it is one that
// could be requested. It is stricter than RFC 3986 where readers are known to
// differ: backslashes, white space, text beyond ASCII, escapes in the host,
// numbers that some take for addresses.
func parseTarget(text string) (Target, Reason) {
	if len(text) > MaxURLBytes {
		return Target{}, ReasonURLTooLong
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '\\' {
			return Target{}, ReasonURLMalformed
		}
	}
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		return Target{}, ReasonURLMalformed
	}
	var t Target
	switch strings.ToLower(scheme) {
	case "http":
	case "https":
		t.secure = true
	default:
		return Target{}, ReasonScheme
	}
	rest, found = strings.CutPrefix(rest, "//")
	if !found {
		return Target{}, ReasonURLMalformed
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, rest = rest[:end], rest[end:]
	} else {
		rest = ""
	}
	if reason := t.setAuthority(authority); reason != ReasonAllowed {
		return Target{}, reason
	}
	t.uri, _, _ = strings.Cut(rest, "#")
	if !strings.HasPrefix(t.uri, "/") {
		t.uri = "/" + t.uri
	}
	if _, same := t.url(); !same {
		return Target{}, ReasonURLMalformed
	}
	return t, ReasonAllowed
}

func (t *Target) setAuthority(authority string) Reason {
	if strings.Contains(authority, "@") {
		return ReasonCredentials
	}
	name, port, hasPort := strings.Cut(authority, ":")
	if inner, isLiteral := strings.CutPrefix(authority, "["); isLiteral {
		var after string
		var closed bool
		if name, after, closed = strings.Cut(inner, "]"); !closed {
			return ReasonHostMalformed
		}
		// Zones come escaped, and mean something on this host only.
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return ReasonHostMalformed
		}
		t.addr = addr
		if port, hasPort = strings.CutPrefix(after, ":"); !hasPort && after != "" {
			return ReasonHostMalformed
		}
	} else {
		host, err := sandbox.ParseHost(name)
		if err != nil || host.IsWildcard() {
			return ReasonHostMalformed
		}
		addr, canonical := literal(host)
		if !canonical {
			return ReasonHostMalformed
		}
		t.host, t.addr = host, addr
	}
	if hasPort && port != strconv.Itoa(int(t.Port())) {
		return ReasonPort
	}
	return ReasonAllowed
}

// literal gives the IPv4 address that a host is, if it is one. It says no to a
// name that resolvers take for an address in another spelling, such as
// 2130706433, 0x7f.1 or 127.1: by the URL standard of the WHATWG ("ends in a
// number") those are all names whose last label is a number.
func literal(host sandbox.Host) (addr netip.Addr, canonical bool) {
	name := host.String()
	last := name[strings.LastIndexByte(name, '.')+1:]
	digits, base := last, "0123456789"
	if hex, isHex := strings.CutPrefix(last, "0x"); isHex {
		digits, base = hex, "0123456789abcdef"
	}
	if strings.Trim(digits, base) != "" {
		return netip.Addr{}, true
	}
	addr, err := netip.ParseAddr(name)
	return addr, err == nil
}
