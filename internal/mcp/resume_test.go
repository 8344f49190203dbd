package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mcp"
)

// inSession is a request of a client that is not the SDK's, in a session.
func inSession(ctx context.Context, t *testing.T, method, address, session, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() }) // some have closed it
	return response
}

// event reads to the next event with an id.
func event(t *testing.T, lines *bufio.Scanner) (id, data string) {
	t.Helper()
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case name == "id":
			id = strings.TrimSpace(value)
		case name == "data":
			data = strings.TrimSpace(value)
		case name == "" && id != "":
			return id, data
		}
	}
	t.Fatalf("no event: %v", lines.Err())
	return "", ""
}

// answer reads the events of a response to the answer to a request, and says
// whether there was anything before that.
func answer(t *testing.T, response *http.Response, request string) (data string, before bool) {
	t.Helper()
	for lines := bufio.NewScanner(response.Body); ; before = true {
		if _, data = event(t, lines); strings.Contains(data, `"id":`+request+`,"result":`) {
			return data, before
		}
	}
}

func TestAClientWhoseConnectionWasLostGetsItsAnswer(t *testing.T) {
	b := memory()
	address := listen(t, serve(t, b, func(c *mcp.Config) { c.Progress = time.Millisecond }), mcp.HTTP{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := inSession(ctx, t, http.MethodPost, address, "", strings.Replace(initialize, "2025-06-18", "2025-11-25", 1))
	session := began.Header.Get("Mcp-Session-Id")
	_, _ = answer(t, began, "1") // it has begun
	inSession(ctx, t, http.MethodPost, address, session, initialized)

	for _, ended := range []bool{false, true} {
		gate := stuck(b)
		first, lose := context.WithCancel(ctx)
		asks := strings.Replace(calls(2, `print "42"`), `"params":{`, `"params":{"_meta":{"progressToken":"p"},`, 1)
		id, _ := event(t, bufio.NewScanner(inSession(first, t, http.MethodPost, address, session, asks).Body))
		<-gate.Entered()
		lose()
		if ended {
			gate.Release()
			// The next program waits for the end of that one.
			if data, _ := answer(t, inSession(ctx, t, http.MethodPost, address, session, calls(3, `print "43"`)), "3"); !strings.Contains(data, `stdout:\n43`) {
				t.Errorf("the next program: %s", data)
			}
		}
		var again *http.Response
		eventually(t, "the server has seen that the first connection is gone", func() bool {
			again = inSession(ctx, t, http.MethodGet, address, session, "", "Last-Event-ID", id)
			return again.StatusCode != http.StatusConflict
		})
		// While the program runs this is after an event of its progress.
		gate.Release()
		if data, before := answer(t, again, "2"); again.StatusCode != http.StatusOK || !before && !ended || !strings.Contains(data, `stdout:\n42`) {
			t.Errorf("ended %t: status %d, %s", ended, again.StatusCode, data)
		}
	}
	// The session's own stream can be opened, and what nobody knows is no answer.
	if got := inSession(ctx, t, http.MethodGet, address, session, ""); got.StatusCode != http.StatusOK {
		t.Errorf("status %d", got.StatusCode)
	}
	if got := inSession(ctx, t, http.MethodGet, address, session, "", "Last-Event-ID", "nosuch_0"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown event: status %d", got.StatusCode)
	}
	if got := inSession(ctx, t, http.MethodDelete, address, session, ""); got.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", got.StatusCode)
	}
}

// A replay that is not read has its stream until its client is gone.
func TestAStreamThatIsBeingReplayedIsRefusedToOthersAtOnce(t *testing.T) {
	address := listen(t, serve(t, memory(), nil), mcp.HTTP{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := inSession(ctx, t, http.MethodPost, address, "", strings.Replace(initialize, "2025-06-18", "2025-11-25", 1))
	session := began.Header.Get("Mcp-Session-Id")
	_, _ = answer(t, began, "1")
	inSession(ctx, t, http.MethodPost, address, session, initialized)
	// What a connection does not hold.
	pinged := inSession(ctx, t, http.MethodPost, address, session, `{"jsonrpc":"2.0","id":"`+strings.Repeat("x", 7<<20)+`","method":"ping"}`)
	lines := bufio.NewScanner(pinged.Body)
	lines.Buffer(nil, mcp.MaxMessage)
	id, _ := event(t, lines)
	if _, err := io.Copy(io.Discard, pinged.Body); err != nil {
		t.Fatal(err)
	}
	first, lose := context.WithCancel(ctx)
	defer lose()
	if got := inSession(first, t, http.MethodGet, address, session, "", "Last-Event-ID", id); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	if got := inSession(ctx, t, http.MethodGet, address, session, "", "Last-Event-ID", id); got.StatusCode != http.StatusConflict {
		t.Errorf("status %d", got.StatusCode)
	}
	lose()
	eventually(t, "the stream is free", func() bool {
		again := inSession(ctx, t, http.MethodGet, address, session, "", "Last-Event-ID", id)
		return again.StatusCode == http.StatusOK
	})
}

// collected is a log that is written and read at the same time.
type collected struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *collected) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *collected) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func TestTheLogDoesNotNameASessionAsItsClientDoes(t *testing.T) {
	var log collected
	s := serve(t, memory(), func(c *mcp.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	cs := dial(t, listen(t, s, mcp.HTTP{}), "")
	id := cs.ID()
	run(t, cs, `print "x"`)
	if err := cs.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session ends", func() bool { return strings.Contains(log.String(), "server session disconnected") })
	if got := log.String(); id == "" || strings.Contains(got, id) || strings.Contains(got, "session_id") || !strings.Contains(got, "server session connected") {
		t.Errorf("the id %q and the log\n%s", id, got)
	}
}
