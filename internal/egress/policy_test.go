package egress_test

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// TestMethodsAreThoseOfTheRule shows what a rule without methods means, what
// one with methods means, and what none can.
func TestMethodsAreThoseOfTheRule(t *testing.T) {
	policy := newPolicy(t, listing("plain.example", "narrow.example GET", "wide.example GET,HEAD,PUT,DELETE,PATCH,OPTIONS,POST"))
	for _, row := range []struct {
		method, host string
		want         egress.Reason
	}{
		{"GET", "plain.example", egress.ReasonAllowed},
		{"POST", "plain.example", egress.ReasonAllowed},
		{"PUT", "plain.example", egress.ReasonMethodNotListed},
		{"HEAD", "plain.example", egress.ReasonMethodNotListed},
		{"GET", "narrow.example", egress.ReasonAllowed},
		{"POST", "narrow.example", egress.ReasonMethodNotListed},
		{"DELETE", "wide.example", egress.ReasonAllowed},
		{"PROPFIND", "wide.example", egress.ReasonMethodNotListed},
		{"CONNECT", "wide.example", egress.ReasonMethodNever},
		{"TRACE", "wide.example", egress.ReasonMethodNever},
		{"CONNECT", "other.example", egress.ReasonMethodNever},
		{"get", "plain.example", egress.ReasonMethodMalformed},
		{"", "plain.example", egress.ReasonMethodMalformed},
		{strings.Repeat("G", 33), "plain.example", egress.ReasonMethodMalformed},
	} {
		if got := policy.Decide(row.method, "https://"+row.host+"/"); got.Reason != row.want || got.Allowed() != (row.want == egress.ReasonAllowed) {
			t.Errorf("%s %s: %v, not %v", row.method, row.host, got.Reason, row.want)
		}
	}
}

func TestADecisionNamesTheTargetInItsOneSpelling(t *testing.T) {
	policy := newPolicy(t, listing("api.example.com", "127.0.0.1"))
	for text, want := range map[string]string{
		"http://api.example.com":                 "http://api.example.com/",
		"HTTPS://API.example.COM:443/a/../b?c#d": "https://api.example.com/a/../b?c",
		"http://api.example.com?q=1":             "http://api.example.com/?q=1",
		"http://api.example.com#f":               "http://api.example.com/",
		"http://api.example.com//double//":       "http://api.example.com//double//",
		"http://api.example.com/%2e%2E/a%20b":    "http://api.example.com/%2e%2E/a%20b",
		"http://api.example.com/?u=http://x@y/":  "http://api.example.com/?u=http://x@y/",
		"http://127.0.0.1:80/":                   "http://127.0.0.1/",
	} {
		got := policy.Decide("GET", text)
		if !got.Allowed() || got.Target.String() != want {
			t.Errorf("%s: %v, %q", text, got.Reason, got.Target)
		}
	}
}

func TestAPolicyThatNobodyMadeAllowsNothing(t *testing.T) {
	var none *egress.Policy
	if got := none.Decide("GET", "http://api.example.com/"); got.Reason != egress.ReasonClosed {
		t.Errorf("no policy: %v", got.Reason)
	}
	if got := newPolicy(t, sandbox.Spec{Kind: "k"}).Decide("GET", "http://api.example.com/"); got.Reason != egress.ReasonClosed {
		t.Errorf("closed egress: %v", got.Reason)
	}
	if (egress.Decision{}).Allowed() {
		t.Error("the zero decision allows")
	}
	if _, allowed := none.Judge(egress.Target{}, public); allowed {
		t.Error("no policy lets an address pass")
	}
	if _, allowed := newPolicy(t, listing("a.example")).Judge(egress.Target{}, public); allowed {
		t.Error("an address passes for no target")
	}
}

