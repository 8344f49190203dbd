package egress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
	"github.com/maf-sandbox/maf-sandbox-go/internal/egress/egresstest"
)

// onPort80 serves on a loopback address that nothing else uses, on port 80.
func onPort80(t *testing.T, host string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := net.Listen("tcp", host+":80")
	if err != nil {
		t.Skipf("needs to listen on port 80 of %s (root, or net.ipv4.ip_unprivileged_port_start=80): %v", host, err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
}

func TestNamesOfARealServerAreJudged(t *testing.T) {
	s := egresstest.NewNameServer(t)
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) { c.Resolver = egress.NetResolver(s.Resolver()) })
	for _, row := range []struct {
		name    string
		answers []string
		kind    string
		dialed  []string
	}{
		{"a public address", []string{"93.184.216.34"}, "200", []string{"93.184.216.34:80"}},
		{"a private address", []string{"10.0.0.1"}, "address", nil},
		{"a loopback address", []string{"::1"}, "address", nil},
		{"a mapped private address", []string{"::ffff:10.0.0.1"}, "address", nil},
		{"a mapped metadata address", []string{"::ffff:169.254.169.254"}, "address", nil},
		// Package net gives it as the IPv4 address that it is.
		{"a mapped public address", []string{"::ffff:93.184.216.34"}, "200", []string{"93.184.216.34:80"}},
		{"a translated address", []string{"64:ff9b::5db8:d822"}, "address", nil},
		{"public and private", []string{"10.0.0.1", "93.184.216.34", "127.0.0.1"}, "200", []string{"93.184.216.34:80"}},
		{"no name", nil, "name", nil},
		{"turned to a private one", []string{"192.168.0.1"}, "address", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.Say(row.answers...)
			w.did()
			if got := ask(t, b, "GET", "http://api.example.com/"); got.kind() != row.kind {
				t.Errorf("%s %+v, not %s", got.kind(), got.Error, row.kind)
			}
			if _, dials := w.did(); !slices.Equal(dials, row.dialed) {
				t.Errorf("dialled %q, not %q", dials, row.dialed)
			}
			// One lookup asks once for each family, and for this very name: no
			// search list of the host's is tried.
			if asked := s.Questions(); !slices.Equal(asked, []string{"A api.example.com.", "AAAA api.example.com."}) {
				t.Errorf("asked for %q", asked)
			}
		})
	}
	s.Say("93.184.216.34")
	for _, url := range []string{"http://evil.test/", "http://api.example.com@evil.test/", "ftp://api.example.com/", "http://127.0.0.1/"} {
		if got := ask(t, b, "GET", url); got.kind() != "policy" {
			t.Errorf("%s: %s", url, got.kind())
		}
	}
	if asked := s.Questions(); len(asked) > 0 {
		t.Errorf("refused, but after %q", asked)
	}
}

// A name server that turns round or lies gains nothing: one lookup, and the
// address that was judged.
func TestANameServerThatTurnsRoundOrLiesGainsNothing(t *testing.T) {
	s := egresstest.NewNameServer(t)
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) { c.Resolver = egress.NetResolver(s.Resolver()) })
	const there = "93.184.216.34:80"
	for _, row := range []struct {
		name    string
		prepare func()
		kinds   []string // one for each request
		dialed  []string
	}{
		{"public, then loopback", func() { s.SayInTurn([]string{"93.184.216.34"}, []string{"127.0.0.1"}) },
			[]string{"200", "address", "address"}, []string{there}},
		{"an example's address, then loopback", func() { s.SayInTurn([]string{"192.0.2.7"}, []string{"127.0.0.1"}) },
			[]string{"address", "address"}, nil},
		{"loopback, then public", func() { s.SayInTurn([]string{"127.0.0.1"}, []string{"93.184.216.34"}) },
			[]string{"address", "200"}, []string{there}},
		{"an alias of an inner name", func() { s.Say("127.0.0.1"); s.Lie(egresstest.LieAlias) }, []string{"address"}, nil},
		{"an alias of a public name", func() { s.Say("93.184.216.34"); s.Lie(egresstest.LieAlias) }, []string{"200"}, []string{there}},
		{"no such name, with an address all the same", func() { s.Say("127.0.0.1"); s.Lie(egresstest.LieNoName) }, []string{"name"}, nil},
		{"an answer to nobody's question", func() { s.Say("93.184.216.34"); s.Lie(egresstest.LieNumber) }, []string{"timeout"}, nil},
		{"an answer to another question", func() { s.Say("93.184.216.34"); s.Lie(egresstest.LieQuestion) }, []string{"timeout"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.prepare()
			w.did()
			for i, kind := range row.kinds {
				request := get("http://api.example.com/")
				if kind == "timeout" { // nobody answers any more
					request.Timeout = 300 * time.Millisecond
				}
				_, err := b.Do(within(t), request)
				if kind == "200" && err != nil || kind != "200" && failureKind(err) != kind {
					t.Errorf("request %d: %v, not %s", i, err, kind)
				}
			}
			if _, dials := w.did(); !slices.Equal(dials, row.dialed) {
				t.Errorf("dialled %q, not %q", dials, row.dialed)
			}
		})
	}
}

