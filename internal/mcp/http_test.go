package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/maf-sandbox/maf-sandbox-go/codeact"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

const token = "0123456789abcdef"

// bearer adds the token to every request of a client.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// listen serves HTTP on a loopback port until the test ends.
func listen(t *testing.T, s *mcp.Server, h mcp.HTTP) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	stopped := errors.New("stopped")
	go func() { ended <- s.ServeHTTP(ctx, l, h) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel(stopped)
		if err := await(t, ended); !errors.Is(err, stopped) {
			t.Errorf("ServeHTTP gave %v", err)
		}
	})
	return "http://" + l.Addr().String() + mcp.Path
}

// dial connects a client of the SDK over HTTP.
func dial(t *testing.T, address, token string) *sdk.ClientSession {
	t.Helper()
	transport := &sdk.StreamableClientTransport{Endpoint: address, MaxRetries: -1}
	if token != "" {
		transport.HTTPClient = &http.Client{Transport: bearer{token}}
	}
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // many tests have closed it
	return cs
}

// post sends one message as a client that is not the SDK's.
func post(t *testing.T, address string, body io.Reader, change func(*http.Request)) (status int, text string, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if change != nil {
		change(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // read to its end, or of no interest
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer), response.Header
}

func TestRequestsAreRefusedUnlessTheyMay(t *testing.T) {
	origin := func(o ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Origin"] = o }
	}
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	authorization := func(a string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", a) }
	}
	open := mcp.HTTP{Origins: []string{"https://agents.example"}}
	closed := mcp.HTTP{Token: token}
	for _, r := range []struct {
		name   string
		http   mcp.HTTP
		change func(*http.Request)
		status int
	}{
		{"a program", open, nil, 200},
		{"a page of the named origin", open, origin("https://agents.example"), 200},
		{"a page of another origin", open, origin("https://evil.example"), 403},
		{"a page of a similar origin", open, origin("https://agents.example.evil"), 403},
		{"a page of the named host without its scheme", open, origin("http://agents.example"), 403},
		{"a page of another port here", open, origin("http://127.0.0.1:1"), 403},
		{"a sandboxed page", open, origin("null"), 403},
		{"a page without a name", open, origin(""), 403},
		{"two origins", open, origin("https://agents.example", "https://evil.example"), 403},
		{"a name that was pointed here", open, host("evil.example"), 403},
		{"a page whose name was pointed here", open, func(r *http.Request) { r.Host = "evil.example"; origin("http://evil.example")(r) }, 403},
		{"localhost", open, host("localhost"), 200},
		{"the same page's origin", open, func(r *http.Request) { r.Host = "localhost:7"; origin("http://localhost:7")(r) }, 200},
		{"no token", closed, nil, 401},
		{"a wrong token", closed, authorization("Bearer 0123456789abcdeF"), 401},
		{"a part of the token", closed, authorization("Bearer 0123456789abcde"), 401},
		{"another scheme", closed, authorization("Basic " + token), 401},
		{"the token without a scheme", closed, authorization(token), 401},
		{"the token", closed, authorization("Bearer " + token), 200},
		{"the token under another name of the server", closed, func(r *http.Request) {
			authorization("bearer " + token)(r)
			host("sandbox.example")(r)
		}, 200},
		{"the token from another origin", closed, func(r *http.Request) {
			authorization("Bearer " + token)(r)
			origin("https://evil.example")(r)
		}, 403},
		{"another media type", open, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"an announced body that is too long", open, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(spaces{}, mcp.MaxMessage+1)), mcp.MaxMessage+1
		}, 413},
		{"a body that is too long", open, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(spaces{}, mcp.MaxMessage+1)), -1
		}, 413},
	} {
		t.Run(r.name, func(t *testing.T) {
			b := memory()
			address := listen(t, serve(t, b, nil), r.http)
			status, text, header := post(t, address, strings.NewReader(initialize), r.change)
			if status != r.status {
				t.Errorf("status %d %q, want %d", status, text, r.status)
			}
			if session := header.Get("Mcp-Session-Id"); (session != "") != (status == 200) {
				t.Errorf("session %q with status %d", session, status)
			}
			if asks := header.Get("WWW-Authenticate") == "Bearer"; asks != (status == 401) {
				t.Errorf("WWW-Authenticate: %t with status %d", asks, status)
			}
		})
	}
}

