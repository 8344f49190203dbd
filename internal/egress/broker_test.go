package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

// failed gives the error of a request that must fail with the kind.
func failed(t testing.TB, err error, kind egress.Kind) *egress.Error {
	t.Helper()
	var failure *egress.Error
	if !errors.As(err, &failure) {
		t.Fatalf("not %v, but %v", kind, err)
	}
	if failure.Kind != kind {
		t.Errorf("%v, not %v", failure, kind)
	}
	return failure
}

func TestNamesAreLookedUpOnceAndTheJudgedAddressIsDialled(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("api.example.com", "inside.example.com"), "inside.example.com"), nil)
	for _, row := range []struct {
		name, host string
		answers    [][]netip.Addr
		kinds      []string // one for each request
		dialed     []string
	}{
		{"a name that turns round", "api", [][]netip.Addr{addrs("93.184.216.34"), addrs("127.0.0.1")},
			[]string{"200", "address"}, []string{"93.184.216.34:80"}},
		{"a name that turns away", "api", [][]netip.Addr{addrs("127.0.0.1"), addrs("93.184.216.34")},
			[]string{"address", "200"}, []string{"93.184.216.34:80"}},
		{"a public and a private address", "api", [][]netip.Addr{addrs("93.184.216.34", "10.0.0.1")},
			[]string{"200"}, []string{"93.184.216.34:80"}},
		{"a private and a public address", "api", [][]netip.Addr{addrs("10.0.0.1", "93.184.216.34")},
			[]string{"200"}, []string{"93.184.216.34:80"}},
		{"a mapped address", "api", [][]netip.Addr{addrs("::ffff:10.0.0.1")}, []string{"address"}, nil},
		{"a mapped public address", "api", [][]netip.Addr{addrs("::ffff:93.184.216.34")}, []string{"address"}, nil},
		{"a translated address", "api", [][]netip.Addr{addrs("64:ff9b::a00:1")}, []string{"address"}, nil},
		{"a tunnelled address", "api", [][]netip.Addr{addrs("2002:a00:1::1")}, []string{"address"}, nil},
		{"the metadata service", "api", [][]netip.Addr{addrs("169.254.169.254")}, []string{"address"}, nil},
		{"an example's address", "api", [][]netip.Addr{addrs("192.0.2.7")}, []string{"address"}, nil},
		{"no address", "api", [][]netip.Addr{{}}, []string{"name"}, nil},
		{"no valid address", "api", [][]netip.Addr{{{}}}, []string{"address"}, nil},
		{"no such name", "api", nil, []string{"name"}, nil},
		{"an allowed private address", "inside", [][]netip.Addr{addrs("10.0.0.1")}, []string{"200"}, []string{"10.0.0.1:80"}},
		{"an allowed host's metadata service", "inside", [][]netip.Addr{addrs("169.254.169.254")}, []string{"address"}, nil},
		{"more addresses than anybody has", "api", [][]netip.Addr{append(slices.Repeat(addrs("10.0.0.1"), 64), public)},
			[]string{"address"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			host := row.host + ".example.com"
			w.names[host] = row.answers
			for i, kind := range row.kinds {
				if got := ask(t, b, "GET", "http://"+host+"/"); got.kind() != kind {
					t.Errorf("request %d: %s %+v, not %s", i, got.kind(), got.Error, kind)
				}
			}
			lookups, dials := w.did()
			if len(lookups) != len(row.kinds) || !slices.Equal(dials, row.dialed) {
				t.Errorf("looked up %q, dialled %q, not %q", lookups, dials, row.dialed)
			}
		})
	}
}

