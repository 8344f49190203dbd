package egress_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

type caseRow struct {
	id, method, url string
	// reason is the decision; kind what the guest hears, or the status.
	reason egress.Reason
	kind   string
	// dialed is where the request went.
	dialed string
}

// caseRows are requests that went wrong for others: spellings of a host (F1),
// parts that hide one (F2), addresses in disguise (F3), ports, schemes and
// methods (F6). The list is api.example.com.
func caseRows() []caseRow {
	const (
		allowed = egress.ReasonAllowed
		badURL  = egress.ReasonURLMalformed
		badHost = egress.ReasonHostMalformed
		unknown = egress.ReasonHostNotListed
	)
	return []caseRow{
		{"F1 capitals", "GET", "http://API.EXAMPLE.COM/", allowed, "200", "93.184.216.34:80"},
		// A dot at the end makes no host of the protocol's grammar.
		{"F1 dot at the end", "GET", "http://api.example.com./", badHost, "malformed", ""},
		{"F1 longer label", "GET", "http://xapi.example.com/", unknown, "policy", ""},
		{"F1 listed as prefix", "GET", "http://api.example.com.evil.test/", unknown, "policy", ""},
		{"F1 suffix without dot", "GET", "http://evilapi.example.com/", unknown, "policy", ""},
		{"F1 parent", "GET", "http://example.com/", unknown, "policy", ""},
		{"F1 escaped dot", "GET", "http://api.example.com%2eevil.test/", badHost, "malformed", ""},
		{"F1 ideographic dots", "GET", "http://api\u3002example\u3002com/", badURL, "malformed", ""},
		{"F1 full-width letter", "GET", "http://\uff41pi.example.com/", badURL, "malformed", ""},
		{"F1 punycode", "GET", "http://xn--pi-7ka.example.com/", unknown, "policy", ""},
		{"F1 long label", "GET", "http://" + strings.Repeat("a", 300) + ".example.com/", badHost, "malformed", ""},
		{"F1 long URL", "GET", "http://api.example.com/" + strings.Repeat("a", egress.MaxURLBytes), egress.ReasonURLTooLong, "malformed", ""},
		{"F1 wildcard", "GET", "http://*.example.com/", badHost, "malformed", ""},
		{"F1 underscore", "GET", "http://api_.example.com/", badHost, "malformed", ""},
		{"F1 empty label", "GET", "http://api..example.com/", badHost, "malformed", ""},

		{"F2 user", "GET", "http://api.example.com@evil.test/", egress.ReasonCredentials, "policy", ""},
		{"F2 listed user", "GET", "http://user:word@api.example.com/", egress.ReasonCredentials, "policy", ""},
		{"F2 empty user", "GET", "http://@api.example.com/", egress.ReasonCredentials, "policy", ""},
		{"F2 fragment", "GET", "http://evil.test#@api.example.com/", unknown, "policy", ""},
		{"F2 query", "GET", "http://evil.test?@api.example.com/", unknown, "policy", ""},
		{"F2 backslash", "GET", "http://evil.test\\@api.example.com/", badURL, "malformed", ""},
		{"F2 backslash behind", "GET", "http://api.example.com\\@evil.test/", badURL, "malformed", ""},
		{"F2 port as user", "GET", "http://api.example.com:80@evil.test/", egress.ReasonCredentials, "policy", ""},
		{"F2 tab", "GET", "http://api.example.com\t/", badURL, "malformed", ""},
		{"F2 line break", "GET", "http://api.example.com/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", badURL, "malformed", ""},
		{"F2 line break in the host", "GET", "http://api.example.com\r\nHost: evil.test/", badURL, "malformed", ""},
		{"F2 NUL", "GET", "http://api.example.com\x00.evil.test/", badURL, "malformed", ""},
		{"F2 space before", "GET", " http://api.example.com/", badURL, "malformed", ""},
		{"F2 no authority", "GET", "http:///api.example.com/", badHost, "malformed", ""},
		{"F2 one slash", "GET", "http:/api.example.com/", badURL, "malformed", ""},
		{"F2 no scheme", "GET", "//api.example.com/", badURL, "malformed", ""},
		{"F2 bad escape", "GET", "http://api.example.com/%zz", badURL, "malformed", ""},

		{"F3 loopback", "GET", "http://127.0.0.1/", unknown, "policy", ""},
		{"F3 one number", "GET", "http://2130706433/", badHost, "malformed", ""},
		{"F3 hexadecimal", "GET", "http://0x7f.1/", badHost, "malformed", ""},
		{"F3 hexadecimal at the end", "GET", "http://127.0.0.0x1/", badHost, "malformed", ""},
		{"F3 octal", "GET", "http://017700000001/", badHost, "malformed", ""},
		{"F3 octal part", "GET", "http://0177.0.0.1/", badHost, "malformed", ""},
		{"F3 short", "GET", "http://127.1/", badHost, "malformed", ""},
		{"F3 IPv6 loopback", "GET", "http://[::1]/", unknown, "policy", ""},
		{"F3 mapped", "GET", "http://[::ffff:127.0.0.1]/", unknown, "policy", ""},
		{"F3 zone", "GET", "http://[fe80::1%25eth0]/", badHost, "malformed", ""},
		{"F3 zone unescaped", "GET", "http://[fe80::1%eth0]/", badHost, "malformed", ""},
		{"F3 brackets round a name", "GET", "http://[api.example.com]/", badHost, "malformed", ""},
		{"F3 brackets round IPv4", "GET", "http://[127.0.0.1]/", badHost, "malformed", ""},
		{"F3 open bracket", "GET", "http://[::1/", badHost, "malformed", ""},
		{"F3 after the bracket", "GET", "http://[::1]x/", badHost, "malformed", ""},
		{"F3 bracket and port", "GET", "http://[::1]:80/", unknown, "policy", ""},
		{"F3 IPv6 without brackets", "GET", "http://::1/", badHost, "malformed", ""},
		{"F3 zero", "GET", "http://0/", badHost, "malformed", ""},
		{"F3 metadata", "GET", "http://169.254.169.254/", unknown, "policy", ""},

		{"F6 another port", "GET", "http://api.example.com:8080/", egress.ReasonPort, "policy", ""},
		{"F6 port of http", "GET", "https://api.example.com:80/", egress.ReasonPort, "policy", ""},
		{"F6 port of https", "GET", "http://api.example.com:443/", egress.ReasonPort, "policy", ""},
		{"F6 port with zero", "GET", "http://api.example.com:080/", egress.ReasonPort, "policy", ""},
		{"F6 empty port", "GET", "http://api.example.com:/", egress.ReasonPort, "policy", ""},
		{"F6 port twice", "GET", "http://api.example.com:80:80/", egress.ReasonPort, "policy", ""},
		{"F6 port written out", "GET", "http://api.example.com:80/", allowed, "200", "93.184.216.34:80"},
		{"F6 secure port written out", "GET", "https://api.example.com:443/", allowed, "200", "93.184.216.34:443"},
		{"F6 ftp", "GET", "ftp://api.example.com/", egress.ReasonScheme, "policy", ""},
		{"F6 file", "GET", "file:///etc/passwd", egress.ReasonScheme, "policy", ""},
		{"F6 websocket", "GET", "ws://api.example.com/", egress.ReasonScheme, "policy", ""},
		{"F6 scheme in capitals", "GET", "HTTP://api.example.com/", allowed, "200", "93.184.216.34:80"},
		{"F6 connect", "connect", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", ""},
		{"F6 CONNECT", "CONNECT", "http://api.example.com/", egress.ReasonMethodNever, "policy", ""},
		{"F6 TRACE", "TRACE", "http://api.example.com/", egress.ReasonMethodNever, "policy", ""},
		{"F6 line break in the method", "GET\r\nX: y", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", ""},
		{"F6 space in the method", "GET /", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", ""},
		// Methods are case-sensitive: RFC 9110, section 9.1.
		{"F6 get", "get", "http://api.example.com/", egress.ReasonMethodMalformed, "malformed", ""},
	}
}

func TestCasesAreDecidedByTheirText(t *testing.T) {
	policy := newPolicy(t, listing("api.example.com"))
	for _, row := range caseRows() {
		if got := policy.Decide(row.method, row.url); got.Reason != row.reason {
			t.Errorf("%s: %v, not %v", row.id, got.Reason, row.reason)
		}
	}
}

// TestCasesTakeTheWholeWay has every row met by a new broker, by one that has
// just failed and by one that has just answered, as after a reset.
func TestCasesTakeTheWholeWay(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Host)
	})
	policy := newPolicy(t, listing("api.example.com", "gone.example.com"))
	used := w.broker(t, policy, nil)
	for _, row := range caseRows() {
		check := func(shape string, b *egress.Broker) {
			t.Helper()
			w.did()
			got := ask(t, b, row.method, row.url)
			lookups, dials := w.did()
			if got.kind() != row.kind {
				t.Errorf("%s, %s: %s (%+v), not %s", row.id, shape, got.kind(), got.Error, row.kind)
			}
			if row.dialed == "" && len(lookups)+len(dials) > 0 {
				t.Errorf("%s, %s: refused, but after the lookups %q and the connections %q", row.id, shape, lookups, dials)
			}
			if row.dialed != "" && (!slices.Equal(lookups, []string{"api.example.com"}) || !slices.Equal(dials, []string{row.dialed}) ||
				string(got.body) != "api.example.com") {
				t.Errorf("%s, %s: the lookups %q, the connections %q and the host %q", row.id, shape, lookups, dials, got.body)
			}
			if seen := w.lastSeen(t); seen.Decision.Reason != row.reason {
				t.Errorf("%s, %s: observed was %v", row.id, shape, seen.Decision.Reason)
			}
		}
		fresh, err := egress.NewBroker(egress.Config{Policy: policy, Resolver: w, Dial: w.dial, Roots: w.roots(), Observe: w.observe})
		if err != nil {
			t.Fatal(err)
		}
		check("new", fresh)
		fresh.Close()
		if got := ask(t, used, "GET", "http://gone.example.com/"); got.kind() != "name" {
			t.Fatalf("a name that does not exist: %s", got.kind())
		}
		check("after a failure", used)
		if got := ask(t, used, "GET", "https://api.example.com/"); got.kind() != "200" {
			t.Fatalf("an ordinary request: %s %+v", got.kind(), got.Error)
		}
		check("after an answer", used)
	}
}

func TestOnlyTheCanonicalLiteralThatIsListedIsReached(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("127.0.0.1")), nil)
	for url, want := range map[string]string{
		"http://127.0.0.1/": "200", "https://127.0.0.1/": "200", "http://2130706433/": "malformed", "http://0x7f.1/": "malformed",
		"http://017700000001/": "malformed", "http://127.1/": "malformed", "http://127.0.0.2/": "policy", "http://[::1]/": "policy",
		"http://[::ffff:127.0.0.1]/": "policy", "http://[fe80::1%25eth0]/": "malformed", "http://0/": "malformed",
		"http://169.254.169.254/": "policy", "http://localhost/": "policy", "http://127.0.0.1./": "malformed",
	} {
		w.did()
		got := ask(t, b, "GET", url)
		lookups, dials := w.did()
		if got.kind() != want || len(lookups) > 0 || (len(dials) > 0) != (want == "200") {
			t.Errorf("%s: %s %+v, looked up %q, dialled %q", url, got.kind(), got.Error, lookups, dials)
		}
	}
}