func TestAnIDThatWouldComeBackAsAnotherIsRefused(t *testing.T) {
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{})
	const request = `{"jsonrpc":"2.0","id":%d,"method":"ping"}`
	if status, text, _ := post(t, address, strings.NewReader(fmt.Sprintf(request, 1<<53+1)), nil); status != 400 || !strings.Contains(text, "use text for others") {
		t.Errorf("status %d, %q", status, text)
	}
	if status, text, _ := post(t, address, strings.NewReader(fmt.Sprintf(request, 1<<53-1)), nil); status != 200 || !strings.Contains(text, `"id":9007199254740991,"result"`) {
		t.Errorf("status %d, %q", status, text)
	}
}

func TestBrowsersAreToldWhatPagesOfNamedOriginsMayDo(t *testing.T) {
	const origin = "https://agents.example"
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{Token: token, Origins: []string{origin}})
	for _, r := range []struct {
		name, method, origin, token string
		status                      int
		allowed, headers            bool
	}{
		{"asking first", http.MethodOptions, origin, "", 204, true, true},
		{"asking from elsewhere", http.MethodOptions, "https://evil.example", "", 403, false, false},
		{"asking without an origin", http.MethodOptions, "", "", 405, false, false},
		{"beginning", http.MethodPost, origin, token, 200, true, false},
		{"beginning without the token", http.MethodPost, origin, "", 401, false, false},
		{"a program", http.MethodPost, "", token, 200, false, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			status, _, header := post(t, address, strings.NewReader(initialize), func(q *http.Request) {
				q.Method = r.method
				if r.origin != "" {
					q.Header.Set("Origin", r.origin)
				}
				if r.token != "" {
					q.Header.Set("Authorization", "Bearer "+r.token)
				}
			})
			allowed := header.Get("Access-Control-Allow-Origin") == origin && header.Get("Access-Control-Expose-Headers") == "Mcp-Session-Id" && header.Get("Vary") == "Origin"
			headers := strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization")
			if status != r.status || allowed != r.allowed || headers != r.headers {
				t.Errorf("status %d, %v", status, header)
			}
		})
	}
}

// spaces is an endless text.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestNothingElseIsServed(t *testing.T) {
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{})
	for _, path := range []string{"", "/mcp/", "/other", "/.well-known/oauth-protected-resource"} {
		if status, _, _ := post(t, strings.TrimSuffix(address, mcp.Path)+path, strings.NewReader(initialize), nil); status != 404 {
			t.Errorf("%q: status %d", path, status)
		}
	}
}

func TestClientsWorkOverHTTP(t *testing.T) {
	b := memory()
	address := listen(t, serve(t, b, nil), mcp.HTTP{Token: token})
	one, two := dial(t, address, token), dial(t, address, token)
	run(t, one, `set "mine" "one"`)
	run(t, two, `set "mine" "two"`)
	wants(t, run(t, one, `get "mine"`), "stdout:\none")
	wants(t, run(t, two, `get "mine"`), "stdout:\ntwo")
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if left := b.Registered(); left != 1 {
		t.Errorf("%d sandboxes, want the other session's", left)
	}
	wants(t, run(t, two, `get "mine"`), "stdout:\ntwo")
}

func TestASessionEndsThoughItsProgramRuns(t *testing.T) {
	b := memory()
	gate := stuck(b)
	address := listen(t, serve(t, b, nil), mcp.HTTP{})
	cs := dial(t, address, "")
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = cs.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": "x"}})
	})
	<-gate.Entered()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", cs.ID())
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if left := b.Registered(); response.StatusCode != http.StatusNoContent || left != 0 {
		t.Errorf("status %d, %d sandboxes are left when the client is told", response.StatusCode, left)
	}
	group.Wait()
}

