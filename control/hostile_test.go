package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// No page in a browser gets through: not by another name for this machine, not
// by a form, a link or a script.
func TestRequestsOfWebPagesNeverReachTheControl(t *testing.T) {
	c := &scripted{records: []control.Record{record("one")}, list: func(context.Context) error {
		t.Error("the control was asked")
		return nil
	}}
	_, m := started(t, control.ServerConfig{Control: c})
	at := address(m)
	port := at[strings.LastIndexByte(at, ':'):]
	raw := func(method, target string, lines ...string) string {
		return method + " " + target + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"another name", raw("GET", "/v1/sandboxes", "Host: evil.test"+port), 421},
		{"localhost", raw("GET", "/v1/sandboxes", "Host: localhost"+port), 421},
		{"no port", raw("GET", "/v1/sandboxes", "Host: 127.0.0.1"), 421},
		{"another port", raw("GET", "/v1/sandboxes", "Host: 127.0.0.1:1"), 421},
		{"another loopback address", raw("GET", "/v1/sandboxes", "Host: 127.0.0.2"+port), 421},
		{"user in the host", raw("GET", "/v1/sandboxes", "Host: x@"+at), 400},
		{"empty host", raw("GET", "/v1/sandboxes", "Host:"), 421},
		{"no host", raw("GET", "/v1/sandboxes", "Accept: */*"), 400},
		{"two hosts", raw("GET", "/v1/sandboxes", "Host: "+at, "Host: evil.test"), 400},
		{"old protocol without host", "GET /v1/sandboxes HTTP/1.0\r\n\r\n", 421},
		{"absolute form of another", raw("GET", "http://evil.test/v1/sandboxes", "Host: "+at), 421},
		{"origin", raw("GET", "/v1/sandboxes", "Host: "+at, "Origin: http://evil.test"), 403},
		{"own origin", raw("GET", "/v1/sandboxes", "Host: "+at, "Origin: http://"+at), 403},
		{"null origin", raw("DELETE", "/v1/sandboxes/one", "Host: "+at, "Origin: null"), 403},
		{"empty origin", raw("DELETE", "/v1/sandboxes/one", "Host: "+at, "Origin:"), 403},
		{"image of a page", raw("GET", "/v1/sandboxes", "Host: "+at, "Sec-Fetch-Site: cross-site"), 403},
		{"page of another port", raw("GET", "/v1/sandboxes", "Host: "+at, "Sec-Fetch-Site: same-site"), 403},
		{"form", raw("POST", "/v1/sandboxes/one?_method=DELETE", "Host: "+at, "Content-Length: 14") + "_method=DELETE", 405},
		{"method in a header", raw("POST", "/v1/sandboxes/one", "Host: "+at, "X-HTTP-Method-Override: DELETE", "Content-Length: 0"), 405},
		{"preflight", raw("OPTIONS", "/v1/sandboxes/one", "Host: "+at, "Access-Control-Request-Method: DELETE"), 405},
		{"preflight of all", raw("OPTIONS", "*", "Host: "+at), 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := exchange(t, m, tt.request)
			checkHeaders(t, tt.name, got)
			if got.status != tt.status {
				t.Errorf("%d %s, want %d", got.status, got.body, tt.status)
			}
			for name := range got.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("the answer has %s", name)
				}
			}
		})
	}
	if calls := c.taken(); len(calls) != 0 {
		t.Errorf("the control got %v", calls)
	}
}

func TestMethodsThatARouteLacksAreNamed(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory()})
	for _, tt := range []struct {
		target, allow string
	}{
		{"/v1/health", "GET"},
		{"/v1/sandboxes", "GET"},
		{"/v1/sandboxes/x", "GET, DELETE"},
		{"/v1/scopes/s/threads/t", "DELETE"},
	} {
		for _, method := range []string{"POST", "HEAD", "PATCH", "get", "BREW"} {
			got := ask(t, m, method, tt.target, "Content-Length: 0")
			if got.status != 405 || got.header.Get("Allow") != tt.allow {
				t.Errorf("%s %s: %d, allowed %q, want %q", method, tt.target, got.status, got.header.Get("Allow"), tt.allow)
			}
		}
	}
	if got := ask(t, m, "POST", "/v1/nothing"); got.status != 404 {
		t.Errorf("an unknown route: %d", got.status)
	}
}