// failureKind is the kind of a broker's error.
func failureKind(err error) string {
	var failure *egress.Error
	if !errors.As(err, &failure) {
		return "none"
	}
	return failure.Kind.String()
}

// TestARealServerIsReachedByItsAddress uses nothing of the test's own but the
// names: sockets, ports and the dialler are real.
func TestARealServerIsReachedByItsAddress(t *testing.T) {
	const open, other = "127.83.12.7", "127.83.12.8"
	onPort80(t, open, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(rw, "%s %s %s %s", r.Method, r.Host, r.URL, body)
	})
	onPort80(t, other, func(http.ResponseWriter, *http.Request) { t.Error("another server was reached") })
	s := egresstest.NewNameServer(t, open)
	b := newBroker(t, egress.Config{
		Policy:   newPolicy(t, listing(open, "inside.example", "outside.example"), "inside.example"),
		Resolver: egress.NetResolver(s.Resolver()),
	})
	for url, want := range map[string]string{
		"http://" + open + "/a?b":  "GET " + open + " /a?b ",
		"http://INSIDE.example/c":  "GET inside.example /c ",
		"http://outside.example/":  "address",
		"http://" + other + "/":    "policy",
		"http://2136149255/":       "malformed", // open as a number
		"https://" + open + "/":    "refused",
		"https://inside.example/":  "refused",
		"http://[::ffff:7f53:c07]": "policy", // open, mapped
	} {
		got := ask(t, b, "GET", url)
		if got.kind() != want && string(got.body) != want {
			t.Errorf("%s: %s %+v %q, not %s", url, got.kind(), got.Error, got.body, want)
		}
	}
	answer, err := b.Do(within(t), &egress.Request{Method: "POST", URL: "http://inside.example/", Body: []byte("body")})
	if err != nil || string(answer.Body) != "POST inside.example / body" {
		t.Errorf("POST: %+v, %v", answer, err)
	}
	s.Say()
	if got := ask(t, b, "GET", "http://inside.example/"); got.kind() != "name" {
		t.Errorf("a name that is gone: %s", got.kind())
	}
}

func TestTheHostsOwnNamesAreNoWayInWithoutPermission(t *testing.T) {
	names := []string{"localhost", "LOCALHOST", "any.localhost"}
	if name, addr, found := egresstest.HostsFileName(t, netip.Addr.IsLoopback); found {
		t.Logf("with %s of the hosts file at %s", name, addr)
		names = append(names, name)
	}
	s := egresstest.NewNameServer(t) // which knows none of them
	for _, name := range names {
		w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
		resolved := func(c *egress.Config) { c.Resolver = egress.NetResolver(s.Resolver()) }
		b := w.broker(t, newPolicy(t, listing(name)), resolved)
		if got := ask(t, b, "GET", "http://"+name+"/"); got.kind() != "address" {
			t.Errorf("%s: %s %+v", name, got.kind(), got.Error)
		}
		if _, dials := w.did(); len(dials) > 0 {
			t.Errorf("%s: dialled %q", name, dials)
		}
		permitted := w.broker(t, newPolicy(t, listing(name), name), resolved)
		if got := ask(t, permitted, "GET", "http://"+name+"/"); got.kind() != "200" {
			t.Errorf("%s, with permission: %s %+v", name, got.kind(), got.Error)
		}
	}
	if asked := s.Questions(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

func TestLocalhostIsTheLoopbackOfBothFamilies(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	first := netip.MustParseAddr("127.0.0.1")
	w.dead = map[netip.Addr]bool{first: true}
	b := w.broker(t, newPolicy(t, listing("localhost"), "localhost"), func(c *egress.Config) { c.Resolver = nil })
	if got := ask(t, b, "GET", "http://localhost/"); got.kind() != "200" {
		t.Fatalf("%s %+v", got.kind(), got.Error)
	}
	if _, dials := w.did(); !slices.Equal(dials, []string{"127.0.0.1:80", "[::1]:80"}) {
		t.Errorf("dialled %q", dials)
	}
}

func TestALookupThatFailedIsToldFromANameThatIsNot(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := dead.LocalAddr().String()
	_ = dead.Close() // nobody is there any more
	unreachable := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", address)
	}}
	s := egresstest.NewNameServer(t) // knows no name
	for name, row := range map[string]struct {
		resolver egress.Resolver
		kind     egress.Kind
	}{
		"no such name":               {egress.NetResolver(s.Resolver()), egress.KindName},
		"a server that is not there": {egress.NetResolver(unreachable), egress.KindLookup},
		"a server that is silent":    {silentServer{}, egress.KindLookup},
	} {
		b := newBroker(t, egress.Config{Policy: newPolicy(t, listing("api.example.com")), Resolver: row.resolver})
		_, err := b.Do(within(t), get("http://api.example.com/"))
		if failure := failed(t, err, row.kind); strings.Contains(failure.Message, "127.0.0.1") {
			t.Errorf("%s: %v", name, failure)
		}
	}
}

// silentServer finds that no server answers, long before the request's time is
// over.
type silentServer struct{}

func (silentServer) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "i/o timeout", Name: name, Server: "127.0.0.1:53", IsTimeout: true}
}