func TestWhatCannotBeEnforcedIsRefusedInWords(t *testing.T) {
	many := make([]string, 0, egress.MaxHosts+1)
	for i := range egress.MaxHosts + 1 {
		many = append(many, fmt.Sprintf("h%d.example", i))
	}
	withIdentity := listing("a.example")
	withIdentity.EgressAllow[0].Authority = sandbox.IdentityApp
	contradiction := listing("a.example GET", "A.example")
	for name, row := range map[string]struct {
		spec   sandbox.Spec
		reason error
		says   string
	}{
		"unrestricted":           {sandbox.Spec{Egress: sandbox.EgressUnrestricted}, sandbox.ErrEgressNotEnforced, "unrestricted"},
		"rules while closed":     {sandbox.Spec{EgressAllow: listing("a.example").EgressAllow}, sandbox.ErrEgressNotEnforced, "closed with 1 rules"},
		"a wildcard":             {listing("*.example.com"), sandbox.ErrEgressNotEnforced, "exact hosts"},
		"an identity":            {withIdentity, sandbox.ErrEgressNotEnforced, "without an identity"},
		"513 hosts":              {listing(many...), sandbox.ErrEgressNotEnforced, "up to 512"},
		"CONNECT":                {listing("a.example GET,CONNECT"), sandbox.ErrEgressNotEnforced, "CONNECT"},
		"a contradiction":        {contradiction, sandbox.ErrInvalid, "contradicts"},
		"no host":                {sandbox.Spec{Egress: sandbox.EgressAllowlist, EgressAllow: make([]sandbox.EgressRule, 1)}, sandbox.ErrInvalid, "host"},
		"a number":               {listing("2130706433"), sandbox.ErrEgressNotEnforced, "four decimal numbers"},
		"a hexadecimal number":   {listing("0x7f.1"), sandbox.ErrEgressNotEnforced, "four decimal numbers"},
		"an octal number":        {listing("0177.0.0.1"), sandbox.ErrEgressNotEnforced, "four decimal numbers"},
		"every address":          {listing("0.0.0.0"), sandbox.ErrEgressNotEnforced, "unspecified"},
		"a multicast address":    {listing("224.0.0.1"), sandbox.ErrEgressNotEnforced, "multicast"},
		"the broadcast address":  {listing("255.255.255.255"), sandbox.ErrEgressNotEnforced, "broadcast"},
		"a name that is a digit": {listing("example.5"), sandbox.ErrEgressNotEnforced, "four decimal numbers"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := egress.NewPolicy(decider, row.spec)
			if !errors.Is(err, row.reason) || !strings.Contains(err.Error(), row.says) {
				t.Errorf("refused with %v", err)
			}
			if err := egress.Unserved(decider, row.spec); !errors.Is(err, row.reason) {
				t.Errorf("Unserved: %v", err)
			}
		})
	}
	if err := egress.Unserved(decider, listing(many[:egress.MaxHosts]...)); err != nil {
		t.Errorf("512 hosts are refused: %v", err)
	}
	if err := egress.Unserved(decider, listing("0xyz.example", "5.example", "0x.example", "1a", "127.0.0.1", "169.254.169.254")); err != nil {
		t.Errorf("good hosts are refused: %v", err)
	}
	if err := egress.Unserved(decider, listing(append(many[:egress.MaxHosts], "H0.example")...)); err != nil {
		t.Errorf("512 hosts and one of them again are refused: %v", err)
	}
	if _, err := egress.NewPolicy(decider, listing("a.example"), sandbox.MustHost("b.example")); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a private permission for what is not listed: %v", err)
	}
}

