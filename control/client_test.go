package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// foreignHost is a host that answers as a test tells it.
func foreignHost(t *testing.T, pid int, answer http.HandlerFunc) *control.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := control.NewClient(control.Manifest{SourceID: "host", Endpoint: server.URL, ProcessID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestHealthTellsTheAnnouncedHostFromAnother(t *testing.T) {
	for _, tt := range []struct {
		name string
		pid  int
		code int
		body string
		want string
	}{
		{"right", 1, 200, `{"protocol_version":1,"source_id":"host","more":[]}`, ""},
		{"another host has the port", 1, 200, `{"protocol_version":1,"source_id":"other"}`, "incompatible"},
		{"a typed endpoint is not compared", 0, 200, `{"protocol_version":1,"source_id":"other"}`, ""},
		{"a typed endpoint without a name", 0, 200, `{"protocol_version":1}`, ""},
		{"no name", 1, 200, `{"protocol_version":1}`, "incompatible"},
		{"another version", 1, 200, `{"protocol_version":2,"source_id":"host"}`, "incompatible"},
		{"a version that is no number", 1, 200, `{"protocol_version":true,"source_id":"host"}`, "incompatible"},
		{"a list", 1, 200, `[]`, "incompatible"},
		{"a page", 1, 200, `<html>`, "incompatible"},
		{"nothing", 1, 200, ``, "incompatible"},
		{"refused", 1, 403, `{"error":"go away"}`, "go away"},
		{"not found", 1, 404, `<html>`, "control endpoint returned HTTP 404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := foreignHost(t, tt.pid, says(tt.code, tt.body)).Health(context.Background())
			var host *control.HostError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Health: %v", err)
			case tt.want != "" && (!errors.As(err, &host) || !strings.Contains(err.Error(), tt.want) || host.SourceID != "host"):
				t.Errorf("Health: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAnInventoryIsTakenWholeOrNotAtAll(t *testing.T) {
	good, err := json.Marshal(record("one"))
	if err != nil {
		t.Fatal(err)
	}
	bad := func(old, fresh string) string {
		text := strings.Replace(string(good), old, fresh, 1)
		if text == string(good) {
			t.Fatalf("%s does not have %s", good, old)
		}
		return `{"sandboxes":[` + string(good) + "," + text + `]}`
	}
	for _, tt := range []struct{ name, body, want string }{
		{"good", `{"sandboxes":[` + string(good) + `],"more":1}`, ""},
		{"empty", `{"sandboxes":[]}`, ""},
		{"unknown state", bad(`"ready"`, `"sleeping"`), "sleeping"},
		{"no state", bad(`"state":"ready",`, ``), "state"},
		{"state in capitals", bad(`"ready"`, `"READY"`), "READY"},
		{"empty source", bad(`"fake-host"`, `""`), "source_id"},
		{"id that is no text", bad(`"instance_id":"one"`, `"instance_id":1`), "instance_id"},
		{"time that is no number", bad(`1800000001.5`, `"now"`), "last_activity_at"},
		{"infinite time", bad(`1800000001.5`, `1e999`), "last_activity_at"},
		{"process that is no number", bad(`4242`, `42.5`), "process_id"},
		{"targets that are no list", bad(`["a.example","b.example"]`, `"a.example"`), "egress_targets"},
		{"long id", bad(`"instance_id":"one"`, `"instance_id":"`+strings.Repeat("1", control.MaxTextBytes+1)+`"`), "instance_id must be of at most"},
		{"long contract", bad(`"egress_targets"`, `"execution_contract":"`+strings.Repeat("1", control.MaxTextBytes+1)+`","egress_targets"`), "execution_contract must be of at most"},
		{"long target", bad(`"a.example"`, `"`+strings.Repeat("a", control.MaxTextBytes+1)+`"`), "egress_targets must be of at most"},
		{"long targets", bad(`"a.example"`, strings.Repeat(`"`+strings.Repeat("a", control.MaxTextBytes)+`",`, control.MaxEgressBytes/control.MaxTextBytes)+`"a"`), "bytes together"},
		{"keys in other letters", bad(`"kind"`, `"Kind"`), "kind"},
		{"no list", `{"sandboxes":{}}`, "sandboxes"},
		{"no object", `[]`, "object"},
		{"cut short", `{"sandboxes":[`, "object"},
		{"too many", `{"sandboxes":[` + strings.Repeat("1,", control.MaxInventory) + `1]}`, "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			records, err := foreignHost(t, 1, says(200, tt.body)).List(context.Background())
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("List: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "invalid inventory") || !strings.Contains(err.Error(), tt.want) || records != nil):
				t.Errorf("List: %+v, %v, want %q", records, err, tt.want)
			}
		})
	}
}

func TestWhatMayBeMissingInARecordIsEmpty(t *testing.T) {
	var got control.Record
	err := json.Unmarshal([]byte(`{"source_id":"s","backend":"","scope":"","thread_id":"","agent_id":"","call_id":"","kind":"","instance_id":"i",
		"state":"starting","created_at":1,"last_activity_at":-2e3,"egress_targets":[],"process_id":null}`), &got)
	want := control.Record{SourceID: "s", InstanceID: "i", State: control.StateStarting, CreatedAt: 1, LastActivityAt: -2000}
	if err != nil || got.Compare(want) != 0 || got.CreatedAt != want.CreatedAt || got.LastActivityAt != want.LastActivityAt || got.ProcessID != 0 || got.ExecutionContract != "" || len(got.EgressTargets) != 0 {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestAnswersWithoutEndAreNotTaken(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte(`{"sandboxes":[` + strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			chunk = chunk[:0:0]
			chunk = append(chunk, strings.Repeat(" ", 1<<20)...)
		}
	}
	if _, err := foreignHost(t, 1, endless).List(context.Background()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("List: %v", err)
	}
	longHeader := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", strings.Repeat("a", 1<<20)) }
	if _, err := foreignHost(t, 1, longHeader).List(context.Background()); err == nil {
		t.Error("a header without end was read")
	}
	result, err := foreignHost(t, 1, says(409, `{"error":"`+strings.Repeat("a", 1<<20)+`"}`)).Dispose(context.Background(), "one", 0)
	if err != nil || len(result.Message) > 5000 {
		t.Errorf("Dispose: a message of %d bytes, %v", len(result.Message), err)
	}
}

func TestARedirectIsAnErrorAndIsNotFollowed(t *testing.T) {
	asked := 0
	client := foreignHost(t, 1, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/v1/health", http.StatusFound)
	})
	if _, err := client.List(context.Background()); err == nil || !strings.Contains(err.Error(), "HTTP 302") || asked != 1 {
		t.Errorf("List: %v after %d requests", err, asked)
	}
}

func TestAProxyIsNotUsed(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	if err := foreignHost(t, 1, says(200, `{"protocol_version":1,"source_id":"host"}`)).Health(context.Background()); err != nil {
		t.Error(err)
	}
}

// The client says what it wants as the peers' servers expect it.
func TestRequestsAreEscapedAndCarryTheirTime(t *testing.T) {
	var seen []string
	client := foreignHost(t, 1, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("Accept"))
		http.Error(w, "{}", http.StatusTeapot)
	})
	ctx := context.Background()
	const id = "slash/ä+%41 ~_.-?#"
	_, _ = client.List(ctx)
	_, _, _ = client.Get(ctx, id)
	_, _ = client.Dispose(ctx, id, 1500*time.Millisecond)
	_, _ = client.Purge(ctx, "../s", "t/", 0)
	want := []string{
		"GET /v1/sandboxes?timeout=5.0 application/json",
		"GET /v1/sandboxes/slash%2F%C3%A4%2B%2541%20~_.-%3F%23?timeout=5.0 application/json",
		"DELETE /v1/sandboxes/slash%2F%C3%A4%2B%2541%20~_.-%3F%23?timeout=1.5 application/json",
		"DELETE /v1/scopes/..%2Fs/threads/t%2F?timeout=10.0 application/json",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

func TestAnAnswerAboutSomethingElseIsNotTaken(t *testing.T) {
	ctx := context.Background()
	other, err := json.Marshal(record("other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := foreignHost(t, 1, says(200, string(other))).Get(ctx, "one"); found || err == nil || !strings.Contains(err.Error(), "different sandbox") {
		t.Errorf("Get: %v, %v", found, err)
	}
	result, err := foreignHost(t, 1, says(200, `{"status":"disposed","instance_id":"other","message":""}`)).Dispose(ctx, "one", 0)
	if err != nil || result.Status != control.DisposalFailed || result.InstanceID != "one" {
		t.Errorf("Dispose = %+v, %v", result, err)
	}
	if _, err := foreignHost(t, 1, says(200, `{"status":"purged","scope":"s","thread_id":"other","disposed":1,"message":""}`)).Purge(ctx, "s", "t", 0); err == nil {
		t.Error("Purge took another conversation's result")
	}
}

// No answer whatever makes a disposal or purge look done.
func TestOnlyAWholeAnswerConfirms(t *testing.T) {
	ctx := context.Background()
	for _, answer := range []struct {
		status int
		body   string
	}{
		{200, ``}, {200, `{}`}, {200, `true`}, {204, ``}, {500, `{"status":"disposed","instance_id":"one","message":"x"}`},
		{409, `{"status":"failed","instance_id":"one","message":"no"}`}, {504, `{"error":"disposal timed out"}`}, {200, `{"status":"gone","instance_id":"one","message":""}`},
		{200, `{"status":"purged","scope":"s","thread_id":"t","disposed":-1,"message":""}`},
		{200, `{"status":"purged","scope":"s","thread_id":"t","disposed":true,"message":""}`},
	} {
		client := foreignHost(t, 1, says(answer.status, answer.body))
		if result, err := client.Dispose(ctx, "one", 0); err != nil || result.Status != control.DisposalFailed || result.Message == "" {
			t.Errorf("%d %s: Dispose = %+v, %v", answer.status, answer.body, result, err)
		}
		if result, err := client.Purge(ctx, "s", "t", 0); err == nil {
			t.Errorf("%d %s: Purge = %+v", answer.status, answer.body, result)
		}
	}
}

// A host that dies while it is asked, at every moment of its answer.
func TestAHostThatIsKilledWhileBeingAskedIsUnconfirmed(t *testing.T) {
	whole := "HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n" + `{"status":"disposed","instance_id":"one","message":"it is gone"}`
	for cut := 0; cut < len(whole); cut += 9 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, whole[:cut])
			_ = conn.Close()
		}()
		client, err := control.NewClient(control.Manifest{SourceID: "host", Endpoint: "http://" + listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		result, err := client.Dispose(context.Background(), "one", 0)
		if err != nil || result.Status != control.DisposalFailed {
			t.Errorf("cut at %d: %+v, %v", cut, result, err)
		}
		_ = listener.Close()
	}
}

func TestASilentHostIsLeftWhenTheContextEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	client, err := control.NewClient(control.Manifest{SourceID: "host", Endpoint: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortTime)
	defer cancel()
	if _, err := client.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List: %v", err)
	}
}

func TestEndpointsAreLiteralLoopbackOnly(t *testing.T) {
	for _, endpoint := range []string{"http://127.0.0.1:1", "http://127.0.0.1:65535/", "HTTP://127.1.2.3:80", "http://[::1]:9"} {
		if _, err := control.NewClient(control.Manifest{Endpoint: endpoint}); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	for _, endpoint := range []string{
		"", "127.0.0.1:1", "https://127.0.0.1:1", "http://localhost:1", "http://10.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:0",
		"http://127.0.0.1:99999", "http://127.0.0.1:1/x", "http://127.0.0.1:1?x", "http://127.0.0.1:1?", "http://127.0.0.1:1#", "http://u@127.0.0.1:1",
		"http://u:p@127.0.0.1:1", "http://127.1:1", "http://2130706433:1", "http://[::ffff:127.0.0.1]:1", "http://[::1%25lo]:1", "http://0.0.0.0:1",
		"http:127.0.0.1:1", "http://127.0.0.1:1\n", "http://127.0.0.1:+1", "unix:///x",
	} {
		_, err := control.NewClient(control.Manifest{Endpoint: endpoint})
		var invalid *control.EndpointError
		if !errors.As(err, &invalid) || !errors.Is(err, control.ErrInvalidMessage) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}