func TestAnswersAreGivenAsTheyAre(t *testing.T) {
	// A cookie, a redirect or an error of one answer changes no later request.
	var cookies, proxied int
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		cookies += len(r.Cookies())
		if r.URL.IsAbs() {
			proxied++
		}
		rw.Header().Set("Set-Cookie", "a=b")
		rw.Header().Set("Location", "http://evil.test/")
		status, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		rw.WriteHeader(status)
	})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	for _, scheme := range []string{"http", "https"} {
		for _, status := range []int{200, 204, 301, 302, 304, 307, 308, 401, 403, 404, 407, 429, 500, 503} {
			w.did()
			got := ask(t, b, "GET", fmt.Sprintf("%s://api.example.com/%d", scheme, status))
			if got.Status != status || got.header("Location") != "http://evil.test/" || got.header("Set-Cookie") != "a=b" {
				t.Errorf("%d became %+v %+v", status, got, got.Error)
			}
			if lookups, _ := w.did(); !slices.Equal(lookups, []string{"api.example.com"}) {
				t.Errorf("%d: looked up %q", status, lookups)
			}
		}
	}
	if cookies > 0 || proxied > 0 {
		t.Errorf("%d cookies were kept, %d requests went to a proxy", cookies, proxied)
	}
}

func TestBodiesGoBothWaysWhole(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rw.Header().Set("X-Seen", fmt.Sprintf("%s %d %s", r.Method, r.ContentLength, r.Header.Get("Content-Type")))
		_, _ = rw.Write(body)
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com GET,POST,PUT,DELETE")), nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), egress.DefaultBodyBytes/16)
	for _, scheme := range []string{"http", "https"} {
		for _, body := range [][]byte{nil, {0, 1, 0xff}, large} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
				request := &egress.Request{Method: method, URL: scheme + "://api.example.com/", Body: body,
					Header: []egress.Field{{Name: "Content-Type", Value: "a/b"}}}
				got, err := b.Do(within(t), request)
				if err != nil {
					t.Fatalf("%s %s with %d bytes: %v", scheme, method, len(body), err)
				}
				if !bytes.Equal(got.Body, body) || !slices.Contains(got.Header, egress.Field{Name: "X-Seen", Value: fmt.Sprintf("%s %d a/b", method, len(body))}) {
					t.Errorf("%s %s with %d bytes: %d came back, %q", scheme, method, len(body), len(got.Body), got.Header)
				}
			}
		}
	}
	_, err := b.Do(within(t), &egress.Request{Method: "POST", URL: "http://api.example.com/", Body: append(large, 0)})
	_ = failed(t, err, egress.KindTooLarge)
}

func TestAnswersAreBounded(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		if r.URL.RawQuery == "chunked" {
			rw.(http.Flusher).Flush()
		} else {
			rw.Header().Set("Content-Length", strconv.Itoa(n))
		}
		_, _ = rw.Write(make([]byte, n))
	})
	b := w.broker(t, newPolicy(t, listing("api.example.com GET,HEAD")), func(c *egress.Config) { c.Limits.ResponseBody = 1000 })
	for path, want := range map[string]string{
		"1000": "200", "1001": "too_large", "1000?chunked": "200", "1001?chunked": "too_large", "1000000?chunked": "too_large", "0": "200",
	} {
		if got := ask(t, b, "GET", "http://api.example.com/"+path); got.kind() != want {
			t.Errorf("%s: %s %+v", path, got.kind(), got.Error)
		}
	}
	// The length in an answer to HEAD is not that of its body.
	if got := ask(t, b, "HEAD", "http://api.example.com/5000"); got.kind() != "200" || got.header("Content-Length") != "5000" || len(got.body) > 0 {
		t.Errorf("HEAD: %+v %+v", got, got.Error)
	}
}