func TestAddressesAreJudgedForTheirHost(t *testing.T) {
	policy := newPolicy(t, listing("open.example", "inside.example", "127.0.0.1", "169.254.169.254"), "inside.example")
	for _, row := range []struct {
		host, addr string
		want       bool
	}{
		{"open.example", "93.184.216.34", true},
		{"open.example", "2606:2800::1", true},
		{"open.example", "127.0.0.1", false}, // listed for itself, not for a name
		{"open.example", "10.0.0.1", false},
		{"open.example", "169.254.169.254", false},
		{"open.example", "::ffff:93.184.216.34", false},
		{"open.example", "64:ff9b::5db8:d822", false},
		{"open.example", "198.18.0.1", false},
		{"inside.example", "93.184.216.34", true},
		{"inside.example", "127.0.0.1", true},
		{"inside.example", "::1", true},
		{"inside.example", "10.0.0.1", true},
		{"inside.example", "fd12::1", true},
		{"inside.example", "100.64.0.1", true},
		{"inside.example", "169.254.169.254", false},
		{"inside.example", "fd00:ec2::254", false},
		{"inside.example", "fd00:c1::a9fe:a9fe", false},
		{"inside.example", "100.100.100.200", false},
		{"inside.example", "169.254.0.1", false},
		{"inside.example", "fe80::1", false},
		{"inside.example", "0.0.0.0", false},
		{"inside.example", "::ffff:127.0.0.1", false},
		{"inside.example", "2002:7f00:1::", false},
		{"inside.example", "240.0.0.1", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.1", "93.184.216.34", false},
		{"127.0.0.1", "::ffff:127.0.0.1", false},
		{"169.254.169.254", "169.254.169.254", true},
	} {
		decision := policy.Decide("GET", "http://"+row.host+"/")
		if !decision.Allowed() {
			t.Fatalf("%s: %v", row.host, decision.Reason)
		}
		if class, got := policy.Judge(decision.Target, netip.MustParseAddr(row.addr)); got != row.want {
			t.Errorf("%s at %s (%v): %v", row.host, row.addr, class, got)
		}
	}
}

// FuzzJudge has any address judged for a target of any policy: one with a host of
// any spelling, which may be permitted private targets.
func FuzzJudge(f *testing.F) {
	for _, host := range []string{"api.example.com", "127.0.0.1", "169.254.169.254", "localhost", "a.b", "10.0.0.1"} {
		for _, addr := range []string{"93.184.216.34", "127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fe80::1"} {
			f.Add(host, false, "http://"+host+"/", netip.MustParseAddr(addr).AsSlice(), "")
			f.Add(host, true, "https://"+host+":443/a?b", netip.MustParseAddr(addr).AsSlice(), "eth0")
		}
	}
	f.Fuzz(func(t *testing.T, text string, private bool, target string, b []byte, zone string) {
		host, err := sandbox.ParseHost(text)
		if err != nil {
			return
		}
		spec := sandbox.Spec{Kind: "k", Egress: sandbox.EgressAllowlist, EgressAllow: []sandbox.EgressRule{{Host: host}}}
		var permitted []sandbox.Host
		if private {
			permitted = append(permitted, host)
		}
		policy, err := egress.NewPolicy(decider, spec, permitted...)
		if err != nil {
			return // a wildcard or no one host's address: refused before anything is judged
		}
		addr, _ := netip.AddrFromSlice(b)
		if addr.Is6() {
			addr = addr.WithZone(zone)
		}
		decision := policy.Decide("GET", target)
		class, allowed := policy.Judge(decision.Target, addr)
		if class != egress.Classify(addr) {
			t.Fatalf("%v is %v here and %v elsewhere", addr, class, egress.Classify(addr))
		}
		if !allowed {
			return
		}
		literal, _ := netip.ParseAddr(host.String())
		public := addr.IsGlobalUnicast() && !addr.IsPrivate()
		switch listed := decision.Target.Host() == host; {
		case !listed || !decision.Allowed():
			t.Errorf("%v may be reached for %q, which is not listed", addr, target)
		case literal.IsValid() && addr != literal:
			t.Errorf("%v may be reached for %v", addr, literal)
		case literal.IsValid(): // whatever kind of address it is, it was named
		case class == egress.ClassPublic && !public:
			t.Errorf("%v is public", addr)
		case class != egress.ClassPublic && !private:
			t.Errorf("%v (%v) may be reached without permission", addr, class)
		case private && class != egress.ClassPublic && class != egress.ClassPrivate && class != egress.ClassLoopback && class != egress.ClassShared:
			t.Errorf("%v (%v) may be reached by a permission for private targets", addr, class)
		}
	})
}

func FuzzDecide(f *testing.F) {
	for _, row := range egresstest.Cases() {
		f.Add(row.Method, row.URL)
	}
	f.Add("GET", "http://api.example.com/a?b#c")
	f.Add("POST", "HTTPS://127.0.0.1:443")
	policy, err := egress.NewPolicy(decider, listing("api.example.com", "127.0.0.1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, text string) {
		decision := policy.Decide(method, text)
		if !decision.Allowed() {
			return
		}
		host := decision.Target.Host().String()
		if host != "api.example.com" && host != "127.0.0.1" || method != "GET" && method != "POST" {
			t.Fatalf("%q %q is allowed for %q", method, text, host)
		}
		// Another reader of the same text reaches the same host.
		u, err := url.Parse(text)
		if err != nil || !strings.EqualFold(u.Hostname(), host) || u.User != nil {
			t.Errorf("package url reads %q as %v, %v", text, u, err)
		}
		if again := policy.Decide(method, decision.Target.String()); again != decision {
			t.Errorf("%q becomes %q, which becomes %q (%v)", text, decision.Target, again.Target, again.Reason)
		}
	})
}
