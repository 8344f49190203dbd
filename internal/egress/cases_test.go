package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

func TestCasesAreDecidedByTheirText(t *testing.T) {
	policy, closed, empty := newPolicy(t, listing(egresstest.Listed)), newPolicy(t, sandbox.Spec{Kind: "k"}), newPolicy(t, listing())
	for _, row := range egresstest.Cases() {
		if got := policy.Decide(row.Method, row.URL); got.Reason != row.Reason {
			t.Errorf("%s: %v, not %v", row.Name, got.Reason, row.Reason)
		}
		for name, nothing := range map[string]*egress.Policy{"closed": closed, "an empty list": empty} {
			if got := nothing.Decide(row.Method, row.URL); got.Allowed() {
				t.Errorf("%s, %s: allowed", row.Name, name)
			}
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
	for _, row := range egresstest.Cases() {
		check := func(shape string, b *egress.Broker) {
			t.Helper()
			w.did()
			got := ask(t, b, row.Method, row.URL)
			lookups, dials := w.did()
			if got.kind() != row.Kind {
				t.Errorf("%s, %s: %s (%+v), not %s", row.Name, shape, got.kind(), got.Error, row.Kind)
			}
			dialed := fmt.Sprintf("%v:%d", public, row.Port)
			if row.Port == 0 && len(lookups)+len(dials) > 0 {
				t.Errorf("%s, %s: refused, but after the lookups %q and the connections %q", row.Name, shape, lookups, dials)
			}
			if row.Port != 0 && (!slices.Equal(lookups, []string{"api.example.com"}) || !slices.Equal(dials, []string{dialed}) ||
				string(got.body) != "api.example.com") {
				t.Errorf("%s, %s: the lookups %q, the connections %q and the host %q", row.Name, shape, lookups, dials, got.body)
			}
			if seen := w.lastSeen(t); seen.Decision.Reason != row.Reason {
				t.Errorf("%s, %s: observed was %v", row.Name, shape, seen.Decision.Reason)
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