func TestPackedAnswersAreUnpackedWithinTheLimitOnlyWhenAsked(t *testing.T) {
	pack := func(n int) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(make([]byte, n))
		_ = z.Close()
		return b.Bytes()
	}
	small, bomb := pack(5000), pack(64<<20)
	const limit, slack = 100 << 10, 128 << 10
	// Each member unpacks to nothing, and the bound falls between two or not.
	var odd, even bytes.Buffer
	for _, name := range []string{"", "8 bytes."} {
		z := gzip.NewWriter(&even)
		if name == "" {
			z = gzip.NewWriter(&odd)
		}
		z.Name = name
		_ = z.Close()
	}
	if (limit+slack)%odd.Len() == 0 || (limit+slack)%even.Len() != 0 {
		t.Fatalf("members of %d and %d bytes", odd.Len(), even.Len())
	}
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Asked", r.Header.Get("Accept-Encoding"))
		rw.Header().Set("Content-Encoding", "gzip")
		switch r.URL.Path {
		case "/small":
			_, _ = rw.Write(small)
		case "/bomb":
			_, _ = rw.Write(bomb)
		case "/half":
			_, _ = rw.Write(small[:len(small)/2])
		case "/lie":
			_, _ = rw.Write([]byte("not packed at all"))
		case "/nothing":
			rw.(http.Flusher).Flush()
		case "/twice":
			rw.Header().Add("Content-Encoding", "gzip")
			_, _ = rw.Write(small)
		case "/odd", "/even":
			member := odd.Bytes()
			if r.URL.Path == "/even" {
				member = even.Bytes()
			}
			for range 20000 {
				if _, err := rw.Write(member); err != nil {
					return
				}
			}
		}
	})
	policy := newPolicy(t, listing("api.example.com"))
	asIs, bounded := w.broker(t, policy, nil), w.broker(t, policy, func(c *egress.Config) { c.Limits.ResponseBody = limit })
	unpacked := func(path string) reply {
		header := fmt.Sprintf(`{"method":"GET","url":"http://api.example.com/%s","unpack":true}`, path)
		return decodeReply(t, bounded.Serve(within(t), message(header), nil))
	}
	if got := ask(t, asIs, "GET", "http://api.example.com/bomb"); !bytes.Equal(got.body, bomb) || got.header("Content-Encoding") != "gzip" || got.header("X-Asked") != "" {
		t.Errorf("without asking: %d bytes, %+v", len(got.body), got)
	}
	got := unpacked("small")
	if !bytes.Equal(got.body, make([]byte, 5000)) || got.header("Content-Encoding") != "" || got.header("Content-Length") != "" || got.header("X-Asked") != "gzip" {
		t.Errorf("unpacked: %d bytes, %+v %+v", len(got.body), got, got.Error)
	}
	for path, want := range map[string]string{"bomb": "too_large", "half": "connect", "lie": "connect", "nothing": "200", "odd": "too_large", "even": "too_large"} {
		if got := unpacked(path); got.kind() != want {
			t.Errorf("%s: %s %+v, not %s", path, got.kind(), got.Error, want)
		}
	}
	if got := unpacked("twice"); !bytes.Equal(got.body, small) || got.header("Content-Encoding") != "gzip" {
		t.Errorf("packed twice: %d bytes, %+v %+v", len(got.body), got, got.Error)
	}
	// A program that names an encoding itself unpacks itself.
	request := get("http://api.example.com/small")
	request.Unpack, request.Header = true, []egress.Field{{Name: "Accept-Encoding", Value: "gzip"}}
	if answer, err := bounded.Do(within(t), request); err != nil || !bytes.Equal(answer.Body, small) {
		t.Errorf("asked for by the program: %v", err)
	}
}

