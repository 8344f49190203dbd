package egress_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

func TestARequestCarriesTheProgramsHeadersAndNoOthers(t *testing.T) {
	var got *http.Request
	w := newWeb(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Clone(r.Context()) })
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	request := get("http://api.example.com/")
	request.Header = []egress.Field{
		{Name: "x-TOKEN", Value: " abc\t"}, {Name: "X-Token", Value: "d\u00e9f"}, {Name: "Cookie", Value: "a=b"},
		// What ordinary clients send; the broker sends its own.
		{Name: "Host", Value: "API.example.com"}, {Name: "host", Value: "api.example.com:80"}, {Name: "Connection", Value: "close, X-Token"},
		{Name: "Keep-Alive", Value: "5"}, {Name: "Content-Length", Value: "0"}, {Name: "Expect", Value: "100-continue"},
	}
	if _, err := b.Do(within(t), request); err != nil {
		t.Fatal(err)
	}
	if tokens := got.Header["X-Token"]; len(tokens) != 2 || tokens[0] != "abc" || tokens[1] != "d\xe9f" {
		t.Errorf("X-Token arrived as %q", tokens)
	}
	if got.Host != "api.example.com" || got.Header.Get("User-Agent") != "maf-sandbox" || got.Header.Get("Cookie") != "a=b" {
		t.Errorf("arrived: host %q, %q", got.Host, got.Header)
	}
	for _, name := range []string{"Accept-Encoding", "Keep-Alive", "Expect", "Authorization", "Referer"} {
		if value, there := got.Header[name]; there {
			t.Errorf("%s: %q was sent", name, value)
		}
	}
}

func TestHeadersThatAreNotTheProgramsAreRefused(t *testing.T) {
	w := newWeb(t, func(http.ResponseWriter, *http.Request) {})
	b := w.broker(t, newPolicy(t, listing("api.example.com")), nil)
	many := make([]egress.Field, 129)
	for i := range many {
		many[i] = egress.Field{Name: "A", Value: "b"}
	}
	for name, fields := range map[string][]egress.Field{
		"another host":       {{Name: "Host", Value: "evil.test"}},
		"another port":       {{Name: "Host", Value: "api.example.com:443"}},
		"a second host":      {{Name: "Host", Value: "api.example.com"}, {Name: "hOsT", Value: "evil.test"}},
		"another length":     {{Name: "Content-Length", Value: "5"}},
		"chunks":             {{Name: "Transfer-Encoding", Value: "chunked"}},
		"an upgrade":         {{Name: "Upgrade", Value: "websocket"}},
		"a proxy's password": {{Name: "Proxy-Authorization", Value: "Basic x"}},
		"trailers":           {{Name: "Trailer", Value: "A"}},
		"te":                 {{Name: "TE", Value: "trailers"}},
		"a line break":       {{Name: "A", Value: "b\r\nHost: evil.test"}},
		"a line feed":        {{Name: "A", Value: "b\nC: d"}},
		"a NUL":              {{Name: "A", Value: "b\x00"}},
		"a wide character":   {{Name: "A", Value: "\u0100"}},
		"a disguised break":  {{Name: "A", Value: "b\u010dc"}}, // its low byte is a carriage return
		"no name":            {{Name: "", Value: "b"}},
		"a space in a name":  {{Name: "Host ", Value: "evil.test"}},
		"a colon in a name":  {{Name: "A:", Value: "b"}},
		"a break in a name":  {{Name: "A\r\nB", Value: "b"}},
		"a long name":        {{Name: strings.Repeat("a", 257), Value: "b"}},
		"a long value":       {{Name: "A", Value: strings.Repeat("b", 16<<10+1)}},
		"too many":           many,
	} {
		t.Run(name, func(t *testing.T) {
			request := get("http://api.example.com/")
			request.Header = fields
			_, err := b.Do(within(t), request)
			var failure *egress.Error
			if !errors.As(err, &failure) || failure.Kind != egress.KindMalformed {
				t.Errorf("not refused as malformed: %v", err)
			}
			if lookups, dials := w.did(); len(lookups)+len(dials) > 0 {
				t.Errorf("refused, but after the lookups %q and the connections %q", lookups, dials)
			}
		})
	}
}

// raw answers every connection with bytes, whatever is asked.
func raw(t *testing.T, answer string) *egress.Broker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// The request has no body, so its header ends it.
			buf := make([]byte, 4096)
			for text := ""; !strings.Contains(text, "\r\n\r\n"); {
				n, err := conn.Read(buf)
				if err != nil {
					break
				}
				text += string(buf[:n])
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	w := &web{names: map[string][][]netip.Addr{"api.example.com": {{public}}}}
	w.plain = &httptest.Server{Listener: listener}
	return newBroker(t, egress.Config{Policy: newPolicy(t, listing("api.example.com")), Resolver: w, Dial: w.dial})
}

func TestAnAnswerIsCheckedLikeARequest(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, row := range map[string]struct{ answer, kind string }{
		"nothing":               {"", "connect"},
		"no status":             {"HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n", "connect"},
		"not HTTP":              {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "connect"},
		"half a header":         {ok + "A: b\r\n", "connect"},
		"half a body":           {ok + "Content-Length: 9\r\n\r\nabc", "connect"},
		"half a chunk":          {ok + "Transfer-Encoding: chunked\r\n\r\n9\r\nabc", "connect"},
		"two lengths":           {ok + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "connect"},
		"a control character":   {ok + "A: b\x01\r\n\r\n", "connect"},
		"a line without colon":  {ok + "A b\r\n\r\n", "connect"},
		"a space in a name":     {ok + "A b: c\r\n\r\n", "200"}, // the field is left out
		"another protocol":      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "connect"},
		"a header without end":  {ok + "A: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", "too_large"},
		"hints without end":     {strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 4000) + ok + "\r\n", "too_large"},
		"headers without end":   {ok + strings.Repeat("A: b\r\n", 200) + "\r\n", "too_large"},
		"a header that expands": {ok + "A: " + strings.Repeat("\xff", 40<<10) + "\r\n\r\n", "too_large"},
		"a large body":          {ok + "Content-Length: 9000000\r\n\r\n", "too_large"},
		"a hint":                {"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + ok + "Content-Length: 1\r\n\r\nx", "200"},
		"no length":             {ok + "\r\nabc", "200"},
		"an odd reason":         {"HTTP/1.1 299 \x1b[2J\xe9\r\nContent-Length: 0\r\n\r\n", "299"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, raw(t, row.answer), "GET", "http://api.example.com/")
			if got.kind() != row.kind {
				t.Errorf("%s %+v, not %s", got.kind(), got.Error, row.kind)
			}
			if strings.ContainsFunc(got.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("the reason is %q", got.Reason)
			}
		})
	}
}

func TestAnAnswersHeaderArrivesWithoutTheConnections(t *testing.T) {
	b := raw(t, "HTTP/1.1 200 Fine\r\nx-late: \xe9t\xe9\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"+
		"Connection: close\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	got := ask(t, b, "GET", "http://api.example.com/a?b#c")
	want := [][2]string{{"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2"}, {"X-Late", "été"}}
	if got.Status != 200 || got.Reason != "Fine" || got.URL != "http://api.example.com/a?b" || string(got.body) != "abc" {
		t.Errorf("%+v, body %q", got, got.body)
	}
	if len(got.Headers) != len(want) {
		t.Fatalf("header %q", got.Headers)
	}
	for i := range want {
		if got.Headers[i] != want[i] {
			t.Errorf("header %q", got.Headers)
		}
	}
}
