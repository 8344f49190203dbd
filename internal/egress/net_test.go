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
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

// nameServer is a DNS server whose every name has the addresses that the test
// says, one list after the other.
type nameServer struct {
	conn net.PacketConn

	mu sync.Mutex
	// answers are for one question of each type each; the last list stays.
	answers []netip.Addr
	asked   []string
}

func newNameServer(t *testing.T, answers ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answers: addrs(answers...)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, err := s.reply(buf[:n]); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return s
}

func (s *nameServer) reply(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("no question"))
	}
	question := m.Questions[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, question.Type.String()[len("Type"):]+" "+question.Name.String())
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if len(s.answers) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, addr := range s.answers {
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 0}
		switch {
		case addr.Is4() && question.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m.Pack()
}

func (s *nameServer) say(answers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.asked = addrs(answers...), nil
}

// questions are what was asked since say, sorted.
func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.asked))
}

func (s *nameServer) resolver() egress.Resolver {
	return egress.NetResolver(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}})
}

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
	s := newNameServer(t)
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), func(c *egress.Config) { c.Resolver = s.resolver() })
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
			s.say(row.answers...)
			w.did()
			if got := ask(t, b, "GET", "http://api.example.com/"); got.kind() != row.kind {
				t.Errorf("%s %+v, not %s", got.kind(), got.Error, row.kind)
			}
			if _, dials := w.did(); !slices.Equal(dials, row.dialed) {
				t.Errorf("dialled %q, not %q", dials, row.dialed)
			}
			// One lookup asks once for each family, and for this very name: no
			// search list of the host's is tried.
			if asked := s.questions(); !slices.Equal(asked, []string{"A api.example.com.", "AAAA api.example.com."}) {
				t.Errorf("asked for %q", asked)
			}
		})
	}
	s.say("93.184.216.34")
	for _, url := range []string{"http://evil.test/", "http://api.example.com@evil.test/", "ftp://api.example.com/", "http://127.0.0.1/"} {
		if got := ask(t, b, "GET", url); got.kind() != "policy" {
			t.Errorf("%s: %s", url, got.kind())
		}
	}
	if asked := s.questions(); len(asked) > 0 {
		t.Errorf("refused, but after %q", asked)
	}
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
	s := newNameServer(t, open)
	b := newBroker(t, egress.Config{
		Policy:   newPolicy(t, listing(open, "inside.example", "outside.example"), "inside.example"),
		Resolver: s.resolver(),
	})
	for url, want := range map[string]string{
		"http://" + open + "/a?b":  "GET " + open + " /a?b ",
		"http://INSIDE.example/c":  "GET inside.example /c ",
		"http://outside.example/":  "address",
		"http://" + other + "/":    "policy",
		"http://2136149255/":       "malformed", // open as a number
		"https://" + open + "/":    "connect",
		"https://inside.example/":  "connect",
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
	s.say()
	if got := ask(t, b, "GET", "http://inside.example/"); got.kind() != "name" {
		t.Errorf("a name that is gone: %s", got.kind())
	}
}

func TestTheHostsOwnNamesAreNoWayIn(t *testing.T) {
	b := newBroker(t, egress.Config{
		Policy: newPolicy(t, listing("localhost")),
		Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
			t.Error("dialled")
			return nil, errors.New("no")
		},
	})
	if got := ask(t, b, "GET", "http://localhost/"); !slices.Contains([]string{"address", "name", "timeout"}, got.kind()) {
		t.Errorf("%s %+v", got.kind(), got.Error)
	}
}