func TestServersProveToBeTheHost(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Proto+" "+r.TLS.ServerName) })
	w.names["other.test"] = [][]netip.Addr{{public}}
	policy := newPolicy(t, listing("api.example.com", "other.test", "127.0.0.1", "127.0.0.2"))
	trusting := w.broker(t, policy, nil)
	if got := ask(t, trusting, "GET", "https://api.example.com/"); string(got.body) != "HTTP/1.1 api.example.com" {
		t.Errorf("%+v %+v %q", got, got.Error, got.body)
	}
	for url, want := range map[string]string{"https://other.test/": "tls", "https://127.0.0.1/": "200", "https://127.0.0.2/": "tls"} {
		if got := ask(t, trusting, "GET", url); got.kind() != want {
			t.Errorf("%s: %s %+v", url, got.kind(), got.Error)
		}
	}
	strange := w.broker(t, policy, func(c *egress.Config) { c.Roots = x509.NewCertPool() })
	if got := ask(t, strange, "GET", "https://api.example.com/"); got.kind() != "tls" || !strings.Contains(got.Error.Message, "unknown authority") {
		t.Errorf("an unknown authority: %+v", got.Error)
	}
	hosts := w.broker(t, policy, func(c *egress.Config) { c.Roots = nil })
	if got := ask(t, hosts, "GET", "https://api.example.com/"); got.kind() != "tls" {
		t.Errorf("the host's authorities: %+v", got.Error)
	}
	w.secure = w.plain
	if got := ask(t, trusting, "GET", "https://api.example.com/"); got.kind() != "tls" || strings.Contains(got.Error.Message, "127.0.0.1") {
		t.Errorf("a server without TLS: %+v", got.Error)
	}
}

func TestWhatHappenedIsObservedWithoutContents(t *testing.T) {
	w := newWeb(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, "answer")
	})
	w.names["api.example.com"] = [][]netip.Addr{addrs("10.0.0.1", "93.184.216.34")}
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	got := decodeReply(t, b.Serve(within(t), message(`{"method":"POST","url":"http://api.example.com/secret?token=1","headers":[["A","b"]]}`, 'b', 'o', 'd', 'y'), nil))
	if got.Status != 200 {
		t.Fatalf("%+v", got.Error)
	}
	seen := w.lastSeen(t)
	if seen.Method != "POST" || seen.Decision.Target.Name() != "api.example.com" || seen.Decision.Target.Scheme() != "http" || seen.Decision.Target.Port() != 80 ||
		!seen.Decision.Allowed() || seen.Status != 200 || seen.Failure != egress.KindNone || seen.Sent != 4 || seen.Received != 6 || seen.Duration <= 0 ||
		seen.Dialed.String() != "93.184.216.34:80" || len(seen.Answers) != 2 ||
		seen.Answers[0].Class != egress.ClassPrivate || seen.Answers[0].Allowed || seen.Answers[1].Class != egress.ClassPublic || !seen.Answers[1].Allowed {
		t.Errorf("%+v", seen)
	}
	for name, row := range map[string]struct {
		message []byte
		reason  egress.Reason
		failure egress.Kind
		method  string
	}{
		"no message":     {nil, egress.ReasonUndecided, egress.KindMalformed, ""},
		"another host":   {message(`{"method":"GET","url":"http://evil.test/"}`), egress.ReasonHostNotListed, egress.KindPolicy, "GET"},
		"another method": {message(`{"method":"g\u001b","url":"http://api.example.com/"}`), egress.ReasonMethodMalformed, egress.KindMalformed, ""},
	} {
		before := len(w.seen)
		b.Serve(within(t), row.message, nil)
		if seen := w.lastSeen(t); len(w.seen) != before+1 || seen.Decision.Reason != row.reason || seen.Failure != row.failure || seen.Method != row.method {
			t.Errorf("%s: %+v", name, seen)
		}
	}
}