func TestRequestsThatCannotBeReadAreRefusedInJSON(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory()})
	long := strings.Repeat("a", 10<<20)
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"no version", "GET /v1/health\r\n\r\n", 400},
		{"garbage", "\x00\x01\x02\r\n\r\n", 400},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
		{"http/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421},
		{"long target", request(m, "GET", "/"+long), 431},
		{"long header", request(m, "GET", "/v1/health", "X-A: "+long), 431},
		{"many headers", request(m, "GET", "/v1/health", strings.Repeat("X-A: a\r\n", 100_000)+"X-B: b"), 431},
		{"bad header", request(m, "GET", "/v1/health", "X A: b"), 400},
		{"control bytes in the target", request(m, "GET", "/v1/sandboxes/\x7f"), 400},
		{"two lengths", request(m, "GET", "/v1/health", "Content-Length: 1", "Content-Length: 2"), 400},
		{"unknown encoding", request(m, "GET", "/v1/health", "Transfer-Encoding: odd"), 501},
		{"expectation", request(m, "GET", "/v1/health", "Expect: miracles", "Content-Length: 1"), 417},
		{"long body", request(m, "DELETE", "/v1/sandboxes/x", "Content-Length: 10000000"), 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := exchange(t, m, tt.request)
			checkHeaders(t, tt.name, got)
			if got.status != tt.status {
				t.Errorf("%d %s, want %d", got.status, got.body, tt.status)
			}
		})
	}
}

// The host's time for an operation is no client's for a body.
func TestABodyIsNotWaitedFor(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(), DisposeTimeout: time.Hour})
	for _, tt := range []struct {
		name, header, body string
		status             int
	}{
		{"none of a length", "Content-Length: 5", "", 200},
		{"half of a length", "Content-Length: 5", "ab", 200},
		{"a whole length", "Content-Length: 5", "abcde", 200},
		{"no chunk", "Transfer-Encoding: chunked", "", 200},
		{"half a chunk", "Transfer-Encoding: chunked", "5\r\nab", 200},
		{"no last chunk", "Transfer-Encoding: chunked", "5\r\nabcde\r\n", 200},
		{"too long", "Content-Length: 65537", "abcde", 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, m)
			if _, err := io.WriteString(conn, request(m, "DELETE", "/v1/sandboxes/x", tt.header)+tt.body); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			if got := response(t, in, "DELETE"); got.status != tt.status || !got.close {
				t.Errorf("%+v", got)
			}
			if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
				t.Errorf("after the answer: %q, %v", rest, err)
			}
		})
	}
}

func TestAConnectionCanBeUsedAgain(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory()})
	conn := dial(t, m)
	if _, err := io.WriteString(conn, strings.Repeat(request(m, "GET", "/v1/health"), 3)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for range 3 {
		if got := response(t, in, "GET"); got.status != 200 || got.proto != "HTTP/1.1" {
			t.Errorf("%+v", got)
		}
	}
}

// cutOff says whether the server ends the connection by itself.
func cutOff(conn net.Conn) bool {
	_, err := io.Copy(io.Discard, conn)
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// However long the host's operations may take.
func TestClientsThatSendNothingWholeAreCutOff(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(), DisposeTimeout: time.Hour})
	var group sync.WaitGroup
	for _, sent := range []string{"", "GET /v1/health HT", "GET /v1/health HTTP/1.1\r\nHost: x\r\n"} {
		conn := dial(t, m)
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if !cutOff(conn) {
				t.Errorf("a client that sent %q is still connected", sent)
			}
		})
	}
	group.Wait()
}

// Far more silent connections than the server keeps: everyone who asks is
// answered all the same.
func TestSlowClientsDoNotKeepOthersOut(t *testing.T) {
	_, m := started(t, control.ServerConfig{Control: control.NewMemory(), MaxConnections: 8})
	for range 10 {
		for i := range 20 {
			conn := dial(t, m)
			if i%2 == 0 {
				_, _ = io.WriteString(conn, "GET /v1/health HTTP/1.1\r\n") // it may be cut off already
			}
		}
		if got := ask(t, m, "GET", "/v1/health"); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
}

// Clients that ask and do not take their answers.
func TestClientsThatDoNotReadDoNotKeepOthersOut(t *testing.T) {
	records := make([]control.Record, 20_000) // more than sockets buffer
	for i := range records {
		records[i] = record(fmt.Sprintf("instance-%05d", i))
	}
	_, m := started(t, control.ServerConfig{Control: &scripted{records: records}, MaxConnections: 4})
	for range 8 {
		conn := dial(t, m)
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request(m, "GET", "/v1/sandboxes")); err != nil {
			t.Fatal(err)
		}
		// The answer has begun; the rest of it waits for this client.
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, m, "GET", "/v1/health"); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
}

func TestMoreQuestionsThanConnectionsAreRefusedInJSON(t *testing.T) {
	entered := make(chan struct{})
	release := make(chan struct{})
	c := &scripted{list: func(context.Context) error {
		entered <- struct{}{}
		<-release
		return nil
	}}
	_, m := started(t, control.ServerConfig{Control: c, MaxConnections: 2})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if got := ask(t, m, "GET", "/v1/sandboxes"); got.status != 200 {
				t.Errorf("%+v", got)
			}
		})
		<-entered
	}
	got := response(t, bufio.NewReader(dial(t, m)), "GET")
	checkHeaders(t, "too many", got)
	if got.status != 503 {
		t.Errorf("%+v", got)
	}
	close(release)
	group.Wait()
}

