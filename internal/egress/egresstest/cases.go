// Package egresstest has what tests of a program's way to the network share: the
// collected cases, so that the decision and the whole way through a guest are
// asked the same, and a name server that turns round and lies.
package egresstest

import (
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

// Listed is the one host that the policy of the cases lists.
const Listed = "api.example.com"

// Case is a request and what must become of it.
type Case struct {
	// Name begins with the row of the collected cases.
	Name, Method, URL string
	// Reason is the decision.
	Reason egress.Reason
	// Kind is the status of the answer or the kind of error that the guest
	// hears.
	Kind string
	// Port is where the request is made; zero for one that is not made.
	Port uint16
}

// Cases are requests that went wrong for others: spellings of a host (F1),
// parts that hide one (F2), addresses in disguise (F3), ports, schemes and
// methods (F6). The list is Listed.
func Cases() []Case {
	const (
		allowed = egress.ReasonAllowed
		badURL  = egress.ReasonURLMalformed
		badHost = egress.ReasonHostMalformed
		unknown = egress.ReasonHostNotListed
	)
	return []Case{
		{"F1 capitals", "GET", "http://API.EXAMPLE.COM/", allowed, "200", 80},
		// A dot at the end makes no host of the protocol's grammar.
		{"F1 dot at the end", "GET", "http://api.example.com./", badHost, "malformed", 0},
		{"F1 longer label", "GET", "http://xapi.example.com/", unknown, "policy", 0},
		{"F1 listed as prefix", "GET", "http://api.example.com.evil.test/", unknown, "policy", 0},
		{"F1 suffix without dot", "GET", "http://evilapi.example.com/", unknown, "policy", 0},
		{"F1 parent", "GET", "http://example.com/", unknown, "policy", 0},
		{"F1 escaped dot", "GET", "http://api.example.com%2eevil.test/", badHost, "malformed", 0},
		{"F1 ideographic dots", "GET", "http://api\u3002example\u3002com/", badURL, "malformed", 0},
		{"F1 full-width letter", "GET", "http://\uff41pi.example.com/", badURL, "malformed", 0},
		{"F1 punycode", "GET", "http://xn--pi-7ka.example.com/", unknown, "policy", 0},
		{"F1 long label", "GET", "http://" + strings.Repeat("a", 300) + ".example.com/", badHost, "malformed", 0},
		{"F1 long URL", "GET", "http://api.example.com/" + strings.Repeat("a", egress.MaxURLBytes), egress.ReasonURLTooLong, "malformed", 0},
		{"F1 wildcard", "GET", "http://*.example.com/", badHost, "malformed", 0},
		{"F1 underscore", "GET", "http://api_.example.com/", badHost, "malformed", 0},
		{"F1 empty label", "GET", "http://api..example.com/", badHost, "malformed", 0},

		{"F2 user", "GET", "http://api.example.com@evil.test/", egress.ReasonCredentials, "policy", 0},
		{"F2 listed user", "GET", "http://user:word@api.example.com/", egress.ReasonCredentials, "policy", 0},
		{"F2 empty user", "GET", "http://@api.example.com/", egress.ReasonCredentials, "policy", 0},
		{"F2 fragment", "GET", "http://evil.test#@api.example.com/", unknown, "policy", 0},
		{"F2 query", "GET", "http://evil.test?@api.example.com/", unknown, "policy", 0},
		{"F2 backslash", "GET", "http://evil.test\\@api.example.com/", badURL, "malformed", 0},
		{"F2 backslash behind", "GET", "http://api.example.com\\@evil.test/", badURL, "malformed", 0},
		{"F2 port as user", "GET", "http://api.example.com:80@evil.test/", egress.ReasonCredentials, "policy", 0},
		{"F2 tab", "GET", "http://api.example.com\t/", badURL, "malformed", 0},
		{"F2 line break", "GET", "http://api.example.com/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", badURL, "malformed", 0},
		{"F2 line break in the host", "GET", "http://api.example.com\r\nHost: evil.test/", badURL, "malformed", 0},
		{"F2 NUL", "GET", "http://api.example.com\x00.evil.test/", badURL, "malformed", 0},
		{"F2 space before", "GET", " http://api.example.com/", badURL, "malformed", 0},
		{"F2 no authority", "GET", "http:///api.example.com/", badHost, "malformed", 0},
		{"F2 one slash", "GET", "http:/api.example.com/", badURL, "malformed", 0},
		{"F2 no scheme", "GET", "//api.example.com/", badURL, "malformed", 0},
		{"F2 bad escape", "GET", "http://api.example.com/%zz", badURL, "malformed", 0},

		{"F3 loopback", "GET", "http://127.0.0.1/", unknown, "policy", 0},
		{"F3 one number", "GET", "http://2130706433/", badHost, "malformed", 0},
		{"F3 hexadecimal", "GET", "http://0x7f.1/", badHost, "malformed", 0},
		{"F3 hexadecimal at the end", "GET", "http://127.0.0.0x1/", badHost, "malformed", 0},
		{"F3 octal", "GET", "http://017700000001/", badHost, "malformed", 0},
		{"F3 octal part", "GET", "http://0177.0.0.1/", badHost, "malformed", 0},
		{"F3 short", "GET", "http://127.1/", badHost, "malformed", 0},
		{"F3 IPv6 loopback", "GET", "http://[::1]/", unknown, "policy", 0},
		{"F3 mapped", "GET", "http://[::ffff:127.0.0.1]/", unknown, "policy", 0},
		{"F3 zone", "GET", "http://[fe80::1%25eth0]/", badHost, "malformed", 0},
		{"F3 zone unescaped", "GET", "http://[fe80::1%eth0]/", badHost, "malformed", 0},
		{"F3 brackets round a name", "GET", "http://[api.example.com]/", badHost, "malformed", 0},
		{"F3 brackets round IPv4", "GET", "http://[127.0.0.1]/", badHost, "malformed", 0},
		{"F3 open bracket", "GET", "http://[::1/", badHost, "malformed", 0},
		{"F3 after the bracket", "GET", "http://[::1]x/", badHost, "malformed", 0},
		{"F3 bracket and port", "GET", "http://[::1]:80/", unknown, "policy", 0},
		{"F3 IPv6 without brackets", "GET", "http://::1/", badHost, "malformed", 0},
		{"F3 zero", "GET", "http://0/", badHost, "malformed", 0},
		{"F3 metadata", "GET", "http://169.254.169.254/", unknown, "policy", 0},

		{"F6 another port", "GET", "http://api.example.com:8080/", egress.ReasonPort, "policy", 0},
		{"F6 port of http", "GET", "https://api.example.com:80/", egress.ReasonPort, "policy", 0},
		{"F6 port of https", "GET", "http://api.example.com:443/", egress.ReasonPort, "policy", 0},
		{"F6 port with zero", "GET", "http://api.example.com:080/", egress.ReasonPort, "policy", 0},
		{"F6 empty port", "GET", "http://api.example.com:/", egress.ReasonPort, "policy", 0},
		{"F6 port twice", "GET", "http://api.example.com:80:80/", egress.ReasonPort, "policy", 0},
		{"F6 port written out", "GET", "http://api.example.com:80/", allowed, "200", 80},
		{"F6 secure port written out", "GET", "https://api.example.com:443/", allowed, "200", 443},
		{"F6 ftp", "GET", "ftp://api.example.com/", egress.ReasonScheme, "policy", 0},
		{"F6 file", "GET", "file:///etc/passwd", egress.ReasonScheme, "policy", 0},
		{"F6 websocket", "GET", "ws://api.example.com/", egress.ReasonScheme, "policy", 0},
		{"F6 scheme in capitals", "GET", "HTTP://api.example.com/", allowed, "200", 80},
		{"F6 connect", "connect", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", 0},
		{"F6 CONNECT", "CONNECT", "http://api.example.com/", egress.ReasonMethodNever, "policy", 0},
		{"F6 TRACE", "TRACE", "http://api.example.com/", egress.ReasonMethodNever, "policy", 0},
		{"F6 line break in the method", "GET\r\nX: y", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", 0},
		{"F6 space in the method", "GET /", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", 0},
		// Methods are case-sensitive: RFC 9110, section 9.1.
		{"F6 get", "get", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", 0},
	}
}