func TestASilentSessionEnds(t *testing.T) {
	b := memory()
	s := serve(t, b, nil)
	var cs *sdk.ClientSession
	// On a busy machine a session may be silent for longer than that before it is
	// used: then another one gets more time.
	for idle := 50 * time.Millisecond; cs == nil; idle *= 2 {
		transport := &sdk.StreamableClientTransport{Endpoint: listen(t, s, mcp.HTTP{Idle: idle}), MaxRetries: -1}
		one, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		if err == nil {
			t.Cleanup(func() { _ = one.Close() }) // it is over by then
			if _, err = one.CallTool(t.Context(), &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": `set "x" "1"`}}); err == nil {
				cs = one
			}
		}
		if err != nil && idle > patience {
			t.Fatal(err)
		}
	}
	eventually(t, "the silent session's sandbox goes", func() bool { return b.Registered() == 0 })
	if _, err := cs.ListTools(t.Context(), nil); err == nil {
		t.Error("the session still answers")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{MaxSessions: 2})
	first := dial(t, address, "")
	dial(t, address, "")
	if status, text, _ := post(t, address, strings.NewReader(initialize), nil); status != 503 || !strings.Contains(text, "2 sessions") {
		t.Errorf("status %d %q", status, text)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	dial(t, address, "")
}

func TestNothingRunsOutsideASession(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print \"x\""}%s}}`
	plain := fmt.Sprintf(call, "")
	newer := fmt.Sprintf(call, `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`)
	b := memory()
	address := listen(t, serve(t, b, nil), mcp.HTTP{})
	for name, r := range map[string]struct{ body, version, want string }{
		"a call":                    {plain, "2025-06-18", "invalid during session initialization"},
		"a call of the newest kind": {newer, "2026-07-28", "is not supported by this server"},
		"a batch":                   {" [" + initialize + "," + plain + "]", "2025-03-26", "a session begins with initialize alone"},
	} {
		_, text, _ := post(t, address, strings.NewReader(r.body), func(q *http.Request) {
			q.Header.Set("MCP-Protocol-Version", r.version)
			q.Header.Set("Mcp-Method", "tools/call")
			q.Header.Set("Mcp-Name", "execute_code")
		})
		if !strings.Contains(text, r.want) {
			t.Errorf("%s: got %s, want %s", name, text, r.want)
		}
	}
	if calls := b.Calls(); len(calls) != 0 {
		t.Errorf("the backend received %v", calls)
	}
}

func TestAStrangersSessionIsNotFound(t *testing.T) {
	b := memory()
	address := listen(t, serve(t, b, nil), mcp.HTTP{})
	run(t, dial(t, address, ""), `print "x"`)
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		status, _, _ := post(t, address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), func(r *http.Request) {
			r.Method = method
			r.Header.Set("Mcp-Session-Id", "GUESSED")
		})
		if status != http.StatusNotFound {
			t.Errorf("%s: status %d", method, status)
		}
	}
	if b.Registered() != 1 {
		t.Error("the session's sandbox is gone")
	}
}

func TestAServerThatEndsStopsItsPrograms(t *testing.T) {
	b := memory()
	gate := stuck(b)
	s := serve(t, b, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, l, mcp.HTTP{}) }()
	cs := dial(t, "http://"+l.Addr().String()+mcp.Path, "")
	answer := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: codeact.Name, Arguments: map[string]any{"code": "x"}})
		answer <- err
	}()
	<-gate.Entered()
	cancel()
	if err := await(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := b.Registered(); left != 0 {
		t.Errorf("%d sandboxes are left", left)
	}
	if <-answer == nil {
		t.Error("the program was answered")
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestABodyThatDoesNotArriveIsRefused(t *testing.T) {
	s := serve(t, memory(), nil)
	recorder := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+mcp.Path, io.MultiReader(strings.NewReader(`{"json`), broken{}))
	s.Handler(mcp.HTTP{}).ServeHTTP(recorder, r)
	if recorder.Code != http.StatusBadRequest {
		t.Errorf("status %d", recorder.Code)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestAddressesAreToldApart(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "true", "127.9.9.9:80": "true", "[::1]:80": "true", "localhost:0": "true", "LOCALHOST:1": "true",
		":80": "false", "0.0.0.0:80": "false", "[::]:80": "false", "192.0.2.1:80": "false", "host.example:80": "false",
		"localhost.example:80": "false", "127.0.0.1.example:80": "false", "[::ffff:127.0.0.1]:80": "true",
		"127.0.0.1": "error", "": "error", "localhost:": "error", "::1:80:": "error",
		"127.0.0.1:65535": "true", "127.0.0.1:65536": "error", "127.0.0.1:-1": "error", "127.0.0.1:http": "true",
	} {
		loopback, err := mcp.ListenAddress(address)
		got := fmt.Sprint(loopback)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, %v; want %s", address, got, err, want)
		}
	}
}