func TestARefusalTellsWhatIsAllowedAndWhoDecides(t *testing.T) {
	w := newWeb(t, nil)
	b := w.broker(t, newPolicy(t, listing("a.example", "b.example GET", "c.example", "d.example", "e.example", "f.example", "g.example", "h.example", "i.example")), nil)
	for url, want := range map[string]string{
		"http://evil.test/":                 "evil.test is not on this sandbox's list of hosts (a.example, b.example, c.example, d.example, e.example, f.example, g.example, h.example and 1 more); the host program decides",
		"http://a.example:8080/":            "only port 80 for http and port 443 for https",
		"http://\x1b[2J.test/":              `"http://\x1b[2J.test/" is no http or https URL`,
		"http://user:hunter2@a.example/":    "names a user before the host",
		"gopher://a.example/":               "only http and https",
		"http://b\u0301.example/":           `b\u0301.example`,
		"http://" + strings.Repeat("a", 90): "the host is no plain name",
	} {
		got := ask(t, b, "GET", url)
		if got.Error == nil || !strings.Contains(got.Error.Message, want) || strings.Contains(got.Error.Message, "hunter2") {
			t.Errorf("%q: %+v", url, got.Error)
		}
	}
	if got := ask(t, b, "POST", "http://b.example/"); !strings.Contains(got.Error.Message, "b.example may be sent GET only, not POST; the host program decides") {
		t.Errorf("%+v", got.Error)
	}
}

func TestAGuestLearnsNothingOfTheHostsNetwork(t *testing.T) {
	w := newWeb(t, nil)
	w.names["inside.example.com"] = [][]netip.Addr{addrs("10.1.2.3")}
	w.names["permitted.example.com"] = w.names["inside.example.com"]
	b := w.broker(t, newPolicy(t, listing("gone.example.com", "inside.example.com", "api.example.com", "permitted.example.com"), "permitted.example.com"), func(c *egress.Config) {
		c.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7)}, Err: os.ErrPermission}
		}
	})
	for _, host := range []string{"gone", "inside", "api", "permitted"} {
		got := ask(t, b, "GET", "http://"+host+".example.com/")
		if got.Error == nil || strings.Contains(got.Error.Message, "10.") {
			t.Errorf("%s: %+v", host, got.Error)
		}
	}
	if seen := w.seen[1]; seen.Answers[0].Addr.String() != "10.1.2.3" {
		t.Errorf("the host program does not learn the address: %+v", seen)
	}
}

func TestAFaultOfTheHostsFunctionsIsOneRequests(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	policy := newPolicy(t, listing("api.example.com"))
	for name, change := range map[string]func(*egress.Config){
		"resolver": func(c *egress.Config) { c.Resolver = panicking{} },
		"dial": func(c *egress.Config) {
			c.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) { panic("boom") }
		},
		"observer": func(c *egress.Config) { c.Observe = func(egress.Observation) { panic("boom") } },
	} {
		b := w.broker(t, policy, change)
		for range 10 { // more than there are places
			if got := ask(t, b, "GET", "http://api.example.com/"); got.kind() != "connect" || !strings.Contains(got.Error.Message, "fault of the broker") {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

type panicking struct{}

func (panicking) Lookup(context.Context, string) ([]netip.Addr, error) { panic("boom") }

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, limits := range []egress.Limits{{RequestBody: -1}, {ResponseBody: -1}, {Time: -1}, {Concurrent: -1}, {Waiting: -1}, {ResponseBody: 1 << 40}} {
		if _, err := egress.NewBroker(egress.Config{Limits: limits}); err == nil {
			t.Errorf("%+v are taken", limits)
		}
	}
	b := newBroker(t, egress.Config{})
	if got := ask(t, b, "GET", "http://api.example.com/"); got.kind() != "policy" {
		t.Errorf("no policy: %+v", got)
	}
}

func BenchmarkServe(b *testing.B) {
	w := newWeb(b, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "answer") })
	broker := w.broker(b, newPolicy(b, listing("api.example.com")), func(c *egress.Config) { c.Observe = nil })
	for _, scheme := range []string{"http", "https"} {
		request := message(fmt.Sprintf(`{"method":"GET","url":"%s://api.example.com/"}`, scheme))
		b.Run(scheme, func(b *testing.B) {
			for b.Loop() {
				if got := decodeReply(b, broker.Serve(b.Context(), request, nil)); got.Status != 200 {
					b.Fatalf("%+v", got.Error)
				}
			}
		})
	}
}