// Whatever other users of the machine do at the port, this one's consoles are let
// in at the socket.
func TestWhoCrowdsThePortKeepsNobodyOutOfTheSocket(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	c := &scripted{list: func(context.Context) error {
		entered <- struct{}{}
		<-release
		return nil
	}}
	_, m := started(t, control.ServerConfig{Control: c, MaxConnections: 1, Socket: true})
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if got := ask(t, m, "GET", "/v1/sandboxes"); got.status != 200 {
			t.Errorf("%+v", got)
		}
	})
	<-entered
	if got := response(t, bufio.NewReader(dial(t, m)), "GET"); got.status != 503 {
		t.Errorf("at the port: %+v", got)
	}
	if err := client.Health(t.Context()); err != nil {
		t.Errorf("at the socket: %v", err)
	}
	close(release)
	group.Wait()
}

func TestTwoHundredClientsAreServedAtOnce(t *testing.T) {
	const clients = 200
	var all sync.WaitGroup
	all.Add(clients)
	c := &scripted{records: []control.Record{record("one")}, list: func(context.Context) error {
		all.Done()
		all.Wait() // until every one is being answered
		return nil
	}}
	_, m := started(t, control.ServerConfig{Control: c, DisposeTimeout: patience})
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			if records, err := client.List(context.Background()); err != nil || len(records) != 1 {
				t.Errorf("List: %v, %v", records, err)
			}
		})
	}
	group.Wait()
}

func TestTenThousandSandboxesAreOneInventory(t *testing.T) {
	records := make([]control.Record, 10_000)
	for i := range records {
		records[i] = record(fmt.Sprintf("instance-%05d", i))
	}
	_, m := started(t, control.ServerConfig{Control: &scripted{records: records}})
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	got := inventory(t, client)
	if len(got) != len(records) || got[9_999].InstanceID != records[9_999].InstanceID {
		t.Errorf("listed %d", len(got))
	}
	one, found, err := client.Get(context.Background(), "instance-07777")
	if err != nil || !found || one.InstanceID != "instance-07777" {
		t.Errorf("Get: %+v, %v, %v", one, found, err)
	}
}

func TestAFaultOfTheHostIsAnAnswerAndNotItsEnd(t *testing.T) {
	c := &scripted{
		list:  func(context.Context) error { panic("secret detail") },
		purge: func(context.Context, string, string) (control.PurgeResult, error) { panic("secret detail") },
	}
	_, m := started(t, control.ServerConfig{Control: c})
	for target, want := range map[string]string{
		"GET /v1/sandboxes":             `{"error":"control request failed"}`,
		"GET /v1/sandboxes/x":           `{"error":"control request failed"}`,
		"DELETE /v1/sandboxes/x":        `{"error":"disposal failed"}`,
		"DELETE /v1/scopes/s/threads/t": `{"error":"purge failed"}`,
		"GET /v1/health":                `{"protocol_version":1,"source_id":"host"}`,
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := ask(t, m, method, path); got.body != want {
			t.Errorf("%s: %d %s, want %s", target, got.status, got.body, want)
		}
	}
}

// An operator's window that closes must not leave a disposal half done.
func TestADisposalGoesOnWhenItsClientIsGone(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	outcome := make(chan error, 1)
	c := &scripted{records: []control.Record{record("one")}}
	c.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
		close(entered)
		<-finish
		outcome <- ctx.Err()
		return control.DisposalResult{Status: control.Disposed, InstanceID: id}, nil
	}
	_, m := started(t, control.ServerConfig{Control: c, DisposeTimeout: patience})
	conn := dial(t, m)
	if _, err := io.WriteString(conn, request(m, "DELETE", "/v1/sandboxes/one")); err != nil {
		t.Fatal(err)
	}
	<-entered
	_ = conn.Close()
	// The server notices at once; what counts is that it does not act on it.
	if got := ask(t, m, "GET", "/v1/health"); got.status != 200 {
		t.Errorf("%+v", got)
	}
	close(finish)
	if err := <-outcome; err != nil {
		t.Errorf("the disposal's context ended: %v", err)
	}
}

// What happens after a disposal's time is over is never reported as done (G4).
func TestALateDisposalIsUnconfirmedToWhoAskedForIt(t *testing.T) {
	release := make(chan struct{})
	settled := make(chan struct{})
	memory := control.NewMemory(record("one"))
	late := &scripted{records: []control.Record{record("one")}}
	late.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
		defer close(settled)
		<-release
		return memory.Dispose(ctx, id, 0)
	}
	_, m := started(t, control.ServerConfig{Control: late})
	client, err := control.NewClient(m)
	if err != nil {
		t.Fatal(err)
	}
	result, err := client.Dispose(context.Background(), "one", 20*time.Millisecond)
	if err != nil || result.Status != control.DisposalFailed || result.Message != "disposal timed out" {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	close(release)
	<-settled
	// A repeat finds the truth: absence.
	late.records = nil
	late.dispose = func(ctx context.Context, id string) (control.DisposalResult, error) {
		return memory.Dispose(ctx, id, 0)
	}
	if result, err := client.Dispose(context.Background(), "one", patience); err != nil || result.Status != control.NotFound {
		t.Errorf("the repeat = %+v, %v", result, err)
	}
}
